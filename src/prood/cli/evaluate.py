"""prood evaluate RUN…"""

from pathlib import Path
from typing import Annotated

import typer

from prood.cli.train import Modules


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Folders of trained or combined models, or shipped ones by name."),
    ],
    outside: Annotated[
        list[str] | None,
        typer.Option("--out", metavar="NAME,…", help="Test out-distributions: svhn,smooth …; else the recipe's."),
    ] = None,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="NAME", help="The in-distribution; else the run's own test split.")
    ] = None,
    eps: Annotated[
        str | None, typer.Option(metavar="RADIUS,…", help="0.01,8/255 …; else the recipe's, or the one trained for.")
    ] = None,
    attacks: Annotated[str, typer.Option(help="fast, paper, strong, square (needs no gradients), or none.")] = "fast",
    limit: Annotated[
        int | None,
        typer.Option(help="Images of each out-distribution, chosen by the seed (0: all); else the recipe's.", min=0),
    ] = None,
    stop: Annotated[
        str,
        typer.Option(
            help="When the search for an image ends: auc (when no metric can change), bound (near the certified "
            "bound) or never."
        ),
    ] = "auc",
    method: Annotated[
        str | None,
        typer.Option(
            help="Of the certified bounds: best, ibp, crown-ibp, alpha-crown, crown or bab; else the recipe's."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the choice of images and of the attacks.", min=0)] = 0,
    batch: Annotated[int | None, typer.Option(help="Images at a time; else 250, fewer if they are big.", min=1)] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the passes of attacks, half a minute at first (for GPUs).")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
    module: Modules = None,
) -> None:
    """Score, certify and attack: AUC, GAUC, AAUC and the false positive rates, into each run's results.json.

    A shipped model has no folder of its own: its results go into runs/shipped/NAME.

    What is there already is not made again: an interrupted evaluation continues where it stopped.
    """
    from prood import processes
    from prood.cli.console import console
    from prood.evaluation import evaluate_run, parse_radii
    from prood.methods.declaring import load_modules
    from prood.report import results_table

    load_modules(module or ())
    shown = console()
    names = [name for part in outside or [] for name in part.split(",") if name]
    radii = None if eps is None else parse_radii(eps)
    for run in runs:
        results = evaluate_run(
            run,
            inside=inside,
            outside=names,
            eps=radii,
            attacks=None if attacks == "none" else attacks,
            stop=stop,
            method=method,
            limit=limit,
            seed=seed,
            batch=batch,
            compile=compile,
            device=device,
            console=shown,
        )
        if processes.is_main():
            shown.print(results_table(results))
    processes.stop()
