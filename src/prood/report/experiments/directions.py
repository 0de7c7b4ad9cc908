"""Directions that an adversary finds: does p(in) decay along them, and in how many random ones?"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from prood import processes
from prood.atomic import write_text
from prood.evaluation.asymptotics import (
    CURVE,
    KINDS,
    SCHEDULES,
    adversarial_directions,
    check_theorem,
    fates,
    guarded,
    random_directions,
    scale_wise_maximum,
)
from prood.models import Discriminator, ProoD, load
from prood.report.experiments.asymptotic import BARE, GUARDED
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import markdown_table
from prood.studies.lab import Lab

COUNT, FEW = 100, 10
"""Directions, as in the paper; and where a CPU has to search for them on CIFAR."""
RANDOM = 1000


def make(lab: Lab) -> Content:
    """g of the joint model by the paper's search and by one that goes farther; by the latter also Plain."""
    target = processes.device(lab.device)
    slow = lab.study.gpu and target.type == "cpu"
    if slow:
        lab.notes.append(f"On a CPU: {FEW} directions instead of {COUNT}, and without the paper's 40,000 steps")
    title = lab.study.headline.title
    joint, _ = load(lab.run(lab.study.headline.name), device=target)
    bare = guarded(joint, 0)  # as in the paper, whatever the recipe says
    plans: list[tuple[str, nn.Module, str]] = [] if slow else [(f"{title}, {BARE}", bare, "paper")]
    plans += [(f"{title}, {BARE}, farther out", bare, "far"), (f"{title}, {GUARDED}", guarded(joint), "far")]
    if lab.has("plain") or lab.may_train:
        plans.append(("Plain", load(lab.run("plain"), device=target)[0], "far"))
    else:
        lab.notes.append("Plain is left out: its weights are not here")
    shape = lab.inside().shape
    count, random = (FEW, RANDOM // 10) if slow else (COUNT, RANDOM)
    models = {title: _searched(model, shape, search, count, random, target) for title, model, search in plans}
    return {"alphas": list(CURVE), "models": models}


def _searched(
    model: nn.Module, shape: tuple[int, ...], search: str, count: int, random: int, device: torch.device
) -> dict[str, Any]:
    """What a search finds, scale by scale; and for a network with a discriminator what becomes of g."""
    found = adversarial_directions(model, shape, count=count, schedule=SCHEDULES[search], device=device)
    there = found.directions.to(device)
    about: dict[str, Any] = {
        "search": search,
        "directions": count,
        "steps": found.steps,
        "flat": int(found.flat.sum()),
        "maximum": list(scale_wise_maximum(model, there)),
    }
    if isinstance(model, Discriminator | ProoD):
        theorem = check_theorem(model)
        drawn = {kind: random_directions(random, shape, kind).to(device) for kind in KINDS}
        about |= {"holds": theorem.holds, "covers": theorem.covers, "fates": fates(model, there).summary()}
        about |= {"random": {kind: fates(model, some).summary() for kind, some in drawn.items()}}
    return about


def draw(content: Content, file: Path) -> None:
    curves = {title: about["maximum"] for title, about in content["models"].items()}
    _draw(content["alphas"], curves, file, "largest p(in) at α·d (Plain: confidence)")


def draw_model(content: Content, file: Path) -> None:
    """The two curves of one model, from what `prood asymptotics` found."""
    curves = {"mean along x + α·n": content["mean"], "maximum along adversarial α·d": content["maximum"]}
    _draw(content["alphas"], curves, file, "how sure of itself")


def _draw(alphas: list[float], curves: dict[str, list[float]], file: Path, label: str) -> None:
    from prood.report import plots

    with plots.figure() as figure:
        axes = figure.subplots()
        for number, (title, values) in enumerate(curves.items()):
            plots.curve(axes, number, list(alphas), list(values), title)
        axes.set(xscale="log", ylim=(-0.03, 1.03), xlabel="distance α", ylabel=label)
        figure.legend(loc="outside right upper")
        plots.save(figure, file)


def write(content: Content, file: Path) -> None:
    """What was found as JSON; a limit that is not finite has no place there."""
    write_text(file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def section(content: Content) -> str:
    head = ["model", "search", "steps", "found: decays / stays", "uniform n: decays", "Gaussian n: decays"]
    head += ["largest p(in) at α = 1", "α = 1000"]
    near, far = (content["alphas"].index(alpha) for alpha in (1.0, 1000.0))
    lines = []
    for title, about in content["models"].items():
        fate, random = about.get("fates"), about.get("random", {})
        cells = ["–" if fate is None else f"{fate['decays']} / {fate['stays']}"]
        cells += [_share(random[kind]) if kind in random else "–" for kind in KINDS]
        values = [f"{about['maximum'][place]:.4f}" for place in (near, far)]
        lines.append([title, about["search"], f"{about['steps']:,}", *cells, *values])
    count = max(about["directions"] for about in content["models"].values())
    return (
        f"{count} directions found by climbing g from random points (for Plain its confidence) on spheres, and the "
        "largest p(in) of all of them at each scale (for Plain the confidence). The search `paper` is the paper's, "
        "with radii 100 and 1000; `far` makes fewer, longer steps and goes on at radius 10⁶. A search ends early where "
        "all of its gradients are zero: g is at its cap. In the paper all of 100 directions decay. Here the fate of "
        "each is decided exactly, from the affine piece of the network at infinity: where no last hidden unit keeps "
        "growing, g stays, and the theorem says nothing. A guard outside [0, 1]^d, which changes nothing on images, "
        "makes g decay in every direction (docs/asymptotics.md); our recipes have it.\n\n"
        f"{markdown_table([head, *lines])}"
    )


def _share(about: dict[str, Any]) -> str:
    return f"{100 * about['decays'] / about['directions']:.1f}%"


EXPERIMENT = Experiment(
    kind="figure",
    name="directions",
    title="Adversarial directions: p(in) far away in the worst of them",
    paper="App. A, Figure 2 on the right",
    make=make,
    section=section,
    draw=draw,
)
