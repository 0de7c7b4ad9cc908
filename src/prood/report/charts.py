"""The figures of the page: score histograms, ROC curves, what is left of the AUC as the radius grows, and pictures."""

from collections.abc import Mapping, Sequence

import numpy as np

from prood.evaluation.metrics import ACCEPT, rejected, roc, threshold
from prood.evaluation.results import Evaluation
from prood.evaluation.scores import Scores
from prood.evaluation.words import PROVED, percent, radius_text
from prood.report.markup import Axis, Chart, Floats, Html, element, nice_ticks

BINS = 48
KINDS = {"inside": "in-distribution", "clean": "clean", "attacked": "attacked", "certified": "certified"}
SHARES = {0: "0", 0.01: "1%", 0.05: "5%", 0.1: "10%", 0.2: "20%", 0.4: "40%", 0.7: "70%", 1: "100%"}
ACCEPTED = {share: f"{100 * share:g}" for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)}
UNIT = {0.0: "0", 0.25: "25", 0.5: "50", 0.75: "75", 1.0: "100"}


def figure(caption: str, chart: Chart, *notes: str) -> Html:
    words = element("figcaption", element("strong", caption), *(element("small", note) for note in notes))
    return element("figure", words, chart.svg(), class_="chart")


def certified(evaluation: Evaluation) -> float:
    """The share of images that have a finite bound. Without scores at hand, a GAUC of 0 reads as none."""
    if evaluation.scores is None:
        return float(evaluation.gauc > 0)
    return float((evaluation.scores.certified < np.inf).mean())


def summary(evaluation: Evaluation) -> tuple[str, str]:
    """Two lines, such as 'AUC 99.1 · AAUC 93.0' and 'GAUC 88.2': what was measured, and what is proved."""
    attacked = "" if evaluation.aauc is None else f" · AAUC {percent(evaluation.aauc)}"
    share = certified(evaluation)
    partly = f" · {percent(share)}% certified" if evaluation.scores is not None and share < 1 else ""
    proved = f"GAUC {percent(evaluation.gauc)}{partly}" if share else "no certificate"
    return f"AUC {percent(evaluation.auc)}{attacked}", proved


