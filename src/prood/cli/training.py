"""prood quickstart, recipes and train: how models are made"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option
from typer.core import TyperCommand

from prood.cli.calibrating import Accept, Calibrate, Level, Outside, Provable, set_threshold, threshold_for
from prood.cli.options import Modules, Prior, RecipeName, Resume, console
from prood.errors import BadValue


def quickstart(
    out: Annotated[Path, Option(help="Folder for the runs and results.json.")] = Path("runs/quickstart"),
    seed: Annotated[int | None, Option(help="Another seed than the recipe's.")] = None,
) -> None:
    """Everything on handwritten digits, in minutes on a laptop: train, combine, certify, compare.

    Digits 0–7 are what the classifier knows; photographs, materials, text, faces, noise and the digits 8 and 9 are not.
    The table shows accuracy and, for each of these, how well confidence tells it from digits: AUC on the images as
    they are, GAUC guaranteed however an attacker changes them by up to ε per pixel. An interrupted quickstart continues
    where it stopped.
    """
    from prood import report, studies

    shown, page = console(), out / "report.html"
    results = studies.quickstart(out, seed=seed, console=shown)
    results.report(page)
    shown.print(report.results_table(replace(results, evaluations=tuple(one for one in results if one.attacks))))
    shown.print(f"curves, histograms and the worst images: {page}", soft_wrap=True, highlight=False)
    shown.print(f"a page to try it with pictures: prood serve {out / 'prood'}", soft_wrap=True, highlight=False)


def recipes(
    name: Annotated[str | None, Argument(help="A recipe, or a .toml file of yours, to be shown key by key.")] = None,
    module: Modules = None,
) -> None:
    """List the recipes, or show one with the meaning of every key.

    Each key can be changed in a command: prood train plain --recipe cifar10 --set train.epochs=10
    """
    from prood.training import explain_recipe, load_recipe, recipe_names

    shown = console()
    if name is not None:
        shown.print(explain_recipe(load_recipe(name, module or ())), markup=False, highlight=False, soft_wrap=True)
        return
    for known in recipe_names():
        shown.print(f"[bold]{known}[/]\n  {load_recipe(known).description}\n", highlight=False)
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
    method: Annotated[str, Argument(metavar="METHOD", help="What to train; see above.")],
    run: Annotated[Path | None, Option(help="Folder for the recipe, the metrics and the model.")] = None,
    recipe: RecipeName = "quickstart",
    discriminator: Annotated[Path | None, Option(help="Joint models: the discriminator's run.")] = None,
    shift: Annotated[float | None, Option(help="Joint models: Δ, added to g. Default: the recipe's.")] = None,
    prior: Prior = None,
    set: Annotated[
        list[str] | None, Option(metavar="KEY=VALUE", help="Change a setting: train.epochs=5, data.outside=svhn …")
    ] = None,
    seed: Annotated[int | None, Option(help="Seed of initialisation, order and augmentation.")] = None,
    resume: Resume = False,
    device: Annotated[str | None, Option(help="Device, e.g. cuda:1. Default: a GPU if there is one.")] = None,
    precision: Annotated[str | None, Option(help="float32, or bfloat16 (mixed, for GPUs).")] = None,
    compile: Annotated[bool, Option("--compile", help="Compile the step with torch.compile (for GPUs).")] = False,
    workers: Annotated[
        int | None,
        Option(help="Processes that read images which do not fit into memory. Default: by the cores.", min=0),
    ] = None,
    estimate: Annotated[
        bool, Option("--estimate", "--dry-run", help="Print the time and the memory it would take, and stop there.")
    ] = False,
    calibrate: Calibrate = None,
    accept: Accept = None,
    level: Level = None,
    provable: Provable = None,
    outside: Outside = None,
    module: Modules = None,
) -> None:
    """Train a network by a recipe into a run's folder.

    A few steps are measured first, and one line says how long the training takes and how much memory at its peak.
    With --calibrate a joint model gets its threshold at the end, as by 'prood calibrate'.
    """
    if run is None and not estimate:
        raise BadValue("a training needs a folder: give --run FOLDER, or --estimate to see what it would take")

    from prood import processes, training
    from prood.studies.shift import choice_of_shift

    given = {"seed": seed, "precision": precision, "compile": "true" if compile else None}
    settings = [f"train.{key}={value}" for key, value in given.items() if value is not None]
    resolved = training.load_recipe(recipe, module or ()).with_settings(method, [*(set or ()), *settings])
    shift = choice_of_shift(shift, prior)
    threshold = threshold_for(calibrate, accept, level, provable, outside)
    if threshold is not None:
        if resolved.method(method).kind != "joint":
            raise BadValue(f"--calibrate belongs to joint models: {method} makes none")
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
