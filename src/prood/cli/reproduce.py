"""prood reproduce cifar10 | cifar100 | rimgnet | table | figure | all"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Context, Option

from prood.cli.options import Device, console, separated
from prood.errors import BadValue, Mismatch, NotFound, Refuted, UnknownName

reproduce = typer.Typer(
    help="The paper's experiments: its models on CIFAR and Restricted ImageNet, and each of its tables and figures.",
    no_args_is_help=True,
)

Results = Annotated[Path, Option(help="Folder for the published results.")]
RecipeName = Annotated[str, Option("--recipe", help="quickstart, cifar10 or cifar100; or a .toml file of your own.")]
Runs = Annotated[Path | None, Option(help="Folder of the runs; else runs/RECIPE.")]
Docs = Annotated[Path, Option(help="Folder for the page experiments.md and its figures.")]
Seeds = Annotated[str, Option(metavar="N,…", help="Seeds of training that error bars are about.")]
Attacks = Annotated[
    str | None, Option(help="fast, paper, strong or none; else fast, on CIFAR paper.", show_default=False)
]
Attacked = Annotated[int | None, Option(help="Images of each set that are attacked; else 20, on CIFAR 100.", min=1)]
Train = Annotated[
    bool | None,
    Option(
        "--train/--only-published",
        help="Train what is missing, or use only what is published; else train, but CIFAR only on a GPU.",
        show_default=False,
    ),
]
Again = Annotated[bool, Option("--again", help="Make it again, whatever is there.")]


@reproduce.command("rimgnet")
@reproduce.command("cifar100")
@reproduce.command("cifar10")
def study(
    context: Context,
    fast: Annotated[
        bool, Option("--fast", help="Only the discriminator, ProoD at the recipe's shift, and its certificates.")
    ] = False,
    outside: Annotated[
        str | None, Option("--out", metavar="NAME", help="Train against another out-distribution.")
    ] = None,
    model: Annotated[
        list[str] | None,
        Option(help="Only this model, and what it needs (may be repeated): plain, oe, prood …, shipped."),
    ] = None,
    shift: Annotated[
        float | None, Option(help="Δ of the joint models, that of other seeds say; else chosen on training images.")
    ] = None,
    runs: Annotated[
        Path | None,
        Option(help="Folder for the runs; else runs/NAME; --out: NAME@OUT; --fast: NAME-fast; --seed: NAME/seed-N."),
    ] = None,
    results: Results = Path("results"),
    attacks: Annotated[
        str | None, Option(help="fast, paper, strong or none. Default: paper; for rimgnet fast.", show_default=False)
    ] = None,
    attacked: Annotated[
        int | None,
        Option(help="Images of each set to attack. Default: 100; for rimgnet 20.", min=1, show_default=False),
    ] = None,
    seed: Annotated[
        list[int] | None,
        Option(help="Seed of initialisation, order and augmentation (may be repeated).", show_default="0"),
    ] = None,
    jobs: Annotated[int, Option(help="So many steps at a time, each in a process of its own.", min=1)] = 1,
    device: Device = None,
) -> None:
    """The paper's models, for one modern GPU: train, choose shifts, certify, attack, publish.

    rimgnet is Restricted ImageNet at 224 pixels, and needs `pip install '.[imagenet]'`. Without a GPU it trains
    a small discriminator and combines it with a pretrained classifier (plain, discriminator, prood-s, shipped).
    With a GPU it also makes oe, discriminator-large, prood-s-large and prood-large.

    cifar10 and cifar100: plain, oe, discriminator-ibp (the paper's, with intervals), discriminator (ours, with
    linear bounds), prood-ibp, prood-s-ibp, prood, prood-s; and shipped, the compact model that comes with the
    package. What is in the folder already is not made again. 'prood results' then makes the page of all
    published results.
    """
    from prood import processes, report, studies
    from prood.studies.programs import run_fast

    if fast and (model or jobs > 1):
        raise BadValue("--fast makes two models, one after the other: leave out --model and --jobs, or --fast")
    name, seeds = str(context.info_name), tuple(seed or (0,))
    if fast and name == "rimgnet":
        raise BadValue("--fast is about CIFAR: 'prood reproduce rimgnet' without a GPU makes the small models alone")
    known = studies.STUDIES[name]()
    preset = known.attacks if attacks is None else None if attacks == "none" else attacks
    made = replace(known, outside=outside, shift=shift, attacks=preset, attacked=attacked or known.attacked)
    lab = studies.Lab(made, Path("runs"), results, seeds, own_shifts=True, training=True, device=device)
    # Folders of their own: what is trained against something else, and, with --fast, 'prood' with the recipe's shift.
    kind = name + (f"@{lab.against}" if outside else "") + ("-fast" if fast else "")
    # What is trained with another seed lies beneath that of seed 0, if there is no other place for it alone.
    home = seeds[0] if runs is not None and len(seeds) == 1 else 0
    lab = replace(lab, folder=runs or lab.folder / kind, home=home, command=_command(), console=console())
    if fast:
        for results_of_seed in run_fast(lab):
            lab.console.print(report.results_table(results_of_seed))
    else:
        report.write_cards(lab, studies.reproduce(lab, model or (), jobs=jobs))
    processes.stop()


@reproduce.command("figure")
@reproduce.command("table")
def experiment(
    context: Context,
    name: Annotated[str | None, Argument(metavar="NAME", help="Which; without a name they are listed.")] = None,
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
    """One of the paper's tables or figures; without a name, which there are.

    Models that are missing are trained, certified and attacked, and published under the folder of results; what is
    there is not made again. The experiment is a JSON file beside them, and a section of the page in the folder of docs.
    """
    from prood.report.experiments import EXPERIMENTS

    kind = str(context.info_name)
    known = {one.name: one for one in EXPERIMENTS if one.kind == kind}
    if name is None:
        for one in known.values():
            print(f"{one.name:<12} {one.title} ({one.paper})")
    elif name not in known:
        raise UnknownName(f"there is no {kind} {name!r}: choose one of {', '.join(known)}")
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
    """All tables and figures of the paper, on one recipe; the quickstart's in minutes, without a GPU.

    What is there already is not made again: started again after an interruption, it goes on. An experiment that cannot
    be made does not stop the others, and is named at the end.
    """
    _perform(context.params)


@reproduce.command("claims")
def claims(
    file: Annotated[Path, Argument(metavar="FILE", help="Published results of one model, a JSON file.")],
    model: Annotated[str, Option(help="A run's folder, or the name of a shipped model: the one it is about.")],
    outside: Annotated[
        list[str] | None, Option("--out", metavar="NAME,…", help="Only these sets; else all that were published.")
    ] = None,
    eps: Annotated[str | None, Option(metavar="RADIUS,…", help="Only these radii.")] = None,
    method: Annotated[str | None, Option(help="Only what this method certified: best, crown …")] = None,
    folder: Annotated[
        Path | None, Option(help="Folder for what is measured, to continue there; else runs/again/WEIGHTS.")
    ] = None,
    device: Device = None,
) -> None:
    """Measure published numbers again: score and certify the same images, and show both side by side.

    Accuracy, AUC and GAUC of what was published without attacks may differ by a tenth of a point, as machines round
    differently; false positive rates, which hang on single images, are only shown. The exit code is 0 if all hold.
    A set that is another here, though it has the same name, is said to be, and does not count.
    """
    from prood import evaluation, processes, studies
    from prood.report.claims import claims_table
    from prood.studies.claims import Which
    from prood.studies.published import read_one

    shown, radii = console(), [] if eps is None else evaluation.parse_radii(eps)
    which = Which(separated(outside), radii, method)
    found = studies.check_claims(read_one(file), model, which, folder=folder, device=device, console=shown)
    if processes.is_main():
        shown.print(claims_table(found))
    processes.stop()
    compared = [claim for claim in found if claim.same_images]
    if not compared:
        raise Mismatch("none of these sets has the images here that were published: get the same ones")
    failed = sum(not claim.holds for claim in compared)
    if failed:
        raise Refuted(f"{failed} of {len(compared)} evaluations differ from what {file} says")


def _perform(asked: dict[str, Any], kind: str | None = None) -> None:
    """Make experiments by the options of `table`, `figure` and `all`, then the page."""
    from prood import processes, studies
    from prood.report.experiments import EXPERIMENTS, perform_all
    from prood.report.experiments.document import write_page
    from prood.report.plots import check_packages

    check_packages()
    try:
        seeds = tuple(map(int, asked["seeds"].split(",")))
    except ValueError:
        raise BadValue(f"{asked['seeds']!r} are no seeds: write numbers such as 0,1,2") from None
    study = studies.study_of(asked["recipe"])
    preset = asked["attacks"] or study.attacks
    attacked = asked["attacked"] or study.attacked
    study = replace(study, attacks=None if preset == "none" else preset, attacked=attacked)
    folder = asked["runs"] or Path("runs") / study.name
    lab = studies.Lab(study, folder, asked["results"], seeds, training=asked["train"], device=asked["device"])
    lab = replace(lab, command=_command(), console=console())
    # Tables first: they train the models, and figures show all that are there.
    ordered = sorted(EXPERIMENTS, key=lambda one: one.kind != "table")
    experiments = [one for one in ordered if kind is None or (one.kind, one.name) == (kind, asked["name"])]
    failed = perform_all(experiments, lab, again=asked["again"])
    if processes.is_main():
        print(f"wrote {write_page(lab.results, asked['docs'])}")
    processes.stop()
    if failed:
        reasons = "; ".join(f"{key.replace('-', ' ', 1)} ({reason})" for key, reason in failed.items())
        raise NotFound(f"{len(failed)} of {len(experiments)} experiments could not be made: {reasons}")


def _command() -> str:
    """As it was typed, but for the folders of one machine: it is published."""
    from prood.studies.publishing import portable

    typed = [word.partition("=") for word in sys.argv[1:]]
    return " ".join(["prood", *(portable(word) + equals + portable(value) for word, equals, value in typed)])