def histogram(evaluation: Evaluation, outside: str) -> Html | None:
    """Shares of images by score, on the model's own scale between the 0.5% and the 99.5% quantile of all scores.

    What lies beyond is counted in the outermost bins. Heights grow with the square root of the share, so that a
    distribution that is spread out is seen beside one that saturates in a single bin.
    """
    scores = evaluation.scores
    if scores is None:
        return None
    drawn = {name: values for name in KINDS if (values := getattr(scores, name)) is not None}
    drawn["certified"] = drawn["certified"][drawn["certified"] < np.inf]
    drawn = {name: values for name, values in drawn.items() if len(values)}
    finite = [values[np.isfinite(values)] for values in drawn.values()]
    ends = [np.quantile(values, (0.005, 0.995)) for values in finite if len(values)] or [np.zeros(2)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    margin = 0.02 * (high - low) or 1.0
    edges = np.linspace(low - margin, high + margin, BINS + 1)
    shares = {
        name: np.histogram(values.clip(edges[0], edges[-1]), edges)[0] / len(getattr(scores, name))
        for name, values in drawn.items()
    }
    top = max(share.max() for share in shares.values())
    heights = {share**0.5: text for share, text in SHARES.items() if share <= top * 1.05}
    x = Axis(edges[0], edges[-1], nice_ticks(edges[0], edges[-1]))
    y = Axis(0, 1.05 * top**0.5, _apart(heights, 0.09 * top**0.5))
    label = f"Histogram of the scores of {evaluation.model} on {outside} at ε = {radius_text(evaluation.eps)}: "
    chart = Chart(label + " · ".join(summary(evaluation)), x, y, size=(240, 150))
    for name, share in shares.items():
        chart.steps(edges, np.sqrt(share), name, f"{KINDS[name]} scores")
    passed = float(np.clip(threshold(scores.inside), edges[0], edges[-1]))
    chart.upright(passed, "threshold", "95% of the in-distribution lie on this line or to the right of it")
    return figure(evaluation.model, chart, *summary(evaluation))


def roc_curves(evaluations: Sequence[Evaluation], outside: str, colours: Mapping[str, str]) -> Html | None:
    """True over false positive rate of all models: clean (solid), attacked (dashed) and guaranteed (dotted)."""
    shown = _scored(evaluations)
    if not shown:
        return None
    label = f"ROC curves on {outside} {_of(shown)}"
    x = Axis(-0.015, 1.015, UNIT, "out-distribution accepted, %")
    y = Axis(0, 1.015, UNIT, "in-distribution accepted, %")
    chart = Chart(label, x, y, size=(280, 250))
    for item, scores in shown:
        areas = {"clean": item.auc, "attacked": item.aauc, "guaranteed": item.gauc}
        for kind, values in _drawn(item, scores).items():
            false, true = roc(scores.inside, values)
            tip = f"{item.model}, {kind}" + (f": {percent(area)}" if (area := areas[kind]) is not None else "")
            # Ties lose: the curve goes right before it goes up.
            chart.line(np.repeat(false, 2)[1:], np.repeat(true, 2)[:-1], f"{kind} {colours[item.model]}", tip)
    return figure(outside, chart)


def price_curves(evaluations: Sequence[Evaluation], outside: str, colours: Mapping[str, str]) -> Html | None:
    """The share of the out-distribution that is rejected over the share of the in-distribution that is accepted.

    Strokes as in `roc_curves`; the guaranteed line is 1 − GFPR, with a dot at each share of `PROVED`.
    """
    shown = _scored(evaluations)
    if not shown:
        return None
    label = f"Out-distribution rejected over in-distribution accepted on {outside} {_of(shown)}"
    x = Axis(0.49, 1.0, ACCEPTED, "in-distribution accepted, %")
    y = Axis(-0.015, 1.015, UNIT, "out-distribution rejected, %")
    chart = Chart(label, x, y, size=(280, 250))
    for item, scores in shown:
        kinds, colour = _drawn(item, scores), colours[item.model]
        for kind, shares in rejected(scores.inside, kinds).items():
            chart.line(ACCEPT, shares, f"{kind} {colour}", f"{item.model}, {kind}")
        if "guaranteed" in kinds:
            at = list(PROVED.values())
            (shares,) = rejected(scores.inside, {"": scores.certified}, at).values()
            tips = [
                f"{item.model}: {percent(y)}% proved at {100 * x:g}% accepted" for x, y in zip(at, shares, strict=True)
            ]
            chart.dots(at, shares, colour, tips)
    return figure(outside, chart)


def _scored(evaluations: Sequence[Evaluation]) -> list[tuple[Evaluation, Scores]]:
    return [(item, item.scores) for item in evaluations if item.scores is not None]


def _of(shown: Sequence[tuple[Evaluation, Scores]]) -> str:
    return f"at ε = {radius_text(shown[0][0].eps)} of {', '.join(item.model for item, _ in shown)}"


def _drawn(item: Evaluation, scores: Scores) -> dict[str, Floats]:
    """The scores that have a curve, by the name of its stroke."""
    kinds = {"clean": scores.clean, "attacked": scores.attacked}
    kinds |= {"guaranteed": scores.certified if certified(item) else None}
    return {kind: values for kind, values in kinds.items() if values is not None}


def over_radius(evaluations: Sequence[Evaluation], outside: str, colours: Mapping[str, str]) -> Html | None:
    """AAUC (dashed) and GAUC (dotted) over ε, from the clean AUC at 0 on; the worst case lies in the band between.

    A model without a certificate has no lower line: its band would reach down to 0. One that was not attacked has its
    clean AUC as the upper end of the band.
    """
    radii = sorted({item.eps for item in evaluations} | {0.0})
    if len(radii) < 2:
        return None
    ticks = _apart({radius: radius_text(radius) for radius in radii}, radii[-1] / 7)
    x, y = Axis(-0.04 * radii[-1], 1.04 * radii[-1], ticks, "radius ε"), Axis(0, 1.02, UNIT, "AUC, %")
    chart = Chart(f"AAUC and GAUC over the radius on {outside}", x, y, size=(280, 220))
    for model in dict.fromkeys(item.model for item in evaluations):
        items = sorted((item for item in evaluations if item.model == model and item.eps > 0), key=lambda one: one.eps)
        clean = [item.auc for item in evaluations if item.model == model][-1]
        eps, proved = [0.0, *(item.eps for item in items)], [clean, *(item.gauc for item in items)]
        found = {0.0: clean} | {item.eps: item.aauc for item in items if item.aauc is not None}
        if any(map(certified, items)):
            worst = np.interp(eps, list(found), list(found.values())).tolist()
            chart.band(eps, proved, worst, colours[model], f"{model}: the worst case lies in here")
            _series(chart, eps, proved, f"guaranteed {colours[model]}", f"{model}, GAUC")
        if len(found) > 1:
            _series(chart, list(found), list(found.values()), f"attacked {colours[model]}", f"{model}, AAUC")
    return figure(outside, chart)


def _series(chart: Chart, eps: Sequence[float], values: Sequence[float], kind: str, name: str) -> None:
    chart.line(eps, values, kind, name)
    tips = [f"{name} at ε = {radius_text(at)}: {percent(value)}" for at, value in zip(eps, values, strict=True)]
    chart.dots(eps, values, kind, tips)


def _apart(ticks: Mapping[float, str], distance: float) -> dict[float, str]:
    """Without those ticks that are too near to the one before."""
    kept: dict[float, str] = {}
    for place, text in ticks.items():
        if not kept or place - max(kept) >= distance:
            kept[place] = text
    return kept
