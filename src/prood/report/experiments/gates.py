"""Single shifts Δ and gates on the same images: how they rank, and which verdicts they prove (docs/verdict.md)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from prood import processes
from prood.evaluation.words import set_name
from prood.report import plots
from prood.report.experiments.experiment import Content, Experiment
from prood.report.experiments.tradeoff import BASELINE, parts_of
from prood.report.formats import markdown_table
from prood.studies import Candidate, Schedule, choose_shift, fit_schedule, making
from prood.studies.gating import ACCEPTED, LAST, PRICES, Verdicts, gate_from, heads, judged, verdicts
from prood.studies.pairs import pairs, pairs_of
from prood.studies.runner import Runner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[dict[str, Any]]
SHIFTS = tuple(step / 4 for step in range(-32, 49))
"""A trained model may be shifted afterwards, further than `making.SHIFTS`."""
PROVABLE = tuple(tenth / 10 for tenth in range(10))


def _make(runner: Runner) -> Content:
    """Everything is chosen on held-out images: Δ, the numbers of the gates, and the schedules of the two points."""
    (f, g), device = parts_of(runner, BASELINE), processes.device(runner.device)
    held = pairs(f, g, *runner.held_back(), runner.eps, device=device)
    tests = pairs_of(f, g, runner.inside(), runner.outside(), runner.eps, device=device)
    candidates = [Candidate(shift, *held.measure(shift)) for shift in making.SHIFTS]
    chosen = choose_shift(candidates, held.classifier_auc, tolerance=making.TOLERANCE).shift

    def measured(shift: float, schedule: Schedule) -> dict[str, Any]:
        gate = gate_from(held, shift, schedule)
        test = verdicts([one.scores(shift, gate) for one in tests.values()])
        return {"held_back": asdict(judged([held], shift, schedule)), "test": asdict(test)}

    def gates(schedules: dict[str, Schedule]) -> Points:
        return [
            {"name": name, "provable": one.provable, "last": one.end} | measured(chosen, one)
            for name, one in schedules.items()
        ]

    return {
        "eps": runner.eps,
        "images": {"inside": len(held.s_in), "outside": len(held.s_out)},
        "sets": [set_name(name) for name in tests],
        "accepted": list(ACCEPTED),
        "chosen": chosen,
        "classifier_auc": fmean(one.classifier_auc for one in tests.values()),
        "g_alone": asdict(verdicts([one.g_alone for one in tests.values()])),
        "shifts": [{"shift": shift} | measured(shift, Schedule(0.0)) for shift in SHIFTS],
        "gates": {
            "constant share": gates({f"{share:g}": Schedule(share) for share in PROVABLE}),
            "growing share": gates({f"{share:g}": Schedule(share, max(LAST)) for share in PROVABLE}),
            "fitted": gates({name: fit_schedule([held], chosen, price).schedule for name, price in PRICES.items()}),
        },
    }


def _draw(content: Content, file: Path) -> None:
    series = {"one shift": content["shifts"]} | {f"gate, {title}": one for title, one in content["gates"].items()}
    points = {label: [one["test"] for one in found] for label, found in series.items()}
    with plots.figure(file, 9.5, 8.4) as figure:
        first, *others = figure.subplots(2, 2).flat
        _ranking(first, points, content["classifier_auc"], content["g_alone"]["gauc"], "ranking")
        for place, (axes, share) in enumerate(zip(others, content["accepted"], strict=True)):
            _lines(axes, {label: _rejected(found, place) for label, found in points.items()})
            axes.axhline(100 - 100 * content["g_alone"]["gfpr"][place], color="grey", linewidth=1, label="g alone")
            axes.set(title=f"{share:.0%} accepted", xlabel="rejected, %", ylabel="provably rejected, %")
        first.legend(loc="lower left")


def _rejected(points: Points, place: int) -> tuple[list[float], list[float]]:
    rejected, proved = ([100 - 100 * one[key][place] for one in points] for key in ("fpr", "gfpr"))
    return rejected, proved


def _ranking(axes: Axes, points: dict[str, Points], alone: float, ceiling: float, title: str) -> None:
    """AUC against GAUC, with the AUC of the classifier alone and the GAUC of g alone, which nothing exceeds."""
    series = {
        label: ([100 * one["auc"] for one in of], [100 * one["gauc"] for one in of]) for label, of in points.items()
    }
    _lines(axes, series)
    lowest = min(value for _, y in list(series.values())[1:] for value in y)
    axes.set_ylim(lowest - 15, 100 * ceiling + 3)  # large shifts fall off to zero
    axes.set_xlim(right=min(axes.get_xlim()[1], 100.0))  # where every AUC is 1, the axis would go on
    axes.axvline(100 * alone, color="grey", linewidth=1, linestyle=":", label="AUC of OE")
    axes.axhline(100 * ceiling, color="grey", linewidth=1, label="GAUC of g alone")
    axes.set(title=title, xlabel="AUC, %", ylabel="GAUC, %")


def _lines(axes: Axes, series: dict[str, tuple[list[float], list[float]]]) -> None:
    """The shifts are many and make a line; each other point is marked."""
    for number, (label, (x, y)) in enumerate(series.items()):
        plots.curve(axes, x, y, label)
        if number:
            axes.plot(x, y, linestyle="", marker="s", color=axes.lines[-1].get_color())


def _section(content: Content) -> str:
    shown = [one for one in content["shifts"] if one["shift"] % 4 == 0 or one["shift"] == content["chosen"]]
    rows = [(f"Δ = {one['shift']:g}", one) for one in shown]
    rows += [(_words(title, one), one) for title, found in content["gates"].items() for one in found]
    lines = [["rule", *heads(content["accepted"]), "best Δ at this AUC: GAUC"]]
    lines += [[rule, *Verdicts(**one["test"]).cells(), _oracle(content, one)] for rule, one in rows]
    images, sets = content["images"], ", ".join(content["sets"])
    return (
        "OE's classifier is combined with our discriminator in two ways: by one shift Δ, or by a shift and a "
        f"[gate](verdict.md), with which g alone may reject an image, too. Held-out images ({images['inside']} "
        f"inside, {images['outside']} outside) decide the shift of the gates, Δ = {content['chosen']:g}, their "
        "numbers, and the points `default` and `strong`. A share is the part of the false rejections that g spends; "
        "where a second number follows, it grows to that as more is rejected. All numbers are percentages, means over "
        f"the test sets {sets}, with proofs at ε = {content['eps']:g}. There OE has an AUC of "
        f"{100 * content['classifier_auc']:.2f}, and g alone a GAUC of {100 * content['g_alone']['gauc']:.2f}. The "
        "last column favours the shift: it is the best Δ on the test sets themselves, among those with at least the "
        f"row's AUC.\n\n{markdown_table(lines)}"
    )


def _words(title: str, one: dict[str, Any]) -> str:
    name = f"`{one['name']}`" if title == "fitted" else "share"
    grown = "" if one["last"] == one["provable"] else f" to {one['last']:g}"
    return f"{name} {one['provable']:g}{grown}"


def _oracle(content: Content, one: dict[str, Any]) -> str:
    best = best_at(content["shifts"], one["test"]["auc"])
    return "none has it" if best is None else f"{100 * best:.2f}"


def best_at(shifts: list[dict[str, Any]], auc: float) -> float | None:
    """The highest GAUC on the test sets of a shift with this AUC or more there."""
    return max((one["test"]["gauc"] for one in shifts if one["test"]["auc"] >= auc), default=None)


CURVES = "More than one shift", "not in the paper, which has one shift (Eq. 9)"
EXPERIMENT = Experiment("figure", "gates", *CURVES, _make, _section, _draw)
