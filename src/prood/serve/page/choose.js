// The ways an image gets here: a file, a drop anywhere on the page, the clipboard, or an example.

import { Problem, picture } from "./api.js";
import { byId, element } from "./elements.js";

const GROUPS = { in: "The kind it was trained on", out: "Other kinds" };

/** `chosen(blob, name)` is called with every image, `failed(problem)` where there is none in what came. */
export function listenForImages(chosen, failed) {
  const [drop, file] = [byId("drop"), byId("file")];
  drop.addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    if (file.files.length) use(file.files[0]);
    file.value = ""; // so that the same file can be chosen again
  });

  function use(given) {
    if (!given) failed(new Problem("There is no picture in what you gave. Save it as a file first, then drop that."));
    else chosen(given, given.name || "pasted image");
  }

  // Anywhere, since a picture dropped beside the field would otherwise replace the page.
  let depth = 0;
  const over = (by) => {
    depth = Math.max(0, depth + by);
    drop.classList.toggle("over", depth > 0);
  };
  addEventListener("dragenter", () => over(1));
  addEventListener("dragleave", () => over(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    over(-depth);
    use(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => {
    if (event.target instanceof HTMLInputElement) return; // a token, perhaps, or a link
    use([...event.clipboardData.files].find(({ type }) => type.startsWith("image/")));
  });
}

/** Buttons for the service's examples, in two groups. `pick(number)` uses one, `press(number)` marks it. */
export function showExamples(examples, chosen, failed) {
  const buttons = examples.map(({ name }) => {
    const said = { type: "button", class: "example", title: name, "aria-label": name, "aria-pressed": false };
    return element("button", said, element("img", { alt: "", class: "pixels" }));
  });
  for (const [kind, title] of Object.entries(GROUPS)) {
    const members = buttons.filter((_, number) => examples[number].kind === kind);
    if (!members.length) continue;
    const id = `examples-${kind}`;
    const group = element("div", { class: "strip", role: "group", "aria-labelledby": id }, ...members);
    const how = new Set(examples.filter((one) => one.kind === kind).map((one) => one.how));
    const note = element("p", { class: "note how" }, [...how].join(" "));
    byId("examples").append(element("h3", { id }, title), group, note);
  }
  byId("examples").hidden = !buttons.length;

  // Fetched and not linked, because a link cannot carry a token.
  const blobs = examples.map(({ url }) => picture(url));
  blobs.forEach(async (blob, number) => {
    try {
      buttons[number].firstChild.src = URL.createObjectURL(await blob);
    } catch {
      buttons[number].classList.add("missing"); // the reason is told when it is picked
    }
  });

  async function pick(number) {
    const { name } = examples[number];
    try {
      chosen(new File([await blobs[number]], `${name}.png`, { type: "image/png" }), name, number);
    } catch (error) {
      failed(error, () => location.reload()); // all of them are fetched anew
    }
  }
  function press(number) {
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", place === number));
  }
  buttons.forEach((button, number) => button.addEventListener("click", () => pick(number)));
  return { pick, press, blobs, offered: examples };
}
