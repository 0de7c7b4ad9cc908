"""prood evaluate, compare, asymptotics: what models reach"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from prood.cli.options import MODEL, Device, Method, Modules, RecipeName, TrustCode, console, folders, separated

NEITHER = "{} is neither the folder of a run nor a shipped model: results are written into a folder"


def evaluate(
    runs: Annotated[
        list[Path],
        Argument(
            metavar="RUN…",
            callback=folders(NEITHER),
            help="Folders of trained or combined models, or shipped ones by name.",
        ),
    ],
    outside: Annotated[
        list[str] | None,
        Option("--out", metavar="NAME,…", help="Test out-distributions: svhn,smooth …; else the recipe's."),
    ] = None,
    inside: Annotated[
        str | None, Option("--in", metavar="NAME", help="The in-distribution; else the run's own test split.")
    ] = None,
    benchmark: Annotated[
        str | None,
        Option(help="openood-cifar10 or openood-cifar100: OpenOOD's lists, whole, at radius 0 and without attacks."),
    ] = None,
    eps: Annotated[
        str | None, Option(metavar="RADIUS,…", help="0.01,8/255 …; else the recipe's, or the one trained for.")
    ] = None,
    attacks: Annotated[
        str | None,
        Option(
            help="fast, paper, strong, square (needs no gradients), or none. Default: fast; on a CPU on as many images "
            "as take about 5 minutes, if --limit is not given either."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Option(help="Images of each out-distribution, chosen by the seed (0: all); else the recipe's.", min=0),
    ] = None,
    attack_limit: Annotated[
        int | None, Option(help="Attack only this number of images of each set; all are certified.", min=1)
    ] = None,
    minutes: Annotated[
        float | None, Option(help="Attack only as many images as take about this long in all.", min=0.1)
    ] = None,
    stop: Annotated[
        str,
        Option(
            help="When the search for an image ends: auc (when no metric can change), bound (near the certified "
            "bound) or never."
        ),
    ] = "auc",
    method: Method = None,
    seed: Annotated[int, Option(help="Of the choice of images and of the attacks.", min=0)] = 0,
    batch: Annotated[int | None, Option(help="Images at a time; else 250, fewer if they are big.", min=1)] = None,
    compile: Annotated[
        bool, Option("--compile", help="Compile the passes of attacks, half a minute at first (for GPUs).")
    ] = False,
    device: Device = None,
    trust_code: TrustCode = False,
    module: Modules = None,
) -> None:
    """Score, certify and attack: AUC, GAUC, AAUC, false positives and what is provably rejected, into results.json.

    A shipped model has no folder of its own: its results go into runs/shipped/NAME.

    What is there already is not made again: an interrupted evaluation continues where it stopped. Where not all images
    are attacked, the output and the report say how many are.
    """
    from prood import evaluation, processes, report
    from prood.evaluation.budget import budget_for
    from prood.methods.declaring import load_modules

    load_modules(module or ())
    shown, names = console(), separated(outside)
    radii = None if eps is None else evaluation.parse_radii(eps)
    options: dict[str, Any] = {"stop": stop, "method": method, "limit": limit, "seed": seed, "batch": batch}
    attacks = "none" if attacks is None and benchmark is not None else attacks
    options |= {"attacks": attacks or "fast", "compile": compile, "device": device, "benchmark": benchmark}
    asked = attacks is not None or limit is not None
    options["budget"] = budget_for(attack_limit, minutes, None if asked else processes.device(device))
    for run in runs:
        results = evaluation.evaluate_run(run, inside=inside, outside=names, eps=radii, console=shown, **options)
        if processes.is_main():
            shown.print(report.results_table(results, "auc", "proved"))
            for text in report.verdict_sentences(results):
                shown.print(text, soft_wrap=True, highlight=False, markup=False)
            shown.print(report.protocol_tables(results))
    processes.stop()


def compare(
    recipe: RecipeName = "quickstart",
    out: Annotated[Path, Option(help="Folder for the runs, compare.json and compare.md.")] = Path("runs/compare"),
    methods: Annotated[
        str, Option(metavar="RUN,…", help="plain,oe,acet,prood-s …; else all that the recipe has tables for.")
    ] = "",
    inside: Annotated[
        str | None, Option("--in", metavar="NAME", help="The in-distribution; else the recipe's test split.")
    ] = None,
    attacks: Annotated[str, Option(help="fast, paper or strong.")] = "fast",
    method: Method = None,
    limit: Annotated[
        int | None, Option(help="Images of each out-distribution, chosen by a seed (0: all); else the recipe's.", min=0)
    ] = None,
    seed: Annotated[int | None, Option(help="Another seed of training than the recipe's.")] = None,
    module: Modules = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Train and evaluate all methods on the same data, and say which properties each has, by measurement.

    Two tables: the results, and the property table of the paper's introduction with the numbers behind every tick and
    the rules that decide them. What is there already is not made again: an interrupted comparison continues.
    """
    from prood import processes, studies, training
    from prood.report import comparison
    from prood.studies.known import every_method

    loaded, shown = training.load_recipe(recipe, module or ()), console()
    bound: Any = method  # a wrong word is refused there
    attacked = loaded.evaluate.limit if limit is None else limit
    study = replace(every_method(loaded), inside=inside, attacks=attacks, attacked=attacked, bound=bound)
    lab = studies.Lab(study, out, seeds=(seed,), home=seed, device=device, console=shown)
    found = studies.compare(lab, separated([methods]))
    if processes.is_main():
        comparison.save(found, out)
        comparison.show(found, shown)
        files = f"{out / comparison.MARKDOWN_FILE}, {out / comparison.JSON_FILE}"
        shown.print(f"the tables, and the numbers as data: {files}", soft_wrap=True)
    processes.stop()


def asymptotics(
    model: Annotated[str, MODEL],
    directions: Annotated[int, Option(help="Random directions of each kind.", min=1)] = 1000,
    adversarial: Annotated[int, Option(help="Directions that an adversary searches for.", min=1)] = 100,
    search: Annotated[str, Option(help="Its schedule: far, or the paper's (40,000 steps).")] = "far",
    guard: Annotated[
        float | None, Option(help="With this guard outside [0, 1] instead of the model's own.", min=0)
    ] = None,
    outside: Annotated[
        str, Option("--out", metavar="NAME", help="The images at which trajectories start.")
    ] = "uniform",
    inside: Annotated[
        str | None, Option("--in", metavar="NAME", help="Also how well it tells these from points far away (AUC).")
    ] = None,
    figure: Annotated[Path | None, Option(metavar="FILE.svg", help="Draw the curves there.")] = None,
    json: Annotated[Path | None, Option(metavar="FILE.json", help="Write what was found there.")] = None,
    seed: Annotated[int, Option(help="Of directions, trajectories and the search.", min=0)] = 0,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Far away from all data: does the confidence fall to 1/K, as Theorem 1 of the paper says?

    Checks the conditions of the theorem on the weights as they are stored, follows random directions to infinity, and
    searches for directions in which the model stays sure of itself. Exit code 1 if a condition is violated.
    """
    from prood.evaluation.asymptotics import study_run
    from prood.report import far

    counts = {"directions": directions, "adversarial": adversarial, "seed": seed}
    found = study_run(model, outside=outside, inside=inside, guard=guard, search=search, device=device, **counts)
    print(*far.lines(found), sep="\n")
    if figure is not None:
        far.draw_model(found.to_json(), figure)
    if json is not None:
        far.write(found.to_json(), json)
    if not found.theorem.holds:
        raise Exit(1)
