"""The plane of a verdict: the confidence score S across, g + Δ up, with both gates at one threshold."""

import json
import re
from pathlib import Path

import numpy as np
import torch
from drawing import plot

from prood.models import Gate
from prood.report.markup import Axis, Chart, Html, element

DOCS = Path(__file__).parent.parent
RESULTS = DOCS / "assets" / "verdicts.json"
TABLE = re.compile(r"(?<=<!-- made of docs/assets/verdicts.json -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
SIZE = (700, 430)
LOW, HIGH = -8.0, 8.0
GATE = Gate((-6.0, 2.0, 6.0), (-9.0, -2.0, 5.5))
THRESHOLD = -1.0
IMAGES = {
    "A": (-5.0, -4.0, -0.4),
    "B": (0.4, 1.0, 2.0),
    "C": (-2.8, 0.6, 4.6),
    "D": (-5.4, 4.6, 6.6),
    "E": (3.2, 5.6, 7.0),
}
"""S, G and the bound Ḡ of G over the ball of each; the gates decide what is proved."""
WORDS = {
    "accepted": (1.2, 7.2),
    "rejected by the confidence": (-7.7, 7.2),
    "rejected by the discriminator": (-7.7, 1.7),
    "no image: S ≤ G": (3.2, -4.5),
}
STYLE = Html(".fill-blue{fill:var(--blue)}.fill-grey{fill:var(--grey)}.dot{fill:var(--ink)}")


def drawn() -> dict[str, str]:
    gate = GATE.inverse(THRESHOLD)
    chart = Chart(
        "The plane of the confidence score and g, with both gates, the region that is accepted, and five images",
        x=Axis(LOW, HIGH, {THRESHOLD: "t"}, "S, the score of the confidence"),
        y=Axis(LOW, HIGH, {THRESHOLD: "t", gate: "λ⁻¹(t)"}, "G = g + Δ"),
        size=SIZE,
    )
    chart.marks.append(element("style", STYLE))
    chart.band([THRESHOLD, gate, HIGH], [gate, gate, HIGH], [HIGH, HIGH, HIGH], "fill-blue")
    chart.band([LOW, gate], [LOW, gate], [gate] * 2, "fill-violet")
    chart.band([LOW, HIGH], [LOW, LOW], [LOW, HIGH], "fill-grey")
    chart.line([LOW, THRESHOLD], [THRESHOLD] * 2, "grey dotted")
    meeting = np.linspace(GATE.inverse(LOW), HIGH, 65)
    chart.line(GATE(torch.from_numpy(meeting)).numpy(), meeting, "grey dashed")
    chart.line([LOW, gate], [gate] * 2, "blue")
    chart.line([THRESHOLD] * 2, [THRESHOLD, HIGH], "green")
    for name, (score, g, bound) in IMAGES.items():
        if score < THRESHOLD or g < gate:  # rejected: there is something to prove
            chart.line([score] * 2, [g, bound], "violet" if bound < gate else "orange")
        chart.dots([score], [g], "image", [name])
        _text(chart, name, score + 0.2, g - 0.25, "head")
    for text, (x, y) in WORDS.items():
        _text(chart, text, x, y, "ink")
    legend = {
        "blue": "the gate of g: G ≥ λ⁻¹(t)",
        "green": "the gate of the confidence: S ≥ t",
        "violet": "G up to Ḡ, below the gate of g: proved",
        "orange": "G up to Ḡ, not below the gate of g: not proved",
        "grey dashed": "where the gates of other thresholds meet",
        "grey dotted": "the gate of g without λ: G ≥ t",
    }
    return {"verdict": plot(chart, legend)}


def _text(chart: Chart, text: str, x: float, y: float, kind: str) -> None:
    chart.marks.append(element("text", text, x=f"{chart.across(x):.1f}", y=f"{chart.up(y):.1f}", class_=kind))


def page() -> str:
    """docs/verdict.md with the table of what the gates of the shipped models cost and prove on test images."""
    text = (DOCS / "verdict.md").read_text(encoding="utf-8")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    heads = [
        "model",
        "rule",
        "bound",
        "AUC / GAUC",
        *(f"{100 * share:.0f}% accepted" for share in found[0]["accepted"]),
    ]
    lines = [heads, ["---"] * len(heads)]
    for model in found:
        for rule in model["rules"]:
            one = rule["sets"]["mean"]
            rates = [f"{100 * (1 - a):.1f} / {100 * (1 - b):.1f}" for a, b in zip(one["fpr"], one["gfpr"], strict=True)]
            bound = f"{rule['bound']}, {rule['images']:,} images"
            lines.append(
                [f"`{model['model']}`", rule["rule"], bound, f"{100 * one['auc']:.1f} / {100 * one['gauc']:.1f}"]
            )
            lines[-1] += rates
    return TABLE.sub("\n".join(f"| {' | '.join(cells)} |" for cells in lines), text)
