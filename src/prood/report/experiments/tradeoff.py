"""AUC against GAUC on held-back images: of every single shift Δ, with the rule's choice, and of the fusion's curves."""

from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import nn

from prood import processes
from prood.evaluation.words import set_name
from prood.models import Curve, Discriminator, ProoD, load
from prood.report import plots
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import markdown_table
from prood.report.results import whole_or_chosen
from prood.studies import best_shift, choose_shift, fit_fusion, making, pairs, prior_from_shift, sweep
from prood.studies.curve import SHIFTS, Pairs, pairs_of
from prood.studies.lab import Lab

BASELINE = "oe"
COMBINED = {BASELINE: "OE's classifier", "prood": "ProoD's classifier"}
"""Runs whose classifier is combined with the discriminator at each shift, without training again."""
DROPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # points of AUC below OE's on held-back images that a fit may give up


def _shift(lab: Lab) -> Content:
    """By the AUC of OE, the classifier that shifts are chosen with."""
    here = [run for run in COMBINED if (lab.has(run) and lab.has("discriminator")) or lab.may_train]
    lab.notes.extend(f"{COMBINED[run]} is left out: its weights are not here" for run in COMBINED if run not in here)
    found = {
        run: sweep(*_parts(lab, run), *lab.held_back(), lab.eps, making.SHIFTS, device=processes.device(lab.device))
        for run in here
    }
    auc, candidates = found.get(BASELINE, (None, []))
    baseline = {} if auc is None else {"auc": auc, "accuracy": candidates[0].accuracy}
    curves: dict[str, Any] = {}
    for run, (_, candidates) in found.items():
        chosen = None if auc is None else choose_shift(candidates, auc, tolerance=making.TOLERANCE).shift
        curves[COMBINED[run]] = {"shifts": [asdict(one) for one in candidates], "chosen": chosen}
    return {"eps": lab.eps, "rule": making.RULE, "baseline": baseline, "curves": curves}


def _parts(lab: Lab, run: str) -> tuple[nn.Module, Discriminator]:
    """The classifier of a run, and the discriminator."""
    f, g = load(lab.run(run))[0], load(lab.run("discriminator"))[0]
    assert isinstance(g, Discriminator)
    return f.classifier if isinstance(f, ProoD) else f, g


def _draw_shift(content: Content, file: Path) -> None:
    curves, base = content["curves"], content["baseline"].get("auc")
    with plots.figure(file, 4.2 * max(len(curves), 2), 4.2) as figure:
        places = figure.subplots(1, max(len(curves), 1), squeeze=False)[0]
        for axes, (title, found) in zip(places, curves.items(), strict=False):
            shifts = [one["shift"] for one in found["shifts"]]
            for key, label in {"accuracy": "accuracy", "auc": "AUC", "gauc": "GAUC"}.items():
                plots.curve(axes, shifts, [100 * one[key] for one in found["shifts"]], label)
            if base is not None:
                axes.axhline(100 * base, color="grey", linewidth=1, linestyle=":", label="AUC of OE")
            if found["chosen"] is not None:
                axes.axvline(found["chosen"], color="black", linewidth=1, linestyle="--", label="chosen Δ")
            axes.set(title=title, xlabel="shift Δ", ylabel="%", ylim=(0, 103))
        places[-1].legend(loc="lower left")


def _shift_section(content: Content) -> str:
    curves, base = content["curves"], content["baseline"].get("auc")
    lines = [["Δ", "prior p(o), %", *(f"{title}: AUC / GAUC" for title in curves)]]
    shown = {one["shift"] for found in curves.values() for one in whole_or_chosen(found["shifts"], found["chosen"])}
    for shift in sorted(shown):
        cells = [f"{shift:g}", f"{100 * prior_from_shift(shift):.1f}"]
        for found in curves.values():
            one = next(one for one in found["shifts"] if one["shift"] == shift)
            text = " / ".join(_percent(one))
            cells.append(f"**{text}**" if found["chosen"] == shift else text)
        lines.append(cells)
    against = "" if base is None else f" (the AUC of OE is {100 * base:.2f})"
    return (
        f"On held-back images of both training sets, at ε = {content['eps']:g}. Bold is the choice: "
        f"{content['rule']}{against}. A trained classifier is combined with the discriminator at each Δ: its "
        f"accuracy is the same at all of them. The paper trains a classifier for each. "
        "The second column is the fraction of out-distribution inputs that a Δ stands for, were the discriminator "
        f"perfect.\n\n{markdown_table(lines)}"
    )


