"""prood reproduce cifar10 | cifar100 | rimgnet | table | figure | all"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Context, Option

from prood.cli.options import Device, console, formerly, separated
from prood.errors import BadValue, Mismatch, NotFound, Refuted, UnknownName

reproduce = typer.Typer(
    help="Reproduce the paper's experiments, check published numbers.",
    no_args_is_help=True,
)

Results = Annotated[Path, Option(help="Folder for published results.")]
RecipeName = Annotated[str, Option("--recipe", help="Recipe: quickstart, cifar10, cifar100 or a .toml file.")]
Runs = Annotated[Path | None, Option(help="Folder with the runs. Default: runs/RECIPE.")]
Docs = Annotated[Path, Option(help="Folder for the page experiments.md and its figures.")]
Seeds = Annotated[str, Option(metavar="N,…", help="Seeds of training, over which error bars are computed.")]
Attacks = Annotated[
    str | None, Option(help="Attacks: fast, paper, strong or none. Default: fast; for CIFAR paper.", show_default=False)
]
Attacked = Annotated[int | None, Option(help="Images to attack in each set. Default: 20; for CIFAR 100.", min=1)]
Train = Annotated[
    bool | None,
    Option(
        "--train/--only-published",
        help="Train missing models, or use published results only. Default: train; CIFAR only on a GPU.",
        show_default=False,
    ),
]
Again = Annotated[bool, Option("--again", help="Make the experiment again even if it exists.")]


@reproduce.command("rimgnet", context_settings=formerly(out="outside"))
@reproduce.command("cifar100", context_settings=formerly(out="outside"))
@reproduce.command("cifar10", context_settings=formerly(out="outside"))
def study(
    context: Context,
    fast: Annotated[
        bool, Option("--fast", help="Make only the discriminator, ProoD at the recipe's shift, and its certificates.")
    ] = False,
    outside: Annotated[
        str | None, Option(metavar="NAME", help="Out-distribution for training. Default: the recipe's.")
    ] = None,
    model: Annotated[
        list[str] | None,
        Option(help="Make only this model and those it needs: plain, oe, prood …, shipped. Repeatable."),
    ] = None,
    shift: Annotated[float | None, Option(help="Δ of the joint models. Default: chosen on training images.")] = None,
    runs: Annotated[
        Path | None,
        Option(help="Folder for the runs. Default: below runs/, by name, --outside, --fast and --seed."),
    ] = None,
    results: Results = Path("results"),
    attacks: Annotated[
        str | None,
        Option(help="Attacks: fast, paper, strong or none. Default: paper; for rimgnet fast.", show_default=False),
    ] = None,
    attacked: Annotated[
        int | None,
        Option(help="Images to attack in each set. Default: 100; for rimgnet 20.", min=1, show_default=False),
    ] = None,
    seed: Annotated[
        list[int] | None,
        Option(help="Seed for initialisation, order and augmentation. Repeatable.", show_default="0"),
    ] = None,
    jobs: Annotated[int, Option(help="Steps to run in parallel.", min=1)] = 1,
    device: Device = None,
) -> None:
    """Train, certify, attack and publish the paper's models, on one GPU.

    cifar10 and cifar100 have plain, oe, discriminator-ibp (the paper's, by intervals), discriminator (by linear
    bounds), prood-ibp, prood-s-ibp, prood, prood-s, and shipped, the compact model in the package. rimgnet is
    Restricted ImageNet at 224 pixels and needs Prood's extra `imagenet`. Without a GPU it makes plain,
    discriminator, prood-s and shipped; a GPU trains oe, discriminator-large, prood-s-large and prood-large as well.
    Prood reuses models and results that already exist. 'prood reproduce pages' then writes the page with all
    published results.
    """
    from prood import processes, report, studies
    from prood.studies.programs import run_fast

    if fast and (model or jobs > 1):
        raise BadValue("--fast makes two models in turn: leave out --model and --jobs, or --fast")
    name, seeds = str(context.info_name), tuple(seed or (0,))
    if fast and name == "rimgnet":
        raise BadValue("--fast is about CIFAR: 'prood reproduce rimgnet' without a GPU makes the small models alone")
    known = studies.STUDIES[name]()
    preset = known.attacks if attacks is None else None if attacks == "none" else attacks
    made = replace(known, outside=outside, shift=shift, attacks=preset, attacked=attacked or known.attacked)
    runner = studies.Runner(made, Path("runs"), results, seeds, own_shifts=True, training=True, device=device)
    # Folders of their own: what is trained against something else, and, with --fast, 'prood' with the recipe's shift.
    kind = name + (f"@{runner.against}" if outside else "") + ("-fast" if fast else "")
    # Runs with other seeds lie below the folder of seed 0, unless a folder is given for a single seed.
    home = seeds[0] if runs is not None and len(seeds) == 1 else 0
    runner = replace(runner, folder=runs or runner.folder / kind, home=home, command=_command(), console=console())
    if fast:
        for results_of_seed in run_fast(runner):
            runner.console.print(report.results_table(results_of_seed))
    else:
        report.write_cards(runner, studies.reproduce(runner, model or (), jobs=jobs))
    processes.stop()


@reproduce.command("figure")
@reproduce.command("table")
def experiment(
    context: Context,
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Table or figure to reproduce. Omit NAME to list them.")
    ] = None,
    recipe: RecipeName = "quickstart",
    runs: Runs = None,
    results: Results = Path("results"),
    docs: Docs = Path("docs"),
    seeds: Seeds = "0,1,2",
    attacks: Attacks = None,
    attacked: Attacked = None,
    train: Train = None,
    again: Again = False,
    device: Device = None,
) -> None:
    """Reproduce one table or figure. Omit NAME to list them.

    Prood trains, certifies, attacks and publishes missing models, and reuses those that exist. It writes the experiment
    as a JSON file beside the published results, and as a section of the page experiments.md.
    """
    from prood.report.experiments import EXPERIMENTS

    kind = str(context.info_name)
    experiments = {one.name: one for one in EXPERIMENTS if one.kind == kind}
    if name is None:
        for one in experiments.values():
            print(f"{one.name:<12} {one.title} ({one.paper})")
    elif name not in experiments:
        raise UnknownName(f"there is no {kind} {name!r}: choose one of {', '.join(experiments)}")
    else:
        _perform(context.params, kind)


@reproduce.command("all")
def everything(
    context: Context,
    recipe: RecipeName = "quickstart",
    runs: Runs = None,
    results: Results = Path("results"),
    docs: Docs = Path("docs"),
    seeds: Seeds = "0,1,2",
    attacks: Attacks = None,
    attacked: Attacked = None,
    train: Train = None,
    again: Again = False,
    device: Device = None,
) -> None:
    """Reproduce all tables and figures with one recipe.

    With the quickstart's recipe this takes minutes and no GPU. The same command continues an interrupted one. An
    experiment that fails does not stop the others; Prood names it at the end.
    """
    _perform(context.params)


@reproduce.command("claims", context_settings=formerly(out="outside", method="bound"))
def claims(
    file: Annotated[Path, Argument(metavar="FILE", help="JSON file with published results of one model.")],
    model: Annotated[str, Option(help="The model that was published: a run's folder, or the name of a shipped model.")],
    outside: Annotated[
        list[str] | None, Option(metavar="NAME,…", help="Sets to check. Default: all published ones.")
    ] = None,
    eps: Annotated[str | None, Option(metavar="RADIUS,…", help="Radii to check. Default: all published ones.")] = None,
    bound: Annotated[
        str | None, Option(help="Check only results certified in this way: best, crown … Default: all.")
    ] = None,
    folder: Annotated[Path | None, Option(help="Folder for the measurements. Default: runs/again/WEIGHTS.")] = None,
    device: Device = None,
) -> None:
    """Measure published numbers again, and show both side by side.

    Prood scores and certifies the same images; it repeats no attacks. Accuracy, AUC and GAUC may differ by a tenth of a
    point, as machines round differently. False positive rates depend on single images and are only shown. A local set
    with the same name but other images is named and not counted. The exit code is 0 if all numbers hold.
    """
    from prood import evaluation, processes, studies
    from prood.report.claims import claims_table
    from prood.studies.claims import Which
    from prood.studies.published import read_one

    shown, radii = console(), [] if eps is None else evaluation.parse_radii(eps)
    which = Which(separated(outside), radii, bound)
    found = studies.check_claims(read_one(file), model, which, folder=folder, device=device, console=shown)
    if processes.is_main():
        shown.print(claims_table(found))
    processes.stop()
    compared = [claim for claim in found if claim.same_images]
    if not compared:
        raise Mismatch("no set here has the published images: get the same ones")
    failed = sum(not claim.holds for claim in compared)
    if failed:
        raise Refuted(f"{failed} of {len(compared)} evaluations differ from what {file} says")


def _perform(asked: dict[str, Any], kind: str | None = None) -> None:
    """Make the experiments that the options name, then the page."""
    from prood import processes, studies
    from prood.report.experiments import EXPERIMENTS, perform_all
    from prood.report.experiments.document import write_page
    from prood.report.plots import check_packages

    check_packages()
    try:
        seeds = tuple(map(int, asked["seeds"].split(",")))
    except ValueError:
        raise BadValue(f"{asked['seeds']!r} is not a list of seeds: write numbers such as 0,1,2") from None
    study = studies.study_of(asked["recipe"])
    preset = asked["attacks"] or study.attacks
    attacked = asked["attacked"] or study.attacked
    study = replace(study, attacks=None if preset == "none" else preset, attacked=attacked)
    folder = asked["runs"] or Path("runs") / study.name
    runner = studies.Runner(study, folder, asked["results"], seeds, training=asked["train"], device=asked["device"])
    runner = replace(runner, command=_command(), console=console())
    # Tables first: they train the models, and figures show all that are there.
    ordered = sorted(EXPERIMENTS, key=lambda one: one.kind != "table")
    experiments = [one for one in ordered if kind is None or (one.kind, one.name) == (kind, asked["name"])]
    failed = perform_all(experiments, runner, again=asked["again"])
    if processes.is_main():
        print(f"wrote {write_page(runner.results, asked['docs'])}")
    processes.stop()
    if failed:
        reasons = "; ".join(f"{key.replace('-', ' ', 1)} ({reason})" for key, reason in failed.items())
        raise NotFound(f"{len(failed)} of {len(experiments)} experiments could not be made: {reasons}")


def _command() -> str:
    """The command line, for publishing: without the folders of this machine."""
    from prood.studies.publishing import portable

    typed = [word.partition("=") for word in sys.argv[1:]]
    return " ".join(["prood", *(portable(word) + equals + portable(value) for word, equals, value in typed)])
