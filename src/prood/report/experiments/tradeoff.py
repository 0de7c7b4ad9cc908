"""AUC against GAUC on held-out images for every single shift Δ, with the rule's choice."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from prood import processes
from prood.models import Discriminator, ProoD, load
from prood.report import plots
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import markdown_table
from prood.report.results import whole_or_chosen
from prood.studies import choose_shift, making, prior_from_shift, sweep
from prood.studies.runner import Runner

BASELINE = "oe"
COMBINED = {BASELINE: "OE's classifier", "prood": "ProoD's classifier"}
"""Runs whose classifier is combined with the discriminator at each shift, without training again."""


def _shift(runner: Runner) -> Content:
    """By the AUC of OE, the classifier that shifts are chosen with."""
    runs = [run for run in COMBINED if (runner.has(run) and runner.has("discriminator")) or runner.may_train]
    runner.notes.extend(f"{COMBINED[run]} is left out: its weights are not here" for run in COMBINED if run not in runs)
    found = {
        run: sweep(
            *parts_of(runner, run),
            *runner.held_back(),
            runner.eps,
            making.SHIFTS,
            device=processes.device(runner.device),
        )
        for run in runs
    }
    auc, candidates = found.get(BASELINE, (None, []))
    baseline = {} if auc is None else {"auc": auc, "accuracy": candidates[0].accuracy}
    curves: dict[str, Any] = {}
    for run, (_, candidates) in found.items():
        chosen = None if auc is None else choose_shift(candidates, auc, tolerance=making.TOLERANCE).shift
        curves[COMBINED[run]] = {"shifts": [asdict(one) for one in candidates], "chosen": chosen}
    return {"eps": runner.eps, "rule": making.RULE.format(by="OE"), "baseline": baseline, "curves": curves}


def parts_of(runner: Runner, run: str) -> tuple[nn.Module, Discriminator]:
    """The classifier of a run, and the discriminator."""
    f, g = load(runner.run(run))[0], load(runner.run("discriminator"))[0]
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
            text = " / ".join(percent(one))
            cells.append(f"**{text}**" if found["chosen"] == shift else text)
        lines.append(cells)
    against = "" if base is None else f" (the AUC of OE is {100 * base:.2f})"
    return (
        f"On held-out images of both training sets, at ε = {content['eps']:g}. Bold is the choice: "
        f"{content['rule']}{against}. A trained classifier is combined with the discriminator at each Δ: its "
        f"accuracy is the same at all of them. The paper trains a classifier for each. "
        "The second column is the fraction of out-distribution inputs that a Δ stands for, were the discriminator "
        f"perfect.\n\n{markdown_table(lines)}"
    )


def percent(found: dict[str, float]) -> list[str]:
    return [f"{100 * found[key]:.2f}" for key in ("auc", "gauc")]


CHOICE = "The choice of the shift", "Section 4.1 and App. D, the figure on the selection of the bias"
SHIFT = Experiment("figure", "shift", *CHOICE, _shift, _shift_section, _draw_shift)