def _fusion(lab: Lab) -> Content:
    (f, g), device = _parts(lab, BASELINE), processes.device(lab.device)
    held = pairs(f, g, *lab.held_back(), lab.eps, device=device)
    tests = pairs_of(f, g, lab.inside(), lab.outside(), lab.eps, device=device)
    fusions = []
    for drop in DROPS:
        least = held.classifier_auc - drop / 100
        fitted, single = fit_fusion(held, least).curve, best_shift(held, least).curve
        found = {"auc_drop": drop, "curve": asdict(fitted)} | _measured(fitted, held, tests)
        fusions.append(found | {"single_shift": -single.level})
    aucs, ceilings = ([getattr(one, name) for one in tests.values()] for name in ("classifier_auc", "ceiling"))
    return {
        "eps": lab.eps,
        "images": {"inside": len(held.s_in), "outside": len(held.s_out)},
        "sets": [set_name(name) for name in tests],
        "classifier_auc": {"held_back": held.classifier_auc, "test": fmean(aucs)},
        "ceiling": {"held_back": held.ceiling, "test": fmean(ceilings)},
        "shifts": [{"shift": shift} | _measured(Curve.shifted(shift), held, tests) for shift in SHIFTS],
        "fusions": fusions,
    }


def _measured(score: Curve, held: Pairs, tests: dict[str, Pairs]) -> dict[str, dict[str, float]]:
    """AUC and GAUC on held-back images, and their means over the test sets."""
    each = zip(*(one.measure(score) for one in tests.values()), strict=True)
    pairs = {"held_back": held.measure(score), "test": map(fmean, each)}
    return {name: dict(zip(("auc", "gauc"), pair, strict=True)) for name, pair in pairs.items()}


def _draw_fusion(content: Content, file: Path) -> None:
    kinds = {"held_back": "held-back images", "test": "test sets (mean)"}
    with plots.figure(file, 9.5, 4.2) as figure:
        for axes, (kind, title) in zip(figure.subplots(1, 2), kinds.items(), strict=True):
            for label, points in {"one shift": content["shifts"], "fusion": content["fusions"]}.items():
                x, y = ([100 * one[kind][key] for one in points] for key in ("auc", "gauc"))
                plots.curve(axes, x, y, label)
            axes.plot(x, y, linestyle="", marker="s", color=plots.COLOURS[1])  # the fusion's points
            ceiling, alone = 100 * content["ceiling"][kind], 100 * content["classifier_auc"][kind]
            axes.set_ylim(min(y) - 15, ceiling + 3)  # large shifts fall off to zero
            axes.set_xlim(right=min(axes.get_xlim()[1], 100.0))  # where every AUC is 1, the axis would go on
            axes.axvline(alone, color="grey", linewidth=1, linestyle=":", label="AUC of OE")
            axes.axhline(ceiling, color="grey", linewidth=1, label="GAUC of g alone")
            axes.set(title=title, xlabel="AUC, %", ylabel="GAUC, %")
        axes.legend(loc="lower left")


def _fusion_section(content: Content) -> str:
    by_shift = {one["shift"]: one["test"] for one in content["shifts"]}
    lines = [["AUC given up", "AUC", "GAUC", "Δ by the same rule", "AUC", "GAUC", "best Δ at this AUC: GAUC"]]
    for one in content["fusions"]:
        single, oracle = one["single_shift"], best_at(content["shifts"], one["test"]["auc"])
        cells = [f"{one['auc_drop']:g}", *_percent(one["test"]), f"{single:g}", *_percent(by_shift[single])]
        lines.append([*cells, "none has it" if oracle is None else f"{100 * oracle:.2f}"])
    images, alone = content["images"], content["classifier_auc"]
    means = f"the means over {', '.join(content['sets'])}, where OE has an AUC of {100 * alone['test']:.2f} and g alone"
    return (
        "The score of docs/fusion.md, three numbers instead of one shift, with the classifier OE and our "
        f"discriminator. Each row is fitted on {images['inside']} held-back images inside and {images['outside']} "
        "outside, for the highest GAUC at an AUC that may be so many points below that of OE there "
        f"({100 * alone['held_back']:.2f}). Then come {means} a GAUC of {100 * content['ceiling']['test']:.2f}; beside "
        "them those of the shift Δ that the same rule chooses, from −8 to 12 and without training again. The last "
        "column is unfair to the fusion: the shift that is best on the test sets themselves, among those that have at "
        "least its AUC there.\n\n"
        f"{markdown_table(lines)}"
    )


def best_at(shifts: list[dict[str, Any]], auc: float) -> float | None:
    """The highest GAUC on the test sets of a shift with this AUC or more there."""
    return max((one["test"]["gauc"] for one in shifts if one["test"]["auc"] >= auc), default=None)


def _percent(found: dict[str, float]) -> list[str]:
    return [f"{100 * found[key]:.2f}" for key in ("auc", "gauc")]


CHOICE = "The choice of the shift", "Section 4.1 and App. D, the figure on the selection of the bias"
SHIFT = Experiment("figure", "shift", *CHOICE, _shift, _shift_section, _draw_shift)
CURVES = "More than one shift", "not in the paper, which has one shift (Eq. 9)"
FUSION = Experiment("figure", "fusion", *CURVES, _fusion, _fusion_section, _draw_fusion)
