// Small helpers to build and find elements. No markup is ever made from text that came from elsewhere.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

/** An HTML element; `children` are elements or texts. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Fill a paragraph: say(place)`at most ${value}`, where the values are strong. */
export function say(place) {
  return (texts, ...values) => {
    const parts = texts.flatMap((text, at) => [text, element("strong", {}, values[at] ?? "")]);
    place.replaceChildren(...parts.slice(0, -1)); // one value fewer than texts
  };
}

/** Show an error in its place, or take it away; with a button to try again where that may help. */
export function complain(id, error, again) {
  const place = byId(id);
  place.hidden = !error;
  place.replaceChildren(...(error ? [error.message] : []));
  if (!error?.passing || !again) return;
  const button = element("button", { type: "button", class: "quiet" }, "Try again");
  button.addEventListener("click", again);
  place.append(" ", button);
}

/** Entries of a legend: [kind of mark, what it means]. */
export function legend(id, entries) {
  const shapes = {
    dot: (kind) => drawn("circle", { class: kind, cx: 14, cy: 6, r: 4 }),
    hatch: (kind) => drawn("path", { class: kind, d: "M3 11 13 1M9 11 19 1M15 11 25 1" }),
    line: (kind) => drawn("path", { class: kind, d: "M1 6H27" }),
  };
  const items = entries.map(([kind, meaning]) => {
    const swatch = drawn("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" }, shapes[kind.split(" ")[0]](kind));
    return element("li", {}, swatch, meaning);
  });
  byId(id).replaceChildren(...items);
}

export const calm = matchMedia("(prefers-reduced-motion: reduce)");
