"""prood asymptotics MODEL"""

from pathlib import Path
from typing import Annotated

import typer

from prood.pretrained import listed


def asymptotics(
    model: Annotated[
        str,
        typer.Argument(help=f"A run's folder, a .safetensors file, or a model that comes with Prood ({listed()})."),
    ],
    directions: Annotated[int, typer.Option(help="Random directions of each kind.", min=1)] = 1000,
    adversarial: Annotated[int, typer.Option(help="Directions that an adversary searches for.", min=1)] = 100,
    search: Annotated[str, typer.Option(help="Its schedule: far, or the paper's (40,000 steps).")] = "far",
    guard: Annotated[
        float | None, typer.Option(help="With this guard outside [0, 1] instead of the model's own.", min=0)
    ] = None,
    outside: Annotated[
        str, typer.Option("--out", metavar="NAME", help="The images at which trajectories start.")
    ] = "uniform",
    inside: Annotated[
        str | None,
        typer.Option("--in", metavar="NAME", help="Also how well it tells these from points far away (AUC)."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the curves there.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write what was found there.")] = None,
    seed: Annotated[int, typer.Option(help="Of directions, trajectories and the search.", min=0)] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
) -> None:
    """Far away from all data: does the confidence fall to 1/K, as Theorem 1 of the paper says?

    Checks the conditions of the theorem on the weights as they are stored, follows random directions to infinity, and
    searches for directions in which the model stays sure of itself. Exit code 1 if a condition is violated.
    """
    from rich.console import Console

    from prood.evaluation.asymptotics import study_run
    from prood.report import far

    found = study_run(
        model,
        outside=outside,
        inside=inside,
        guard=guard,
        search=search,
        device=device,
        directions=directions,
        adversarial=adversarial,
        seed=seed,
    )
    console = Console()
    for line in far.lines(found):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if figure is not None:
        far.draw_model(found.to_json(), figure)
    if json is not None:
        far.write(found.to_json(), json)
    if not found.theorem.holds:
        raise typer.Exit(1)
