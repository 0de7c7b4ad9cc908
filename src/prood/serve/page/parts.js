// The parts of the page: empty, at work, or filled.

import { byId } from "./elements.js";

export const PARTS = ["answer", "proof", "far"];
const BESIDE = ["gates", "bars"]; // of the answer, outside of its body, which is read aloud as a whole
const idle = new Map(PARTS.map((part) => [part, byId(`${part}-waiting`).textContent]));

/** A part has something to show. */
export function fill(part) {
  set(part, true);
}

/** A part has nothing to show. */
export function empty(part) {
  set(part, false);
}

/** While the service works, what was there before stays, dimmed: the page does not jump under the reader's eyes. */
export function working(state, dimmed = state) {
  byId("main").setAttribute("aria-busy", state);
  for (const part of PARTS) {
    byId(`${part}-waiting`).textContent = state ? "Working …" : idle.get(part);
    dim(part, dimmed);
  }
}

function set(part, filled) {
  byId(`${part}-body`).hidden = !filled;
  byId(`${part}-waiting`).hidden = filled;
  if (part === "answer") for (const id of BESIDE) byId(id).hidden = !filled;
  dim(part, false);
}

function dim(part, state) {
  byId(`${part}-body`).parentElement.classList.toggle("stale", state);
}
