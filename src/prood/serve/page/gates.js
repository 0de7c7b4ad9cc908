// The two gates of an image, the discriminator's and the confidence's: which one rejects it, and what is proved.

import { byId, element } from "./elements.js";
import { near, radius } from "./format.js";

/** Name and words of each gate. `reach` is the certified radius; negative: there is none, undefined: not known yet. */
export function gates({ accepted, reason, confidence, p_in: inside }, { threshold, p_in_threshold: least }, reach) {
  if (accepted === null) return [];
  const says = (value, needed, verdict) => `${near(value)}, needs ${near(needed)}: ${verdict}`;
  const byG = reason === "discriminator" ? `rejects${proved(reach)}` : "passes";
  const byConfidence = reason === "confidence" ? "rejects, which no proof covers" : "passes";
  return [
    ["Discriminator, p(in)", says(inside, least, byG)],
    ["Confidence", reason === "discriminator" ? "no longer asked" : says(confidence, threshold, byConfidence)],
  ];
}

function proved(reach) {
  if (reach === undefined) return "";
  return reach < 0 ? ", not provably" : `, provably up to ε = ${radius(reach)}`;
}

export function showGates(answer, model, reach) {
  const entries = gates(answer, model, reach).map(([name, words]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, words)),
  );
  byId("gates").replaceChildren(...entries);
}
