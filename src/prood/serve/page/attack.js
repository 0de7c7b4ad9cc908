// The attack: the same search against the classifier alone and against the guarded model, shown as it climbs.

import { follow } from "./api.js";
import { byId, complain } from "./elements.js";
import { Duel } from "./duel.js";
import { said, short, up } from "./format.js";

const TARGETS = { classifier: "the classifier alone", guarded: "the guarded model" };

export class Attack {
  /** `proof` gives the ε, and gets a dot for what was found. */
  constructor(model, proof) {
    Object.assign(this, { model, proof, image: null, running: null });
    this.duel = new Duel(model);
    byId("attack").addEventListener("click", () => this.run());
    byId("attack-stop").addEventListener("click", () => this.stop());
  }

  /** Another image: what was found for the last one goes. Without one there is nothing to attack. */
  use(image) {
    this.stop();
    this.image = image;
    byId("attack").setAttribute("aria-disabled", !image);
    this.say("");
    byId("attack-body").hidden = true;
    complain("attack-problem", null);
  }

  /** What was found until now stays. */
  stop() {
    this.running?.abort();
    if (this.running) this.end("Stopped.");
  }

  /** Resolved where no attack runs. */
  get idle() {
    return this.running ? new Promise((resolve) => (this.freed = resolve)) : Promise.resolve();
  }

  async run() {
    if (byId("attack").getAttribute("aria-disabled") === "true") return;
    const { eps } = this.proof.chosen;
    complain("attack-problem", null);
    if (eps === 0) return this.say("With ε = 0 nothing may be changed. Choose a larger ε.");
    const running = (this.running = new AbortController());
    this.begin(eps);
    try {
      for (const on of Object.keys(TARGETS)) {
        const result = await follow("v1/attack", this.image, { eps, on }, running.signal, (event) => {
          if (!running.signal.aborted) this.follow(on, event);
        });
        await this.duel.present(on, result, running.signal);
        if (on === "guarded") this.proof.add(eps, result.found);
      }
      this.end(this.summary(eps));
    } catch (error) {
      if (running.signal.aborted) return;
      this.end("");
      complain("attack-problem", error, () => this.run());
    }
  }

  begin(eps) {
    const back = document.activeElement === byId("attack");
    byId("attack").hidden = true;
    byId("attack-stop").hidden = false;
    if (back) byId("attack-stop").focus();
    byId("attack-body").hidden = false;
    this.duel.begin();
    this.say(`Searching within ε = ${short(eps)} …`, true);
  }

  follow(on, event) {
    if (event.steps) this.steps = event.steps;
    this.duel.follow(on, event);
    const progress = byId("attack-progress");
    if (event.step === undefined) return progress.removeAttribute("value"); // nobody knows how long a bound takes
    const half = on === "guarded" ? 1 : 0;
    progress.value = (half + event.step / Math.max(1, this.steps)) / 2;
    this.say(`Attacking ${TARGETS[on]}: step ${event.step} of at most ${this.steps}`, true);
  }

  end(text) {
    const back = document.activeElement === byId("attack-stop");
    this.running = null;
    this.freed?.();
    byId("attack-stop").hidden = true;
    byId("attack").hidden = false;
    if (back) byId("attack").focus();
    this.say(text);
  }

  summary(eps) {
    const { classifier, guarded } = this.duel.results;
    const bound = up(guarded.upper_bound, this.model.floor);
    const [alone, held] = [said(classifier.found), said(guarded.found)];
    const got = `the classifier alone is driven to ${alone}, the guarded model to ${held}`;
    const late = [classifier, guarded].some(({ ended }) => ended === "time") ? " The time was over early." : "";
    return `Within ε = ${short(eps)}, ${got}. The proof allows the guarded one ${bound}, whatever the attack.${late}`;
  }

  say(text, busy = false) {
    byId("attack-status").textContent = text;
    byId("attack-status").classList.toggle("busy", busy);
    byId("attack-progress").hidden = !busy;
  }
}
