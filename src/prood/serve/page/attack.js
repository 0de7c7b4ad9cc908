// The attack: one search by the service, shown as it climbed, under the bound that it cannot cross.

import { post } from "./api.js";
import { Chart } from "./chart.js";
import { byId, calm, complain, legend } from "./elements.js";
import { near, power, short, ticks, tiny, up } from "./format.js";
import { change, show } from "./picture.js";

const SECONDS = 2.4; // that the climb is shown in
const LEAST_RANGE = 0.02; // of the vertical axis, where bound and image are next to each other
const FINE = 0.02; // a bound closer than this to 1/K is shown by how far it is above 1/K, in powers of ten
const NOTHING = 1e-15; // what rounding leaves of 1/K − 1/K
const DECADES = 8; // at most, below the bound

export class Attack {
  /** `proof` gives the ε, and gets a dot for what was found. */
  constructor(model, proof) {
    Object.assign(this, { model, proof, image: null, result: null });
    this.button = byId("attack");
    this.button.addEventListener("click", () => this.run());
    const label = "Highest confidence found by the attack, over its steps";
    this.chart = new Chart(byId("attack-chart"), { label, height: 250, paint: (chart) => this.paint(chart) });
  }

  /** Another image: what was found for the last one goes. Without one there is nothing to attack. */
  use(image) {
    this.running?.abort();
    this.image = image;
    this.result = null;
    this.button.setAttribute("aria-disabled", !image);
    this.say("");
    byId("attack-body").hidden = true;
    complain("attack-problem", null);
  }

  async run() {
    if (this.button.getAttribute("aria-disabled") === "true") return;
    const { eps } = this.proof.chosen;
    complain("attack-problem", null);
    if (eps === 0) return this.say("With ε = 0 nothing may be changed. Choose a larger ε.");
    const running = (this.running = new AbortController());
    this.button.setAttribute("aria-disabled", true);
    this.say(`Searching within ε = ${short(eps)} …`, true);
    try {
      const result = await post("v1/attack", this.image, { eps }, running.signal);
      await this.present(result, running.signal);
    } catch (error) {
      if (running.signal.aborted) return;
      this.say("");
      complain("attack-problem", error, () => this.run());
    }
    if (!running.signal.aborted) this.button.setAttribute("aria-disabled", false);
  }

  async present(result, signal) {
    byId("original").src = result.original;
    byId("attacked").src = result.image;
    const changed = await change(byId("original"), byId("attacked"), result.eps);
    signal.throwIfAborted();
    show(byId("change"), changed);
    byId("change-note").textContent = `change, −${short(result.eps)} to +${short(result.eps)}`;
    byId("attack-body").hidden = false;
    this.result = result;
    legend("attack-legend", [
      ["line bound", `certified bound, ${this.up(result.upper_bound)}`],
      ["hatch", "proven out of reach"],
      ["line attacked", "best found so far"],
      ["line clean", `without attack, ${this.near(result.clean)}`],
    ]);
    await this.climb(signal);
    this.proof.add(result.eps, result.found);
    this.say(this.summary());
  }

  /** Let the curve grow to its end; at once for those who want no motion. */
  climb(signal) {
    const start = performance.now();
    return new Promise((resolve, reject) => {
      const step = (now) => {
        if (signal.aborted) return reject(signal.reason);
        this.share = calm.matches ? 1 : Math.min(1, Math.max(0, now - start) / (1000 * SECONDS));
        this.chart.update();
        if (this.share < 1) requestAnimationFrame(step);
        else resolve();
      };
      step(start);
    });
  }

  summary() {
    const { eps, found, upper_bound: bound, accepted, passes } = this.result;
    const verdict = { true: " The attacked image is accepted.", false: " The attacked image is still rejected." };
    const effort = passes > 0 ? ` after ${passes} passes through the network` : "";
    const ends = `it got to ${this.near(found)}${effort}; the proof allows ${this.up(bound)}.`;
    return `Within ε = ${short(eps)} ${ends}${verdict[accepted] ?? ""}`;
  }

  say(text, busy = false) {
    byId("attack-status").textContent = text;
    byId("attack-status").classList.toggle("busy", busy);
  }

  /** Whether all that happens, happens so close to 1/K that it takes powers of ten to see it. */
  get fine() {
    return this.result.upper_bound - this.model.floor < FINE;
  }

  near(value) {
    if (!this.fine) return near(value);
    const excess = value - this.model.floor;
    return excess < NOTHING ? "1/K" : `1/K + ${tiny(excess)}`;
  }

  up(value) {
    if (!this.fine) return up(value, this.model.floor);
    return `1/K + ${tiny(Math.max(value - this.model.floor, NOTHING), Math.ceil)}`;
  }

  /** The vertical axis: how values are placed on it, its range and its ticks. */
  axis() {
    const { clean, upper_bound: bound } = this.result;
    const { floor } = this.model;
    if (!this.fine) {
      const range = Math.max(bound - clean, LEAST_RANGE);
      const y = [Math.max(0, clean - 0.12 * range), Math.min(1, bound + 0.3 * range)];
      return { place: (value) => value, y, up: ticks(...y, 5), yName: "confidence" };
    }
    const excess = (value) => Math.log10(Math.max(value - floor, NOTHING));
    const top = excess(bound);
    const low = Math.max(excess(clean), top - DECADES);
    const place = (value) => Math.max(low, excess(value));
    const y = [low - 0.12 * (top - low), top + 0.3 * Math.max(top - low, 0.5)];
    const whole = ticks(...y, 6).filter(({ value }) => Number.isInteger(value));
    return { place, y, up: whole.map(({ value }) => ({ value, text: power(value) })), yName: "confidence − 1/K" };
  }

  paint(chart) {
    if (!this.result) return [];
    const { confidence, clean, upper_bound: bound, found } = this.result;
    const { place, y, up: levels, yName } = this.axis();
    const last = Math.max(1, confidence.length - 1);
    const plane = chart.plane({ x: [0, last], y });
    plane.above([0, last], [place(bound), place(bound)], chart.fill);
    const across = ticks(0, last, 6).filter(({ value }) => Number.isInteger(value));
    plane.axes({ across, up: levels, xName: "step", yName });
    plane.level(place(clean), "clean");
    plane.level(place(bound), "bound");
    const steps = confidence.slice(0, Math.max(1, Math.ceil(this.share * confidence.length))).map((_, step) => step);
    const heights = steps.map((step) => place(confidence[step]));
    plane.line(steps, heights, "attacked");
    plane.dot(steps.at(-1), heights.at(-1), "attacked");
    const ends = `from ${this.near(clean)} to ${this.near(found)}`;
    chart.describe(`The attack climbs ${ends}, below the bound ${this.up(bound)}.`);
    const text = (step) => `step ${step}: ${this.near(confidence[step])} found, bound ${this.up(bound)}`;
    return steps.map((x) => ({ x, y: heights[x], text: text(x) }));
  }
}
