// Charts by hand, in SVG: axes, lines, areas and dots, drawn at the size they are shown at, so that text stays legible
// on a phone. A chart tells the value under the pointer, or, where it has the focus, that which the arrow keys choose.

import { drawn, element } from "./elements.js";

const MARGIN = { top: 10, right: 18, bottom: 40, left: 58 };
const HINT = "The arrow keys read the values.";
let patterns = 0;

/** The plane of one drawing: values to places, and marks. */
class Plane {
  constructor(group, size, { x, y, logarithmic = false }) {
    Object.assign(this, { group, size, x, y, logarithmic });
    this.right = size.width - MARGIN.right;
    this.bottom = size.height - MARGIN.bottom;
  }

  across(value) {
    const [low, high] = this.logarithmic ? this.x.map(Math.log) : this.x;
    const share = ((this.logarithmic ? Math.log(value) : value) - low) / (high - low);
    return MARGIN.left + share * (this.right - MARGIN.left);
  }

  up(value) {
    const share = (value - this.y[0]) / (this.y[1] - this.y[0]);
    return this.bottom + Math.min(Math.max(share, -0.02), 1.02) * (MARGIN.top - this.bottom);
  }

  points(xs, ys) {
    return xs.map((x, place) => `${this.across(x).toFixed(1)} ${this.up(ys[place]).toFixed(1)}`).join("L");
  }

  line(xs, ys, kind) {
    this.path(`M${this.points(xs, ys)}`, `line ${kind}`);
  }

  /** A level line over the whole width. */
  level(y, kind) {
    this.path(`M${MARGIN.left} ${this.up(y).toFixed(1)}H${this.right}`, `line ${kind}`);
  }

  upright(x, kind, from = this.y[0], to = this.y[1]) {
    this.path(`M${this.across(x).toFixed(1)} ${this.up(from)}V${this.up(to)}`, `line ${kind}`);
  }

  /** Hatch what lies above a curve. */
  above(xs, ys, fill) {
    const last = this.across(xs.at(-1)).toFixed(1);
    const d = `M${this.points(xs, ys)}L${last} ${MARGIN.top}H${this.across(xs[0]).toFixed(1)}Z`;
    this.group.append(drawn("path", { d, class: "beyond", fill }));
  }

  /** A strip on the horizontal axis, from its beginning. */
  strip(to, kind) {
    const width = this.across(to) - MARGIN.left;
    this.group.append(drawn("rect", { x: MARGIN.left, y: this.bottom - 3, width, height: 6, class: kind }));
  }

  dot(x, y, kind, r = 5) {
    this.group.append(drawn("circle", { cx: this.across(x), cy: this.up(y), r, class: `dot ${kind}` }));
  }

  text(x, y, words, anchor, kind = "") {
    this.group.append(drawn("text", { x, y, "text-anchor": anchor, class: kind }, words));
  }

  path(d, kind) {
    this.group.append(drawn("path", { d, class: kind }));
  }

  axes({ across, up, xName, yName }) {
    this.path(up.map(({ value }) => `M${MARGIN.left} ${this.up(value)}H${this.right}`).join(""), "grid");
    this.path(`M${MARGIN.left} ${this.bottom}H${this.right}`, "axis");
    for (const { value, text } of across) {
      this.path(`M${this.across(value)} ${this.bottom}v4`, "axis");
      this.text(this.across(value), this.bottom + 17, text, "middle");
    }
    for (const { value, text } of up) this.text(MARGIN.left - 8, this.up(value) + 4, text, "end");
    this.text((MARGIN.left + this.right) / 2, this.size.height - 5, xName, "middle", "name");
    const middle = (MARGIN.top + this.bottom) / 2;
    const turned = { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle", class: "name" };
    this.group.append(drawn("text", turned, yName));
  }
}

export class Chart {
  /**
   * `paint(chart)` draws it, and returns the values to read: a list of {x, y, text}. `choose(x)`, if there is one, is
   * told where somebody pressed or dragged.
   */
  constructor(host, { label, height = 260, paint, choose }) {
    Object.assign(this, { host, height, paint, choose });
    this.values = [];
    this.at = null;
    this.marks = drawn("g");
    this.cursor = drawn("g", { class: "cursor" });
    this.hatch = `hatch-${(patterns += 1)}`;
    const stroke = drawn("path", { d: "M0 7 7 0", class: "hatch" });
    const pattern = drawn("pattern", { id: this.hatch, width: 7, height: 7, patternUnits: "userSpaceOnUse" }, stroke);
    const attributes = { role: "img", tabindex: "0", "aria-label": label };
    this.svg = drawn("svg", attributes, drawn("defs", {}, pattern), this.marks, this.cursor);
    this.reading = element("output", { class: "reading", "aria-live": "polite" }, HINT);
    host.replaceChildren(this.svg, this.reading);
    this.listen();
    new ResizeObserver(() => this.update()).observe(host);
  }

  get fill() {
    return `url(#${this.hatch})`;
  }

  describe(label) {
    this.svg.setAttribute("aria-label", label);
  }

  plane(ranges) {
    this.drawing = new Plane(this.marks, this.size, ranges);
    return this.drawing;
  }

  update() {
    const width = Math.floor(this.host.clientWidth);
    if (!width) return; // hidden: drawn when it is shown
    this.size = { width, height: this.height };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    this.marks.replaceChildren();
    this.values = this.paint(this) ?? [];
    this.read(this.at);
  }

  /** Show the value number `at`, or none. */
  read(at) {
    const value = at === null ? undefined : this.values[Math.min(at, this.values.length - 1)];
    this.at = value ? Math.min(at, this.values.length - 1) : null;
    this.cursor.replaceChildren();
    this.reading.textContent = value ? value.text : HINT;
    this.reading.classList.toggle("idle", !value);
    if (!value) return;
    const x = this.drawing.across(value.x);
    const { bottom } = this.drawing;
    this.cursor.append(drawn("path", { d: `M${x} ${MARGIN.top}V${bottom}` }));
    this.cursor.append(drawn("circle", { cx: x, cy: this.drawing.up(value.y), r: 3.5 }));
  }

  listen() {
    const nearest = ({ clientX }) => {
      const x = clientX - this.svg.getBoundingClientRect().left;
      const away = this.values.map((value) => Math.abs(this.drawing.across(value.x) - x));
      return away.length ? away.indexOf(Math.min(...away)) : null;
    };
    const follow = (event) => {
      this.read(nearest(event));
      if (this.choose && event.buttons === 1 && this.at !== null) this.choose(this.values[this.at].x);
    };
    this.svg.addEventListener("pointerdown", follow);
    this.svg.addEventListener("pointermove", follow);
    this.svg.addEventListener("pointerleave", () => this.read(null));
    this.svg.addEventListener("blur", () => this.read(null));
    this.svg.addEventListener("keydown", (event) => {
      const last = this.values.length - 1;
      const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
      const to = { Home: 0, End: last, Escape: null }[event.key];
      const by = moves[event.key];
      if (last < 0 || (to === undefined && by === undefined)) return;
      event.preventDefault();
      const next = this.at === null ? (by < 0 ? last : 0) : Math.min(Math.max(this.at + by, 0), last);
      this.read(to === undefined ? next : to);
    });
  }
}
