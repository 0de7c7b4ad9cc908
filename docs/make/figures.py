"""The figures of the site: functions of Prood itself, and what measure.py measured with the model that ships."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawing import plot

from prood.models import fuse
from prood.report.markup import Axis, Chart, nice_ticks

MEASURED = Path(__file__).parent.parent / "assets" / "measured.json"
SIZE = (700, 300)
STRICT = 0.6  # a threshold at which something can be proven of the image that is shown
PERCENT = {0.0: "0", 0.2: "0.2", 0.4: "0.4", 0.6: "0.6", 0.8: "0.8", 1.0: "1"}


def fused(p: float, g: np.ndarray[Any, Any], classes: int = 10) -> np.ndarray[Any, Any]:
    """max p(y|x) of Eq. 3 for a classifier that gives one class the probability p, and the others equal shares."""
    rest = (1 - p) / (classes - 1)
    logits = torch.tensor([p, *[max(rest, 1e-300)] * (classes - 1)], dtype=torch.float64).log()
    joint = fuse(logits.expand(len(g), -1), torch.from_numpy(g))
    return np.asarray(joint.exp().max(1).values / classes)


def fusion() -> str:
    g = np.linspace(-8, 8, 161)
    chart = Chart(
        "The confidence of the joint model over g + shift, for classifiers that are more and less sure",
        x=Axis(-8, 8, nice_ticks(-8, 8, 9), "g(x) + Δ, the logit of p(in | x)"),
        y=Axis(0, 1.02, {0.1: "1/K", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1.0: "1"}, "confidence"),
        size=SIZE,
    )
    shown = {"violet dashed": 1.0, "blue": 0.9, "green": 0.6, "orange": 0.3}
    for kind, p in shown.items():
        chart.line(g, fused(p, g), kind)
    cap = "p_f = 1: what no classifier exceeds, the certificate"
    return plot(chart, {kind: cap if p == 1 else f"p_f = {p:g}" for kind, p in shown.items()})


def shift() -> str:
    g = np.linspace(-8, 4, 121)
    chart = Chart(
        "The cap of the confidence over the bound of g, for four shifts",
        x=Axis(-8, 4, nice_ticks(-8, 4, 7), "ḡ(x), the certified bound of g in the ball"),
        y=Axis(0, 1.02, {0.1: "1/K", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1.0: "1"}, "proven: confidence at most"),
        size=SIZE,
    )
    shown = {"blue": 0.0, "green": 1.0, "orange": 3.0, "violet": 6.0}
    for kind, delta in shown.items():
        chart.line(g, fused(1.0, g + delta), kind)
    return plot(chart, {kind: f"Δ = {delta:g}" for kind, delta in shown.items()}, columns=4)


def ball(found: dict[str, Any]) -> str:
    radii, threshold = found["ball"]["eps"], found["threshold"]
    chart = Chart(
        "Certified bounds of the confidence of one image over the radius, above what an attack reaches",
        x=Axis(0, radii[-1], nice_ticks(0, radii[-1], 8), "radius ε of the ball"),
        y=Axis(0, 1.02, PERCENT, "confidence"),
        size=SIZE,
    )
    legend = {
        "violet dotted": ("ibp", "certified, intervals"),
        "violet dashed": ("crown-ibp", "certified, linear bound"),
        "violet": ("alpha-crown", "certified, α-CROWN"),
        "orange": ("attacked", "the highest that an attack found"),
    }
    for kind, (key, _) in legend.items():
        chart.line(radii, found["ball"][key], kind)
    chart.line([0, radii[-1]], [STRICT] * 2, "grey")
    chart.line([0, radii[-1]], [threshold] * 2, "grey dotted")
    texts = {kind: text for kind, (_, text) in legend.items()}
    texts |= {"grey": f"a threshold that {accepted(found, STRICT):.0%} of CIFAR-10 pass"}
    return plot(chart, texts | {"grey dotted": "the shipped one, which 95% pass"})


def accepted(found: dict[str, Any], threshold: float) -> float:
    """The share of the in-distribution images that were measured whose confidence reaches the threshold."""
    scores = np.asarray(found["scores"]["inside"])
    return float((0.9 / (1 + np.exp(-scores)) + 0.1 >= threshold).mean())


def lines(found: dict[str, Any]) -> str:
    drawn = found["lines"]
    chart = Chart(
        "The confidence along straight ways through a ball, all of them below the certified bound",
        x=Axis(-drawn["eps"], drawn["eps"], {-0.01: "−ε", 0.0: "x", 0.01: "ε"}, "a way through the ball, ε = 0.01"),
        y=Axis(0, _ceiling(drawn["upper_bound"]), nice_ticks(0, _ceiling(drawn["upper_bound"])), "confidence"),
        size=SIZE,
    )
    for one in drawn["random"]:
        chart.line(drawn["along"], one, "blue thin")
    chart.line(drawn["along"], drawn["attack"], "orange")
    chart.line([-drawn["eps"], drawn["eps"]], [drawn["upper_bound"]] * 2, "violet")
    legend = {"blue thin": f"{len(drawn['random'])} random corners", "orange": "towards what an attack found"}
    return plot(chart, legend | {"violet": "certified bound of the whole ball"})


def _ceiling(value: float) -> float:
    return min(1.0, np.ceil(12 * value) / 10)


def scores(found: dict[str, Any]) -> str:
    drawn = found["scores"]
    values = {key: np.asarray(drawn[key]) for key in ("inside", "outside", "certified")}
    low, high = -14.0, 6.0
    edges = np.linspace(low, high, 41)
    shares = {key: np.histogram(one.clip(low, high), edges)[0] / len(one) for key, one in values.items()}
    top = max(float(share.max()) for share in shares.values())
    chart = Chart(
        "Histograms of the scores of both distributions, and of the certified scores",
        x=Axis(low, high, nice_ticks(low, high, 11), "score, log((c − 1/K)/(1 − c)) of the confidence c"),
        y=Axis(0, 1.05 * top, {share: f"{100 * share:g}%" for share in nice_ticks(0, top)}, "share of the images"),
        size=SIZE,
    )
    kinds = {"inside": "blue", "outside": "orange", "certified": "violet"}
    for key, kind in kinds.items():
        chart.steps(edges, shares[key], kind)
    texts = (
        f"{len(values['inside'])} of CIFAR-10, in-distribution",
        f"{len(values['outside'])} of SVHN: AUC {100 * drawn['auc']:.1f}",
        f"the same, at most, in their balls: GAUC {100 * drawn['gauc']:.1f}",
    )
    return plot(chart, dict(zip(kinds.values(), texts, strict=True)))


def drawn() -> dict[str, str]:
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    return {"fusion": fusion(), "shift": shift(), "ball": ball(found), "lines": lines(found), "scores": scores(found)}
