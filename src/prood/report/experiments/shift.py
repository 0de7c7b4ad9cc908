"""Accuracy, AUC and GAUC over the shift Δ, on held-back images, and the one that the rule chooses."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from prood import processes
from prood.models import Discriminator, ProoD, load
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import markdown_table
from prood.report.results import whole_or_chosen
from prood.studies import Candidate, choose_shift, prior_from_shift, sweep
from prood.studies.lab import Lab
from prood.studies.making import RULE, SHIFTS, TOLERANCE

BASELINE = "oe"
COMBINED = {BASELINE: "OE's classifier", "prood": "ProoD's classifier"}
"""Runs whose classifier is combined with the discriminator at each shift, without training again."""


def make(lab: Lab) -> Content:
    """By the AUC of OE, the classifier that shifts are chosen with."""
    here = [run for run in COMBINED if (lab.has(run) and lab.has("discriminator")) or lab.may_train]
    lab.notes.extend(f"{COMBINED[run]} is left out: its weights are not here" for run in COMBINED if run not in here)
    found = {run: _combined(lab, run) for run in here}
    auc, candidates = found.get(BASELINE, (None, []))
    baseline = {} if auc is None else {"auc": auc, "accuracy": candidates[0].accuracy}
    curves: dict[str, Any] = {}
    for run, (_, candidates) in found.items():
        chosen = None if auc is None else choose_shift(candidates, auc, tolerance=TOLERANCE).shift
        curves[COMBINED[run]] = {"shifts": [asdict(one) for one in candidates], "chosen": chosen}
    return {"eps": lab.eps, "rule": RULE, "baseline": baseline, "curves": curves}


def _combined(lab: Lab, run: str) -> tuple[float, list[Candidate]]:
    """The classifier's own AUC, and joint models of it with each shift."""
    f, _ = load(lab.run(run))
    g, _ = load(lab.run("discriminator"))
    f = f.classifier if isinstance(f, ProoD) else f
    assert isinstance(g, Discriminator)
    inside, outside = lab.held_back()
    return sweep(f, g, inside, outside, lab.eps, SHIFTS, device=processes.device(lab.device))


def draw(content: Content, file: Path) -> None:
    from prood.report import plots

    curves = content["curves"]
    with plots.figure(4.2 * max(len(curves), 2), 4.2) as figure:
        places = figure.subplots(1, max(len(curves), 1), squeeze=False)[0]
        for axes, (title, curve) in zip(places, curves.items(), strict=False):
            points = curve["shifts"]
            shifts = [one["shift"] for one in points]
            for number, key in enumerate(("accuracy", "auc", "gauc")):
                label = {"accuracy": "accuracy", "auc": "AUC", "gauc": "GAUC"}[key]
                plots.curve(axes, number, shifts, [100 * one[key] for one in points], label)
            base = content["baseline"].get("auc")
            if base is not None:
                axes.axhline(100 * base, color="grey", linewidth=1, linestyle=":", label="AUC of OE")
            if curve["chosen"] is not None:
                axes.axvline(curve["chosen"], color="black", linewidth=1, linestyle="--", label="chosen Δ")
            axes.set(title=title, xlabel="shift Δ", ylabel="%", ylim=(0, 103))
        places[-1].legend(loc="lower left")
        plots.save(figure, file)


def section(content: Content) -> str:
    curves = content["curves"]
    head = ["Δ", "prior p(o), %", *(f"{title}: AUC / GAUC" for title in curves)]
    lines = []
    shown = {one["shift"] for curve in curves.values() for one in whole_or_chosen(curve["shifts"], curve["chosen"])}
    for shift in sorted(shown):
        cells = [f"{shift:g}", f"{100 * prior_from_shift(shift):.1f}"]
        for curve in curves.values():
            one = next(one for one in curve["shifts"] if one["shift"] == shift)
            text = f"{100 * one['auc']:.2f} / {100 * one['gauc']:.2f}"
            cells.append(f"**{text}**" if curve["chosen"] == shift else text)
        lines.append(cells)
    base = content["baseline"].get("auc")
    against = "" if base is None else f" (the AUC of OE is {100 * base:.2f})"
    return (
        f"On held-back images of both training sets, at ε = {content['eps']:g}. Bold is the choice: "
        f"{content['rule']}{against}. A trained classifier is combined with the discriminator at each Δ: its "
        f"accuracy is the same at all of them. The paper trains a classifier for each. "
        "The second column is the fraction of out-distribution inputs that a Δ stands for, were the discriminator "
        f"perfect.\n\n{markdown_table([head, *lines])}"
    )


EXPERIMENT = Experiment(
    kind="figure",
    name="shift",
    title="The choice of the shift",
    paper="Section 4.1 and App. D, the figure on the selection of the bias",
    make=make,
    section=section,
    draw=draw,
)
