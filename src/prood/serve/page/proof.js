// The proof: the certified bound over ε as a curve, and in words at the ε that is chosen.

import { Chart } from "./chart.js";
import { Curve, radii } from "./curve.js";
import { byId, legend, say } from "./elements.js";
import { FAINT, near, radius, shades, short, ticks, up } from "./format.js";
import { showGates } from "./gates.js";
import { fill } from "./parts.js";

export class Proof {
  constructor(model) {
    this.model = model;
    this.eps = radii(model.eps);
    this.slider = byId("eps");
    this.slider.max = this.eps.length - 1;
    this.choose(model.eps);
    this.slider.addEventListener("input", () => this.show());
    const choose = (eps) => {
      this.slider.value = this.eps.indexOf(eps);
      this.show();
    };
    const paint = (chart) => this.paint(chart);
    this.chart = new Chart(byId("proof-chart"), { label: "", height: 280, paint, choose });
    this.curve = null;
    this.found = []; // by attacks, a dot each
  }

  /** The chosen radius, and what is proven there. */
  get chosen() {
    const at = Number(this.slider.value);
    return { at, eps: this.eps[at], bound: this.curve.bound(at) };
  }

  /** The radius of a link, or the nearest one of the slider. */
  choose(eps) {
    const away = this.eps.map((one) => Math.abs(one - eps));
    this.slider.value = away.indexOf(Math.min(...away));
  }

  /** What is proven at the chosen radius; the rest of the curve takes longer. */
  async load(image, signal) {
    const curve = new Curve(this.eps, image, this.model);
    await curve.begin(Number(this.slider.value), signal);
    Object.assign(this, { curve, found: [] });
    fill("proof");
    showGates(curve, this.model, curve.radius);
    this.show();
  }

  /** The rest, coarse to fine; `turn()` is waited for before each part. */
  async complete(turn, signal) {
    const wanted = () => Number(this.slider.value);
    const told = async () => {
      signal.throwIfAborted();
      showGates(this.curve, this.model, this.curve.radius);
      this.show();
      await turn();
    };
    await this.curve.complete(wanted, told, signal);
  }

  /** An attack's finding, which becomes a dot under the curve. */
  add(eps, found) {
    this.found.push({ eps, found });
    this.show();
  }

  show() {
    const { eps, bound } = this.chosen;
    byId("eps-value").textContent = short(eps);
    this.slider.setAttribute("aria-valuetext", `ε = ${short(eps)}`);
    const claim = say(byId("claim"));
    if (eps === 0) claim`Unchanged, its confidence is ${near(this.curve.confidence)}.`;
    else claim`No change of up to ${short(eps)} per pixel can raise the confidence above ${this.most(bound)}.`;
    const said = [this.faint(), this.verdict(), this.scale(eps)].filter(Boolean);
    byId("claim-note").textContent = said.join(" ");
    const { known, whole } = this.curve;
    const progress = byId("curve-progress");
    progress.textContent = whole ? "" : `The curve is being computed: ${known.size} of ${this.eps.length} radii.`;
    progress.hidden = whole;
    this.explain();
    this.chart.update();
  }

  /** A bound as it is read. */
  most(bound) {
    return up(bound, this.model.floor);
  }

  /** Almost nothing, in words. */
  faint() {
    const { floor, classes } = this.model;
    if (this.chosen.bound - floor >= FAINT) return "";
    return `That is practically no confidence: a guess among ${classes.length} classes has ${near(floor)}.`;
  }

