// The page: it asks the service about one image at a time, and hands the answers to the parts that show them.

import { get, hasToken, keepToken, post, Problem } from "./api.js";
import { showAnswer } from "./answer.js";
import { Attack } from "./attack.js";
import { listenForImages, showExamples } from "./choose.js";
import { byId, complain } from "./elements.js";
import { Far } from "./far.js";
import { empty, PARTS, working } from "./parts.js";
import { fitted, show } from "./picture.js";
import { showMonitor } from "./monitor.js";
import { showPoint } from "./point.js";
import { Proof } from "./proof.js";
import { read, Share } from "./share.js";

const HEADERS = 1024; // bytes of a request that are not the image
const PROBLEMS = ["image-problem", "proof-problem", "curve-problem", "far-problem"];

let model, proof, attack, far, share, examples;
let current = new AbortController(); // of the image that is shown
let next = new AbortController(); // of the one that is asked about first
let shown = null; // the image, its name and its example's number, if it has one
let settled = true; // whether all that was asked about it is answered

/** Ask about an image. What is shown stays until there is an answer, and for good where there is none. */
async function use(image, name, number = null) {
  next.abort();
  const { signal } = (next = new AbortController());
  complain("image-problem", null);
  working(true);
  try {
    if (image.size + HEADERS > model.limits.body_bytes) {
      throw new Problem(`This file is too large: the service takes up to ${megabytes(model.limits.body_bytes)}.`);
    }
    const pixels = await fitted(image, model.image);
    const { predictions } = await post("v1/predict", image, { watch: number === null }, signal); // examples only try
    signal.throwIfAborted();
    current.abort();
    current = next;
    shown = { image, name, number };
    await present(predictions[0], pixels, signal);
  } catch (error) {
    if (signal.aborted) return;
    working(!settled, false);
    tell(error, () => use(image, name, number));
  }
}

/** Show the answer, and ask all the rest. What comes late, about an earlier image, is dropped. */
async function present(answer, pixels, signal) {
  const { image, name, number } = shown;
  settled = false;
  for (const id of PROBLEMS) complain(id, null);
  examples?.press(number);
  attack.use(null);
  share.forget();
  preview(pixels, name);
  showAnswer(answer, model);
  await part("proof", signal, async () => {
    await proof.load(image, signal);
    attack.use(image);
  });
  await part("far", signal, () => far.load(image, pixels, signal));
  await part("curve", signal, () => proof.complete(() => attack.idle, signal));
  settled = true;
  working(false);
}

/** One part may fail, and the others still be shown. */
async function part(name, signal, load) {
  try {
    await load();
  } catch (error) {
    if (signal.aborted || error.status === 401) throw error;
    if (PARTS.includes(name)) empty(name); // without the rest of its curve, the proof still has its claim
    const again = async () => {
      complain(`${name}-problem`, null);
      try {
        await part(name, signal, load);
      } catch {
        if (!signal.aborted) askForToken(again);
      }
    };
    complain(`${name}-problem`, error, again);
  }
}

function tell(error, again) {
  if (error.status === 401) return askForToken(again);
  if (!(error instanceof Problem)) console.error(error);
  const shown = error instanceof Problem ? error : new Problem(`Something went wrong here: ${error.message}`);
  complain("image-problem", shown, again);
}

function preview(pixels, name) {
  const canvas = byId("preview");
  byId("drop").classList.toggle("filled", Boolean(pixels));
  canvas.setAttribute("aria-label", pixels ? `The chosen image: ${name}` : "No image yet");
  byId("fitted").textContent = pixels ? `${name}, seen by the model at ${seen(model.image)}.` : "";
  if (pixels) show(canvas, pixels);
}

function seen([channels, height, width]) {
  return `${width}\u00a0×\u00a0${height}${channels === 1 ? ", grey" : ""}`;
}

function megabytes(bytes) {
  return bytes >= 1e6 ? `${Number((bytes / 1e6).toPrecision(3))} MB` : `${Math.floor(bytes / 1000)} kB`;
}

function askForToken(again) {
  complain("model-problem", hasToken() ? new Problem("This token is not accepted.") : null);
  byId("token-form").hidden = false;
  byId("token").focus();
  byId("token-form").onsubmit = (event) => {
    event.preventDefault();
    keepToken(byId("token").value.trim());
    byId("token-form").hidden = true;
    byId("token").value = "";
    complain("model-problem", null);
    again();
  };
}

function listenForTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const other = () => (now() === "dark" ? "light" : "dark");
  const label = () => (byId("theme").textContent = other() === "dark" ? "Dark theme" : "Light theme");
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = other();
    label();
    try {
      localStorage.setItem("prood-theme", root.dataset.theme);
    } catch {
      // Then it holds for this time.
    }
  });
  dark.addEventListener("change", label);
  byId("theme").hidden = false;
  label();
}

/** The image and its answer stay in sight while the rest is scrolled; if they are too tall, their lower end does. */
function keepInSight(side) {
  const place = () => (side.style.top = `${Math.min(16, innerHeight - side.offsetHeight - 16)}px`);
  new ResizeObserver(place).observe(side);
  addEventListener("resize", place);
}

async function begin() {
  try {
    model = await get("v1/model");
  } catch (error) {
    if (error.status === 401) askForToken(begin);
    else complain("model-problem", error, begin);
    return;
  }
  complain("model-problem", null);
  byId("model").textContent = `${model.name}, ${model.classes.length} classes`;
  byId("version").textContent = `· Prood ${model.version}`;
  showPoint(model);
  showMonitor();
  byId("main").hidden = false;
  proof = new Proof(model);
  attack = new Attack(model, proof);
  far = new Far(model);
  share = new Share(model, () => {
    const example = shown.number === null ? null : examples.offered[shown.number];
    return { image: shown.image, name: shown.image.name ?? "image.png", example, eps: proof.chosen.eps };
  });
  listenForImages(use, tell);
  await offer();
}

/** Examples, and something to see at once: what a link says, else the first example of another kind that is proven. */
async function offer() {
  const offered = await get("v1/examples").catch(() => []); // it works without
  examples = showExamples(offered, use, tell);
  const follow = () => followed(offered);
  addEventListener("hashchange", follow);
  if (follow() || !offered.length || shown) return;
  const first = await proven(offered);
  if (!shown) await examples.pick(first);
}

/** Whether the address said what to show. */
function followed(offered) {
  try {
    const link = read(location.hash);
    if (link === null) return false;
    if (link.eps >= 0) proof.choose(link.eps);
    const number = offered.findIndex(({ name }) => name === link.example);
    if (!link.picture && number < 0) throw new Problem("The link is about an example that is not here.");
    if (link.picture) use(link.picture, link.picture.name);
    else examples.pick(number);
    return true;
  } catch (error) {
    tell(error);
    return false;
  }
}

/** The first example that is provably rejected, by its number; without one, the first that is of another kind. */
async function proven(offered) {
  const others = [...offered.keys()].filter((number) => offered[number].kind === "out");
  if (model.threshold !== null) {
    for (const number of others) {
      try {
        const blob = await examples.blobs[number];
        const { certificates } = await post("v1/certify", blob, { eps: model.eps, radius: false, watch: false });
        if (certificates[0].rejected[0]) return number;
      } catch {
        break; // whatever is wrong is told when it is picked
      }
    }
  }
  return others[0] ?? 0;
}

listenForTheme();
keepInSight(document.querySelector(".side"));
begin();
