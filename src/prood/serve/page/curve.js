// The bound over ε of one image, as far as it is known: the radius that is looked at comes first, then coarse to fine.

import { post } from "./api.js";

const USUAL = 0.03138; // 8/255, rounded up: the radius that most is published about
const STEPS = { 1: 25, 2: 20, 3: 30, 4: 20, 5: 25, 6: 30, 8: 20, 10: 25 };
const AT_ONCE = 4; // radii of a request: few enough that the curve is seen to grow

/** Radii from 0 to a round number of at least twice the model's own; that and the usual one are among them. */
export function radii(own) {
  const reach = Math.min(1, Math.max(2 * own, USUAL));
  const power = 10 ** Math.floor(Math.log10(reach) + 1e-9);
  const lead = Object.keys(STEPS).map(Number).find((digit) => digit * power >= reach - 1e-9);
  const even = Array.from({ length: STEPS[lead] + 1 }, (_, place) => (place * lead * power) / STEPS[lead]);
  // Four digits: what is shown is exactly what was asked for.
  const rounded = [...even, own, USUAL].map((eps) => Number(eps.toPrecision(4)));
  return [...new Set(rounded)].filter((eps) => eps <= rounded[STEPS[lead]]).sort((a, b) => a - b);
}

/** All places from 0 to `last`: both ends, then what lies in the middle of those before, and so on. */
export function coarse(last) {
  const found = new Set([last, 0]);
  for (let step = last; step > 1; step = Math.ceil(step / 2)) {
    for (let at = step; at < last; at += step) found.add(at);
  }
  for (let at = 1; at < last; at += 1) found.add(at);
  return [...found];
}

export class Curve {
  constructor(eps, image, { limits, threshold, ceiling }) {
    Object.assign(this, { eps, image, most: Math.min(AT_ONCE, limits.radii), threshold, ceiling });
    this.known = new Map();
    this.proven = new Map();
    this.searched = -1; // the certified radius, where it was searched; −1: there is none
  }

  /** Ask for one radius. */
  begin(at, signal) {
    return this.ask([this.eps[at]], signal, { radius: false });
  }

  /** Ask for the others: those that `wanted()` names first. `told()` hears of each part, and may hold up the next. */
  async complete(wanted, told, signal) {
    const order = coarse(this.eps.length - 1);
    while (!this.whole) {
      const next = [wanted(), ...order].filter((at) => !this.known.has(this.eps[at]));
      await this.ask([...new Set(next)].slice(0, this.most).map((at) => this.eps[at]), signal, { radius: false });
      await told();
    }
    if (this.reason !== "discriminator") return; // no rejection to prove
    await this.ask([this.eps[wanted()]], signal);
    await told();
  }

  get whole() {
    return this.known.size === this.eps.length;
  }

  /** What is proven at the radius number `at`: what holds for a ball holds for the smaller ones inside. */
  limit(at) {
    return Math.min(this.ceiling, ...this.eps.slice(at).map((eps) => this.known.get(eps) ?? Infinity));
  }

  /** The same; where nothing may be changed, there is only the image itself. */
  bound(at) {
    return this.eps[at] === 0 ? Math.min(this.confidence, this.limit(at)) : this.limit(at);
  }

  computing(at) {
    return !this.whole && this.eps[at] > 0 && !this.known.has(this.eps[at]);
  }

  /** Up to which radius rejection is known to be proven; −1: up to none. */
  get radius() {
    return Math.max(this.searched, ...this.eps.map((eps) => (this.proven.get(eps) ? eps : -1)));
  }

  /** Whether all images in that ball are provably rejected; null without a threshold. */
  rejected(at) {
    return this.threshold === null ? null : this.eps.slice(at).some((eps) => this.proven.get(eps));
  }

  /** Corners of what is drawn. Between two radii that are known, what holds at the larger one holds. */
  corners() {
    if (this.whole) return this.eps.map((eps, at) => [eps, this.limit(at)]);
    return this.eps.slice(1).flatMap((eps, at) => [
      [this.eps[at], this.limit(at + 1)],
      [eps, this.limit(at + 1)],
    ]);
  }

  async ask(eps, signal, options = {}) {
    const { certificates } = await post("v1/certify", this.image, { eps: eps.join(","), watch: false, ...options }, signal);
    const [{ upper_bound: bounds, rejected, radius, ...answer }] = certificates;
    eps.forEach((one, place) => {
      this.known.set(one, bounds[place]);
      this.proven.set(one, rejected[place]);
    });
    this.searched = Math.max(this.searched, radius ?? -1);
    const { confidence, p_in, accepted, reason } = answer;
    Object.assign(this, { confidence, p_in, accepted, reason });
  }
}
