"""Mean confidence far away: along x + α·n from images outside, for every trained model of the lab."""

from pathlib import Path
from typing import Any

from prood import processes
from prood.evaluation.asymptotics import CURVE, guarded, mean_confidence
from prood.evaluation.asymptotics.far import TRAJECTORIES
from prood.evaluation.words import set_name
from prood.models import Discriminator, load
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import markdown_table
from prood.studies.known import REFERENCES
from prood.studies.lab import Lab

BARE, GUARDED = "no guard", "guarded"
SHOWN = (0.1, 1.0, 10.0, 100.0, 1000.0, 100_000.0)


def make(lab: Lab) -> Content:
    """Plain, OE and the joint model, with and without its guard; others where they are trained already."""
    name, outside = next(iter(lab.outside().items()))
    options: dict[str, Any] = {"device": processes.device(lab.device)}
    curves: dict[str, list[float]] = {}
    classes = None
    for run, node in lab.study.rows.items():
        wanted = node.headline or run in REFERENCES
        if not lab.has(run) and not (wanted and lab.may_train):
            if wanted:
                lab.notes.append(f"{node.title} is left out: its weights are not here")
            continue
        model, about = load(lab.run(run))
        if isinstance(model, Discriminator):
            continue  # no classes to be sure of
        classes = len(about.classes) if about.classes else classes
        both = {node.title: model}
        if node.headline:
            both = {f"{node.title}, {BARE}": guarded(model, 0), f"{node.title}, {GUARDED}": guarded(model)}
        curves |= {name: list(mean_confidence(one, outside, **options)) for name, one in both.items()}
    facts: Content = {"outside": set_name(name), "trajectories": min(TRAJECTORIES, len(outside)), "classes": classes}
    return facts | {"alphas": list(CURVE), "curves": curves}


def draw(content: Content, file: Path) -> None:
    from prood.report import plots

    with plots.figure() as figure:
        axes = figure.subplots()
        for number, (title, values) in enumerate(content["curves"].items()):
            plots.curve(axes, number, content["alphas"], values, title)
        if content["classes"]:
            axes.axhline(1 / content["classes"], color="grey", linewidth=1, linestyle=":", label="1/K")
        axes.set(xscale="log", ylim=(0, 1.03), xlabel="distance α", ylabel="mean confidence at x + α·n")
        figure.legend(loc="outside right upper")
        plots.save(figure, file)


def section(content: Content) -> str:
    places = [content["alphas"].index(alpha) for alpha in SHOWN]
    head = ["mean confidence, %", *(f"α = {alpha:g}" for alpha in SHOWN)]
    lines = [
        [title, *(f"{100 * values[place]:.1f}" for place in places)] for title, values in content["curves"].items()
    ]
    base = f"1/K is {100 / content['classes']:.1f}%." if content["classes"] else ""
    return (
        f"Confidence along x + α·n, the mean of {content['trajectories']} trajectories that start at images x of "
        f"{content['outside']}, each in a random direction n in [−0.5, 0.5]^d. {base} In the paper every model but "
        "GOOD and ProoD goes to 100%, and ProoD to 1/K. Where ours without a guard stays a little above it, g comes to "
        "rest in some directions (see the next figure); with the guard of docs/asymptotics.md it does in none.\n\n"
        f"{markdown_table([head, *lines])}"
    )


EXPERIMENT = Experiment(
    kind="figure",
    name="asymptotic",
    title="Confidence far away from the data",
    paper="Section 3 and App. A, Figure 2 on the left",
    make=make,
    section=section,
    draw=draw,
)