  verdict() {
    const { threshold, ceiling } = this.model;
    const { accepted, reason, radius: reach } = this.curve;
    const { at, eps, bound } = this.chosen;
    if (this.curve.computing(at)) return "This is proven for a larger ε; the bound for this one is being computed.";
    if (eps === 0) return this.itself();
    if (bound >= ceiling - 1e-4) {
      const beyond = "That is what holds for any image whatsoever; about this one, nothing more is proven here.";
      return reach >= 0 ? `${beyond} Rejection is proven up to ε = ${radius(reach)}.` : beyond;
    }
    if (threshold === null) return "";
    if (accepted) return "The image itself is accepted, so there is no rejection to prove.";
    if (reason === "confidence") {
      return "The confidence rejects the image and the discriminator does not: no proof covers the classifier.";
    }
    const sure = this.curve.rejected(at);
    if (sure) return `So every one of these images is rejected, for the threshold is ${near(threshold)}.`;
    if (reach >= 0) return `Rejection of all of them is proven only up to ε = ${radius(reach)}.`;
    return "That one of them is accepted is not ruled out.";
  }

  /** The image as it is: nothing has to be proven about it. */
  itself() {
    const { accepted } = this.curve;
    if (accepted === null) return "";
    return accepted ? "It is accepted as it is." : "It is rejected as it is.";
  }

  scale(eps) {
    return eps > 0 ? `(Pixels go from 0 to 1: ${short(eps)} is ${shades(eps)} of 255 shades.)` : "";
  }

  explain() {
    const { threshold, floor } = this.model;
    const { confidence, radius: reach } = this.curve;
    const entries = [
      ["line bound", "certified bound"],
      ["hatch", "proven out of reach"],
      ["line clean", `this image as it is, ${near(confidence)}`],
    ];
    if (threshold !== null) entries.push(["line threshold", `threshold, ${near(threshold)}`]);
    entries.push(["line floor", `a guess, ${near(floor)}`]);
    if (reach >= 0) entries.push(["line proven", `certified radius, ${radius(reach)}: all rejected`]);
    if (this.found.length) entries.push(["dot attacked", "found by an attack"]);
    legend("proof-legend", entries);
    const { eps, bound } = this.chosen;
    const last = this.eps.length - 1;
    const [low, high] = [0, last].map((at) => this.most(this.curve.bound(at)));
    const ends = `from ${low} at ε = 0 to ${high} at ε = ${short(this.eps[last])}`;
    const here = `${this.most(bound)} at ${short(eps)}`;
    this.chart.describe(`Certified bound of the confidence over ε, ${ends}. Chosen: ${here}.`);
  }

  paint(chart) {
    if (!this.curve) return [];
    const { threshold, floor } = this.model;
    const { confidence, radius: reach } = this.curve;
    const last = this.eps.at(-1);
    const bounds = this.eps.map((_, at) => this.curve.bound(at));
    const plane = chart.plane({ x: [0, last], y: [0, 1] });
    const [xs, ys] = [0, 1].map((axis) => this.curve.corners().map((corner) => corner[axis]));
    plane.above(xs, ys, chart.fill);
    const across = ticks(0, last, chart.size.width < 420 ? 5 : 8);
    plane.axes({ across, up: ticks(0, 1), xName: "ε, change allowed per pixel", yName: "confidence" });
    plane.level(floor, "floor");
    plane.level(confidence, "clean");
    if (threshold !== null) plane.level(threshold, "threshold");
    if (reach >= 0) plane.strip(Math.min(reach, last), "proven");
    if (reach >= 0 && reach <= last) plane.upright(reach, "radius", 0, threshold);
    plane.line(xs, ys, this.curve.whole ? "bound" : "bound partial");
    const { eps, bound } = this.chosen;
    plane.upright(eps, "chosen", 0, bound);
    plane.dot(eps, bound, "bound");
    for (const dot of this.found) plane.dot(dot.eps, dot.found, "attacked", 4);
    return this.eps.map((x, at) => ({ x, y: bounds[at], text: this.reading(at) }));
  }

  reading(at) {
    if (this.eps[at] === 0) return `ε = 0: the image as it is, confidence ${near(this.curve.confidence)}`;
    if (this.curve.computing(at)) return `ε = ${short(this.eps[at])}: being computed`;
    const words = this.curve.rejected(at) ? ", provably rejected" : "";
    return `ε = ${short(this.eps[at])}: confidence at most ${this.most(this.curve.bound(at))}${words}`;
  }
}
