"""prood quickstart, recipes and train"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option
from typer.core import TyperCommand

from prood.cli.calibrating import Accept, Calibrate, Level, Outside, Provable, set_threshold, threshold_for
from prood.cli.options import Device, Modules, Prior, RecipeName, Resume, console
from prood.errors import BadValue


def quickstart(
    out: Annotated[Path, Option(help="Folder for the runs and results.json.")] = Path("runs/quickstart"),
    seed: Annotated[int | None, Option(help="Seed for training. Default: the recipe's.")] = None,
) -> None:
    """Train, certify and compare on digits, in minutes on a laptop.

    The classifier knows the handwritten digits 0–7. Photographs, materials, text, faces, noise and the digits 8 and 9
    are unknown to it. The table shows the accuracy and, for each unknown kind, how well the confidence tells it from
    digits: AUC on clean images, and GAUC, which holds however an attacker changes them by up to ε per pixel. The same
    command continues an interrupted quickstart.
    """
    from prood import report, studies

    shown, page = console(), out / "report.html"
    results = studies.quickstart(out, seed=seed, console=shown)
    results.report(page)
    shown.print(report.results_table(replace(results, evaluations=tuple(one for one in results if one.attacks))))
    shown.print(f"curves, histograms and the worst images: {page}", soft_wrap=True, highlight=False)
    shown.print(f"a page to try it with pictures: prood serve {out / 'prood'}", soft_wrap=True, highlight=False)


def recipes(
    name: Annotated[
        str | None, Argument(help="Recipe or .toml file to show key by key. Omit NAME to list the recipes.")
    ] = None,
    module: Modules = None,
) -> None:
    """List the recipes, or explain every key of one.

    Change a key in a command: prood train plain --recipe cifar10 --set train.epochs=10
    """
    from prood.training import explain_recipe, load_recipe, recipe_names

    shown = console()
    if name is not None:
        shown.print(explain_recipe(load_recipe(name, module or ())), markup=False, highlight=False, soft_wrap=True)
        return
    for recipe_name in recipe_names():
        shown.print(f"[bold]{recipe_name}[/]\n  {load_recipe(recipe_name).description}\n", highlight=False)
    shown.print("'prood recipes NAME' explains every key of one.", highlight=False)


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
    method: Annotated[str, Argument(metavar="METHOD", help="Method to train, one of those listed above.")],
    run: Annotated[Path | None, Option(help="Folder for the recipe, metrics and model.")] = None,
    recipe: RecipeName = "quickstart",
    discriminator: Annotated[Path | None, Option(help="For joint models: run with the discriminator.")] = None,
    shift: Annotated[
        float | None, Option(help="For joint models: Δ, which is added to g. Default: the recipe's.")
    ] = None,
    prior: Prior = None,
    set: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="Change a setting: train.epochs=5, data.outside=svhn … Repeatable."),
    ] = None,
    seed: Annotated[
        int | None, Option(help="Seed for initialisation, order and augmentation. Default: the recipe's.")
    ] = None,
    resume: Resume = False,
    device: Device = None,
    precision: Annotated[
        str | None, Option(help="Arithmetic: float32, or bfloat16 (mixed, for GPUs). Default: the recipe's.")
    ] = None,
    compile: Annotated[bool, Option("--compile", help="Compile training steps with torch.compile (for GPUs).")] = False,
    workers: Annotated[
        int | None,
        Option(help="Processes that read images from disk. Default: chosen by the number of cores.", min=0),
    ] = None,
    estimate: Annotated[
        bool, Option("--estimate", "--dry-run", help="Print the expected time and memory, and train nothing.")
    ] = False,
    calibrate: Calibrate = None,
    accept: Accept = None,
    level: Level = None,
    provable: Provable = None,
    outside: Outside = None,
    module: Modules = None,
) -> None:
    """Train a network by a recipe, into a run's folder.

    Prood first measures a few steps, and prints the expected time and peak memory. With --calibrate it also sets the
    threshold of a joint model, as 'prood calibrate' does. The methods:
    """
    if run is None and not estimate:
        raise BadValue("training needs a folder: give --run FOLDER, or --estimate to see time and memory")

    from prood import processes, training
    from prood.studies.shift import choice_of_shift

    given = {"seed": seed, "precision": precision, "compile": "true" if compile else None}
    settings = [f"train.{key}={value}" for key, value in given.items() if value is not None]
    resolved = training.load_recipe(recipe, module or ()).with_settings(method, [*(set or ()), *settings])
    shift = choice_of_shift(shift, prior)
    threshold = threshold_for(calibrate, accept, level, provable, outside)
    if threshold is not None:
        if resolved.method(method).kind != "joint":
            raise BadValue(f"--calibrate works for joint models only, and {method} makes none: leave it out")
        if discriminator is not None:  # without one the training is refused
            threshold.check(discriminator)
    parts: dict[str, Any] = {"discriminator": discriminator, "shift": shift, "device": device, "workers": workers}
    if estimate:
        line = str(training.estimate(method, resolved, **parts))
    else:
        assert run is not None
        training.train(method, resolved, run, resume=resume, announce=True, console=console(), **parts)
        line = f"wrote {run}"
    if processes.is_main():
        print(line)
        if run is not None and not estimate:
            set_threshold(threshold, run, device)
    processes.stop()
