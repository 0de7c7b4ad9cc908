// The answer: accepted or rejected, why, and the most probable classes.

import { byId, drawn, element, say } from "./elements.js";
import { near } from "./format.js";
import { showGates } from "./gates.js";
import { fill } from "./parts.js";

const MOST = 5; // classes shown
const UNSURE = 0.005; // above 1/K: there is hardly a most probable class
const ICONS = { accepted: "M5 12.5l4.5 4.5L19 7.5", rejected: "M6.5 6.5l11 11M17.5 6.5l-11 11", open: "M6 12h12" };

export function showAnswer(answer, model) {
  const kind = answer.accepted === null ? "open" : answer.accepted ? "accepted" : "rejected";
  const [verb, name] = words(kind, answer, model);
  const icon = drawn("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, drawn("path", { d: ICONS[kind] }));
  const verdict = byId("verdict");
  verdict.className = `verdict ${kind}`;
  verdict.replaceChildren(icon, element("span", {}, verb, element("strong", {}, name)));
  explain(answer, model);
  showGates(answer, model);
  showNumbers(answer, model);
  showBars(answer.probabilities, model.classes);
  fill("answer");
}

function words(kind, { confidence, name }, { floor }) {
  if (kind === "accepted") return ["Accepted as ", name];
  if (kind === "rejected") return ["Rejected", ""];
  return confidence - floor < UNSURE ? ["Looks like nothing it knows", ""] : ["Looks most like ", name];
}

function explain(answer, model) {
  const why = say(byId("why"));
  if (answer.accepted === null) why`It has no threshold to reject by. “prood serve --threshold 0.5” would set one.`;
  else if (answer.accepted) why`Its confidence reaches the threshold, ${near(model.threshold)}.`;
  else if (answer.reason === "confidence") {
    why`“I don’t know”: its confidence is below the threshold, ${near(model.threshold)}.`;
  } else {
    why`“I don’t know”: the discriminator rejects it, whatever the classifier says.`;
  }
  if (answer.accepted !== null && model.accept !== null) byId("why").append(` ${rate(model)}`);
}

/** What is known of the threshold: how many images of the right kind pass; a level, where that is guaranteed. */
function rate({ accept, level }) {
  const percent = (share) => `${Number((100 * share).toPrecision(6))}%`;
  const [least, sure] = level === null ? ["About", ""] : ["At least", `, with ${percent(level)} certainty`];
  return `${least} ${percent(accept)} of the images of its own kind are accepted${sure}.`;
}

function showNumbers(answer, model) {
  const facts = [
    ["confidence", near(answer.confidence), "The probability of the most probable class"],
    ["p(in)", near(answer.p_in), "How probable it is, to the discriminator, that the image is of the kind it knows"],
  ];
  if (answer.p_value !== null) {
    facts.push(["p-value", near(answer.p_value), "Of the hypothesis that the image is of the kind it knows"]);
  }
  facts.push(["a guess", near(model.floor), "1/K: no confidence is lower, all classes are equally probable"]);
  const entries = facts.map(([name, value, about]) =>
    element("div", { title: about }, element("dt", {}, name), element("dd", {}, value)),
  );
  byId("numbers").replaceChildren(...entries);
}

function showBars(probabilities, classes) {
  const order = probabilities.map((_, label) => label).sort((a, b) => probabilities[b] - probabilities[a]);
  const entries = order.slice(0, MOST).map((label) => bar(classes[label], probabilities[label]));
  const rest = order.slice(MOST);
  if (rest.length) {
    const sum = rest.reduce((total, label) => total + probabilities[label], 0);
    entries.push(bar(`${rest.length} more`, sum, "rest"));
  }
  byId("bars").replaceChildren(...entries);
}

function bar(name, share, kind = "") {
  const fill = element("span", { class: "fill" });
  fill.style.width = `${100 * Math.min(1, share)}%`; // by the object model, which the content policy allows
  const track = element("span", { class: "track", "aria-hidden": "true" }, fill);
  const label = element("span", { class: "name", title: name }, name);
  return element("li", { class: kind }, label, track, element("b", {}, near(share)));
}
