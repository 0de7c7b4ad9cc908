"""prood train METHOD, and prood combine"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from prood.errors import BadValue

PRIOR = "Instead of --shift: the fraction of inputs, 0.1 say, that you expect to be out-distribution."


Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        metavar="FILE.py|PACKAGE.MODULE",
        help="A module that declares methods of your own; importing it runs its code. May be given several times.",
    ),
]


class ListsMethods(TyperCommand):
    """A command whose help ends with the methods, asked for only when it is shown: what declares them loads torch."""

    @staticmethod
    def more() -> str:
        from prood.methods import METHODS
        from prood.methods.declaring import load_installed

        load_installed()
        return "\n\n".join(f"{name}: {kind.summary}." for name, kind in METHODS.items())

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.help = f"{self.help}\n\n{self.more()}"
        super().format_help(ctx, formatter)


def train(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="What to train; see above.")],
    run: Annotated[Path, typer.Option(help="Folder for the recipe, the metrics and the model.")],
    recipe: Annotated[str, typer.Option(help="A recipe that comes with Prood, or a .toml file.")] = "quickstart",
    discriminator: Annotated[Path | None, typer.Option(help="Joint models: the discriminator's run.")] = None,
    shift: Annotated[float | None, typer.Option(help="Joint models: Δ, added to g. Default: the recipe's.")] = None,
    prior: Annotated[float | None, typer.Option(help=PRIOR)] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Change a setting: train.epochs=5, data.outside=svhn …"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of initialisation, order and augmentation.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in this folder, if there is one.")] = False,
    device: Annotated[str | None, typer.Option(help="Device, e.g. cuda:1. Default: a GPU if there is one.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, or bfloat16 (mixed, for GPUs).")] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the step with torch.compile (for GPUs).")] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that read images which do not fit into memory. Default: by the cores.", min=0),
    ] = None,
    module: Modules = None,
) -> None:
    """Train a network by a recipe into a run's folder."""
    from prood import processes
    from prood.studies.shift import choice_of_shift
    from prood.training import load_recipe
    from prood.training import train as fit

    settings = list(set or [])
    settings += [f"train.seed={seed}"] if seed is not None else []
    settings += [f"train.precision={precision}"] if precision is not None else []
    settings += ["train.compile=true"] if compile else []
    resolved = load_recipe(recipe, module or ()).with_settings(method, settings)
    shift = choice_of_shift(shift, prior)
    fit(method, resolved, run, discriminator=discriminator, shift=shift, resume=resume, device=device, workers=workers)
    if processes.is_main():
        print(f"wrote {run}")
    processes.stop()


def combine(
    classifier: Annotated[Path, typer.Option(help="Run or file of a trained classifier (plain, oe …).")],
    discriminator: Annotated[Path, typer.Option(help="Run or file of a trained discriminator.")],
    run: Annotated[Path, typer.Option(help="Folder for the joint model.")],
    shift: Annotated[float | None, typer.Option(help="Δ, added to g: larger trusts the classifier more.")] = None,
    prior: Annotated[float | None, typer.Option(help=PRIOR)] = None,
) -> None:
    """ProoD-S: guard a classifier that is already trained with a discriminator, without further training."""
    from prood.studies.shift import choice_of_shift
    from prood.training import combine as join

    chosen = choice_of_shift(shift, prior)
    if chosen is None:
        raise BadValue("a joint model needs its Δ: give --shift, or --prior and it follows from that")
    join(classifier, discriminator, run, shift=chosen)
    print(f"wrote {run}")
