// At which point the service decides: how much it accepts, what the discriminator may spend, and what is proved there.

import { byId } from "./elements.js";
import { short } from "./format.js";

/** Sentences about the threshold; none where the model has none. `price` has an entry for each radius measured. */
export function point({ threshold, accept, provable, price }) {
  if (threshold === null) return [];
  const said = [];
  if (accept !== null) said.push(`The threshold accepts ${percent(accept)} of its own kind.`);
  if (provable === 0) said.push("The discriminator has no gate of its own.");
  if (provable > 0) said.push(`The discriminator alone may spend ${percent(provable)} of the false rejections.`);
  for (const { eps, rejected, attacked, proved, sets } of price) {
    const kinds = sets === 1 ? "one set" : `${sets} sets`;
    const sure = `${percent(proved)} provably, whatever changes by up to ε = ${short(eps)}`;
    const under = (attacked ?? null) === null ? "" : `${percent(attacked)} under attack, `;
    said.push(`Its evaluations on ${kinds} of other images: ${percent(rejected)} rejected, ${under}${sure}.`);
  }
  if (!price.length) said.push("What is provably rejected at this threshold was not evaluated.");
  return said;
}

export function showPoint(model) {
  const said = point(model).join(" ");
  byId("point").textContent = said;
  byId("point").hidden = said === "";
}

function percent(share) {
  return `${Number((100 * share).toFixed(1))}%`;
}
