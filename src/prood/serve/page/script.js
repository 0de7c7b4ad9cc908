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

const HEADERS = 1024; // bytes of a request that are not the image
const PROBLEMS = ["image-problem", "proof-problem", "curve-problem", "far-problem"];

let model, proof, attack, far, examples;
let current = new AbortController();
let used = false; // whether an image was chosen yet

/** Ask everything about an image. An answer about an earlier one that comes late is dropped. */
async function use(image, name, number = null) {
  used = true;
  current.abort();
  const { signal } = (current = new AbortController());
  for (const id of PROBLEMS) complain(id, null);
  examples?.press(number);
  attack.use(null);
  working(true);
  try {
    if (image.size + HEADERS > model.limits.body_bytes) {
      throw new Problem(`This file is too large: the service takes up to ${megabytes(model.limits.body_bytes)}.`);
    }
    const pixels = await fitted(image, model.image);
    signal.throwIfAborted();
    preview(pixels, name);
    const { predictions } = await post("v1/predict", image, {}, signal);
    showAnswer(predictions[0], model);
    await part("proof", signal, async () => {
      await proof.load(image, signal);
      attack.use(image);
    });
    await part("far", signal, () => far.load(image, pixels, signal));
    await part("curve", signal, () => proof.complete(signal));
    working(false);
  } catch (error) {
    if (!signal.aborted) fail(error, () => use(image, name, number));
  }
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

/** An image that got no answer: nothing is shown of it, nor of the one before. */
function fail(error, again) {
  working(false);
  PARTS.forEach(empty);
  preview(null);
  tell(error, again);
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
  listenForImages(use, tell);
  await offer();
}

/** Examples, and something to see at once: the first image that is of another kind. */
async function offer() {
  const offered = await get("v1/examples").catch(() => []); // it works without
  examples = showExamples(offered, use, tell);
  const first = offered.findIndex(({ kind }) => kind === "out");
  if (offered.length && !used) await examples.pick(Math.max(first, 0));
}

listenForTheme();
keepInSight(document.querySelector(".side"));
begin();
