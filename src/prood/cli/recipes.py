"""prood recipes [NAME]"""

from typing import Annotated

import typer

from prood.cli.train import Modules


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="A recipe, or a .toml file of yours, to be shown key by key.")
    ] = None,
    module: Modules = None,
) -> None:
    """List the recipes, or show one with the meaning of every key.

    Each key can be changed in a command: prood train plain --recipe cifar10 --set train.epochs=10
    """
    from prood.cli.console import console
    from prood.training import explain_recipe, load_recipe, recipe_names

    shown = console()
    if name is not None:
        shown.print(explain_recipe(load_recipe(name, module or ())), markup=False, highlight=False, soft_wrap=True)
        return
    for known in recipe_names():
        shown.print(f"[bold]{known}[/]\n  {load_recipe(known).description}\n", highlight=False)
    shown.print("'prood recipes NAME' explains every key of one.", highlight=False)
