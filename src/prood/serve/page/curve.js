// The bound over ε of one image, as far as it is known: the radius that is looked at comes first, the others later.

import { post } from "./api.js";

const USUAL = 0.03138; // 8/255, rounded up: the radius that most is published about
const STEPS = { 1: 25, 2: 20, 3: 30, 4: 20, 5: 25, 6: 30, 8: 20, 10: 25 };

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

export class Curve {
  constructor(eps, image, { limits, threshold }) {
    Object.assign(this, { eps, image, most: limits.radii, threshold });
    this.known = new Map();
    this.proven = new Map();
    this.radius = -1; // that of the certificate; −1: there is none
  }

  /** Ask for one radius, and for the largest, which holds for all of them. */
  async begin(at, signal) {
    await this.ask([...new Set([this.eps[at], this.eps.at(-1)])], signal);
  }

  async complete(signal) {
    const missing = this.eps.filter((eps) => !this.known.has(eps));
    for (let start = 0; start < missing.length; start += this.most) {
      await this.ask(missing.slice(start, start + this.most), signal, { radius: false }); // it is known by now
    }
  }

  get whole() {
    return this.known.size === this.eps.length;
  }

  /** What is proven at the radius number `at`: what holds for a ball holds for the smaller ones inside. */
  bound(at) {
    return Math.min(...this.eps.slice(at).map((eps) => this.known.get(eps) ?? Infinity));
  }

  /** Whether all images in that ball are provably rejected; null without a threshold. */
  rejected(at) {
    return this.threshold === null ? null : this.eps.slice(at).some((eps) => this.proven.get(eps));
  }

  async ask(eps, signal, options = {}) {
    const { certificates } = await post("v1/certify", this.image, { eps: eps.join(","), ...options }, signal);
    const [{ upper_bound: bounds, rejected, radius, ...answer }] = certificates;
    eps.forEach((one, place) => {
      this.known.set(one, bounds[place]);
      this.proven.set(one, rejected[place]);
    });
    this.radius = Math.max(this.radius, radius ?? -1);
    const { confidence, p_in, accepted, reason } = answer;
    Object.assign(this, { confidence, p_in, accepted, reason });
  }
}
