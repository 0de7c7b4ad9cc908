// Two attacks side by side: how they climb, what each of them found, and what it changed.

import { Chart } from "./chart.js";
import { byId, element, legend } from "./elements.js";
import { near, plain, short, ticks, up } from "./format.js";
import { change, show } from "./picture.js";

const TARGETS = ["classifier", "guarded"];
const KINDS = { classifier: "fooled", guarded: "attacked" };

export class Duel {
  constructor(model) {
    this.model = model;
    this.results = {};
    const label = "Highest confidence found by the attacks, over their steps";
    this.chart = new Chart(byId("attack-chart"), { label, height: 250, paint: (chart) => this.paint(chart) });
  }

  begin() {
    Object.assign(this, { steps: 1, bound: null, results: {}, traces: { classifier: [], guarded: [] } });
    for (const on of TARGETS) {
      byId(`${on}-pictures`).hidden = true;
      this.say(on, "", "Not attacked yet.", "");
    }
    this.explain();
    this.chart.update();
  }

  /** A step, or what is known before the first one. */
  follow(on, { steps, step, confidence, name, accepted, upper_bound: bound }) {
    if (steps) this.steps = Math.max(1, steps);
    if (bound !== undefined && bound !== null) this.bound = bound;
    if (step !== undefined) {
      this.traces[on].push(confidence);
      this.judge(on, { found: confidence, clean: this.traces[on][0], name, accepted, upper_bound: this.bound });
    }
    this.explain();
    this.chart.update();
  }

  /** All that was found, with pictures. */
  async present(on, result, signal) {
    this.results[on] = result;
    if (!this.traces[on].length) this.traces[on] = result.confidence;
    const [original, attacked] = [byId(`${on}-original`), byId(`${on}-attacked`)];
    original.src = result.original;
    attacked.src = result.image;
    const changed = await change(original, attacked, result.eps);
    signal.throwIfAborted();
    show(byId(`${on}-change`), changed);
    byId(`${on}-note`).textContent = `change, ±${short(result.eps)}`;
    byId(`${on}-pictures`).hidden = false;
    this.judge(on, result);
    this.chart.update();
  }

  /** What the attack has come to, in a word and in a sentence. */
  judge(on, { found, clean, name, accepted, upper_bound: bound, threshold }) {
    const { floor } = this.model;
    const before = clean === found ? "The attack changed nothing." : `Before the attack: ${near(clean)}.`;
    const now = `${plain(found, floor)}. ${before}`;
    const sentence = now[0].toUpperCase() + now.slice(1);
    if (on === "classifier") {
      const level = threshold ? ` It accepts from ${near(threshold)} on.` : "";
      if (accepted === null) return this.say(on, found > 0.5 ? "bad" : "", `It says ${name}`, sentence);
      const words = accepted ? `Fooled: accepted as ${name}` : "Rejected";
      return this.say(on, accepted ? "bad" : "good", words, sentence + level);
    }
    const proof = bound === null ? "" : ` Proven: no attack gets it above ${up(bound, floor)}.`;
    const words = accepted === null ? `It says ${name}` : accepted ? `Accepted as ${name}` : "Holds: rejected";
    this.say(on, accepted ? "bad" : accepted === false ? "good" : "", words, sentence + proof);
  }

  say(on, kind, words, sentence) {
    const place = byId(`${on}-outcome`);
    place.className = `outcome ${kind}`;
    place.replaceChildren(element("strong", {}, words), " ", element("span", {}, sentence));
  }

  explain() {
    const { bound, model } = this;
    const entries = [
      ["line fooled", "the classifier alone"],
      ["line attacked", "the guarded model"],
    ];
    if (bound !== null) {
      entries.push(["line bound", `its certified bound, ${up(bound, model.floor)}`]);
      entries.push(["hatch", "proven out of reach for it"]);
    }
    if (model.threshold !== null) entries.push(["line threshold", `the guarded model accepts from ${near(model.threshold)} on`]);
    legend("attack-legend", entries);
  }

  paint(chart) {
    const { bound, model, steps, traces } = this;
    if (!traces) return [];
    const plane = chart.plane({ x: [0, steps], y: [0, 1] });
    if (bound !== null) plane.above([0, steps], [bound, bound], chart.fill);
    const across = ticks(0, steps, 6).filter(({ value }) => Number.isInteger(value));
    plane.axes({ across, up: ticks(0, 1), xName: "step of the attack", yName: "confidence" });
    if (model.threshold !== null) plane.level(model.threshold, "threshold");
    if (bound !== null) plane.level(bound, "bound");
    for (const on of TARGETS) this.climb(plane, traces[on], KINDS[on]);
    const known = TARGETS.filter((on) => traces[on].length);
    const ends = known.map((on) => `${on}: from ${near(traces[on][0])} to ${near(traces[on].at(-1))}`);
    chart.describe(`The attacks on the classifier alone and on the guarded model. ${ends.join("; ")}.`);
    const longest = TARGETS.map((on) => traces[on]).reduce((a, b) => (b.length >= a.length ? b : a));
    return longest.map((y, step) => ({ x: step, y, text: this.reading(step) }));
  }

  climb(plane, trace, kind) {
    if (!trace.length) return;
    plane.line([...trace.keys()], trace, kind);
    plane.dot(trace.length - 1, trace.at(-1), kind);
  }

  reading(step) {
    const at = (trace) => (trace.length ? near(trace[Math.min(step, trace.length - 1)]) : "–");
    const { classifier, guarded } = this.traces;
    return `step ${step}: the classifier alone ${at(classifier)}, guarded ${at(guarded)}`;
  }
}
