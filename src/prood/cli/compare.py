"""prood compare"""

from pathlib import Path
from typing import Annotated, Any

import typer

from prood.cli.train import Modules


def compare(
    recipe: Annotated[str, typer.Option(help="A recipe that comes with Prood, or a .toml file.")] = "quickstart",
    out: Annotated[Path, typer.Option(help="Folder for the runs, compare.json and compare.md.")] = Path("runs/compare"),
    methods: Annotated[
        str, typer.Option(metavar="RUN,…", help="plain,oe,acet,prood-s …; else all that the recipe has tables for.")
    ] = "",
    inside: Annotated[
        str | None, typer.Option("--in", metavar="NAME", help="The in-distribution; else the recipe's test split.")
    ] = None,
    attacks: Annotated[str, typer.Option(help="fast, paper or strong.")] = "fast",
    method: Annotated[
        str | None,
        typer.Option(
            help="Of the certified bounds: best, ibp, crown-ibp, alpha-crown, crown or bab; else the recipe's."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Images of each out-distribution, chosen by a seed (0: all); else the recipe's.", min=0),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed of training than the recipe's.")] = None,
    module: Modules = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
) -> None:
    """Train and evaluate all methods on the same data, and say which properties each has, by measurement.

    Two tables: the results, and the property table of the paper's introduction with the numbers behind every tick and
    the rules that decide them. What is there already is not made again: an interrupted comparison continues.
    """
    from dataclasses import replace

    from prood import processes
    from prood.cli.console import console
    from prood.report import comparison
    from prood.studies import Lab
    from prood.studies import compare as run
    from prood.studies.known import every_method
    from prood.training import load_recipe

    loaded, shown = load_recipe(recipe, module or ()), console()
    bound: Any = method  # a wrong word is refused there
    attacked = loaded.evaluate.limit if limit is None else limit
    study = replace(every_method(loaded), inside=inside, attacks=attacks, attacked=attacked, bound=bound)
    lab = Lab(study, out, seeds=(seed,), home=seed, device=device, console=shown)
    found = run(lab, [name for name in methods.split(",") if name])
    if processes.is_main():
        comparison.save(found, out)
        comparison.show(found, shown)
        files = f"{out / comparison.MARKDOWN_FILE}, {out / comparison.JSON_FILE}"
        shown.print(f"the tables, and the numbers as data: {files}", soft_wrap=True)
    processes.stop()
