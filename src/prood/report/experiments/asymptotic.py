"""Far away: mean confidence along x + α·n of every model, and directions that an adversary finds."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from prood import processes
from prood.evaluation.asymptotics import (
    CURVE,
    KINDS,
    SCHEDULES,
    adversarial_directions,
    check_theorem,
    fates,
    mean_confidence,
    random_directions,
    scale_wise_maximum,
    with_far_penalty,
)
from prood.evaluation.asymptotics.far import TRAJECTORIES
from prood.evaluation.words import set_name
from prood.models import Discriminator, ProoD, load
from prood.report import far
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import markdown_table
from prood.studies.known import REFERENCES
from prood.studies.runner import Runner

BARE, GUARDED = "no guard", "guarded"  # published files have these words: guarded means with a far penalty
SHOWN = (0.1, 1.0, 10.0, 100.0, 1000.0, 100_000.0)
COUNT, FEW = 100, 10  # directions, as in the paper; and where a CPU has to search for them on CIFAR
RANDOM = 1000


def _confidence(runner: Runner) -> Content:
    """Plain, OE and the joint model, with and without its far penalty; others where they are trained already."""
    name, outside = next(iter(runner.outside().items()))
    options: dict[str, Any] = {"device": processes.device(runner.device)}
    curves: dict[str, list[float]] = {}
    classes = None
    for run, node in runner.study.rows.items():
        wanted = node.headline or run in REFERENCES
        if not runner.has(run) and not (wanted and runner.may_train):
            if wanted:
                runner.notes.append(f"{node.title} is left out: its weights are not here")
            continue
        model, about = load(runner.run(run))
        if isinstance(model, Discriminator):
            continue  # no classes to be sure of
        classes = len(about.classes) if about.classes else classes
        both = {node.title: model}
        if node.headline:
            both = {
                f"{node.title}, {BARE}": with_far_penalty(model, 0),
                f"{node.title}, {GUARDED}": with_far_penalty(model),
            }
        curves |= {name: list(mean_confidence(one, outside, **options)) for name, one in both.items()}
    facts: Content = {"outside": set_name(name), "trajectories": min(TRAJECTORIES, len(outside)), "classes": classes}
    return facts | {"alphas": list(CURVE), "curves": curves}


def _draw_confidence(content: Content, file: Path) -> None:
    far.draw(content, content["curves"], file, "mean confidence at x + α·n", low=0)


def _confidence_section(content: Content) -> str:
    places = [content["alphas"].index(alpha) for alpha in SHOWN]
    lines = [["mean confidence, %", *(f"α = {alpha:g}" for alpha in SHOWN)]]
    lines += [[title, *(f"{100 * curve[at]:.1f}" for at in places)] for title, curve in content["curves"].items()]
    base = f"1/K is {100 / content['classes']:.1f}%." if content["classes"] else ""
    return (
        f"Confidence along x + α·n, the mean of {content['trajectories']} trajectories that start at images x of "
        f"{content['outside']}, each in a random direction n in [−0.5, 0.5]^d. {base} In the paper every model but "
        "GOOD and ProoD goes to 100%, and ProoD to 1/K. Where ours without a far penalty stays a little above it, "
        "g comes to rest in some directions (see the next figure); with one it does in none (docs/asymptotics.md).\n\n"
        f"{markdown_table(lines)}"
    )


def _directions(runner: Runner) -> Content:
    """g of the joint model by the paper's search and by one that goes farther; by the latter also Plain."""
    target = processes.device(runner.device)
    slow = runner.study.gpu and target.type == "cpu"
    if slow:
        runner.notes.append(f"On a CPU: {FEW} directions instead of {COUNT}, and without the paper's 40,000 steps")
    title = runner.study.headline.title
    joint, _ = load(runner.run(runner.study.headline.name), device=target)
    bare = with_far_penalty(joint, 0)  # as in the paper, whatever the recipe says
    plans: list[tuple[str, nn.Module, str]] = [] if slow else [(f"{title}, {BARE}", bare, "paper")]
    plans += [(f"{title}, {BARE}, farther out", bare, "far"), (f"{title}, {GUARDED}", with_far_penalty(joint), "far")]
    if runner.has("plain") or runner.may_train:
        plans.append(("Plain", load(runner.run("plain"), device=target)[0], "far"))
    else:
        runner.notes.append("Plain is left out: its weights are not here")
    shape = runner.inside().shape
    count, random = (FEW, RANDOM // 10) if slow else (COUNT, RANDOM)
    models = {title: _searched(model, shape, search, count, random, target) for title, model, search in plans}
    return {"alphas": list(CURVE), "models": models}


def _searched(
    model: nn.Module, shape: tuple[int, ...], search: str, count: int, random: int, device: torch.device
) -> dict[str, Any]:
    """What a search finds, scale by scale; and for a network with a discriminator what becomes of g."""
    found = adversarial_directions(model, shape, count=count, schedule=SCHEDULES[search], device=device)
    directions = found.directions.to(device)
    about: dict[str, Any] = {"search": search, "directions": count, "steps": found.steps}
    about |= {"flat": int(found.flat.sum()), "maximum": list(scale_wise_maximum(model, directions))}
    if isinstance(model, Discriminator | ProoD):
        theorem = check_theorem(model)
        drawn = {kind: random_directions(random, shape, kind).to(device) for kind in KINDS}
        about |= {"holds": theorem.holds, "covers": theorem.covers, "fates": fates(model, directions).summary()}
        about |= {"random": {kind: fates(model, some).summary() for kind, some in drawn.items()}}
    return about


def _draw_directions(content: Content, file: Path) -> None:
    curves = {title: about["maximum"] for title, about in content["models"].items()}
    far.draw(content, curves, file, "largest p(in) at α·d (Plain: confidence)")


def _directions_section(content: Content) -> str:
    head = ["model", "search", "steps", "found: decays / stays", "uniform n: decays", "Gaussian n: decays"]
    lines = [[*head, "largest p(in) at α = 1", "α = 1000"]]
    places = [content["alphas"].index(alpha) for alpha in (1.0, 1000.0)]
    for title, about in content["models"].items():
        fate, random = about.get("fates"), about.get("random", {})
        cells = ["–" if fate is None else f"{fate['decays']} / {fate['stays']}"]
        for of in map(random.get, KINDS):
            cells.append("–" if of is None else f"{100 * of['decays'] / of['directions']:.1f}%")
        values = [f"{about['maximum'][place]:.4f}" for place in places]
        lines.append([title, about["search"], f"{about['steps']:,}", *cells, *values])
    count = max(about["directions"] for about in content["models"].values())
    return (
        f"{count} directions found by climbing g from random points (for Plain its confidence) on spheres, and the "
        "largest p(in) of all of them at each scale (for Plain the confidence). The search `paper` is the paper's, "
        "with radii 100 and 1000; `far` makes fewer, longer steps and goes on at radius 10⁶. A search ends early where "
        "all of its gradients are zero: g is at its cap. In the paper all of 100 directions decay. Here the fate of "
        "each is decided exactly, from the affine piece of the network at infinity: where no last hidden unit keeps "
        "growing, g stays, and the theorem says nothing. A far penalty outside [0, 1]^d changes nothing on images, and "
        "makes g decay in every direction (docs/asymptotics.md); our recipes have it.\n\n"
        f"{markdown_table(lines)}"
    )


LEFT = "Confidence far away from the data", "Section 3 and App. A, Figure 2 on the left"
CONFIDENCE = Experiment("figure", "asymptotic", *LEFT, _confidence, _confidence_section, _draw_confidence)
RIGHT = "Adversarial directions: p(in) far away in the worst of them", "App. A, Figure 2 on the right"
DIRECTIONS = Experiment("figure", "directions", *RIGHT, _directions, _directions_section, _draw_directions)
