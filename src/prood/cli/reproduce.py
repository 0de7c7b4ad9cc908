"""prood reproduce NAME"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The in-distribution: cifar10 or cifar100.")],
    fast: Annotated[
        bool, typer.Option("--fast", help="Only the discriminator, ProoD at the recipe's shift, and its certificates.")
    ] = False,
    outside: Annotated[
        str | None, typer.Option("--out", metavar="NAME", help="Train against another out-distribution.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder for the runs; else runs/NAME, with --fast runs/NAME-fast.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder for the published results.")] = Path("results"),
    attacks: Annotated[str, typer.Option(help="fast, paper, strong or none.")] = "paper",
    attacked: Annotated[int, typer.Option(help="Images of each set that are attacked.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of initialisation, order and augmentation.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
) -> None:
    """The paper's experiments on CIFAR, for one modern GPU: train, choose shifts, certify, attack, publish.

    Plain, OE, the discriminator with the paper's loss and with ours, ProoD and ProoD-S with either. What is in the
    folder already is not made again. 'prood results' then makes the page of all published results.
    """
    from prood.attacks import preset
    from prood.reproduce import Study, reproduce, run_fast

    if attacks != "none":
        preset(attacks)  # a wrong name is said now, not when everything is trained
    # Two folders: 'prood' has the recipe's shift in one and the chosen shift in the other.
    folder = runs or Path("runs") / (f"{name}-fast" if fast else name)
    command = " ".join(["prood", *sys.argv[1:]])
    study = Study(name, folder, outside=outside, seed=seed, device=device, command=command)
    if fast:
        run_fast(study)
    else:
        reproduce(study, results=results, attacks=None if attacks == "none" else attacks, attacked=attacked)
