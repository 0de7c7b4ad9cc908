"""prood evaluate, compare, reproduce asymptotics"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from prood.cli.options import MODEL, Bound, Device, Modules, RecipeName, TrustCode, console, folders, separated

NEITHER = "{} is neither the folder of a run nor a shipped model: check its path"


def evaluate(
    runs: Annotated[
        list[Path],
        Argument(
            metavar="RUN…",
            callback=folders(NEITHER),
            help="Folders with trained or combined models, or names of shipped ones.",
        ),
    ],
    outside: Annotated[
        list[str] | None,
        Option(metavar="NAME,…", help="Test out-distributions: svhn,smooth … Default: the recipe's."),
    ] = None,
    inside: Annotated[
        str | None, Option(metavar="NAME", help="The in-distribution. Default: the test split of the run's own.")
    ] = None,
    benchmark: Annotated[
        str | None,
        Option(help="openood-cifar10 or openood-cifar100: all of OpenOOD's images, at radius 0, without attacks."),
    ] = None,
    eps: Annotated[
        str | None,
        Option(metavar="RADIUS,…", help="Radii: 0.01,8/255 … Default: the recipe's, or the radius of training."),
    ] = None,
    attacks: Annotated[
        str | None,
        Option(
            help="fast, paper, strong, square (needs no gradients) or none. Default: fast; on a CPU without --limit on "
            "as many images as take about 5 minutes."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Option(
            help="Images from each out-distribution, chosen by the seed; 0 takes all. Default: the recipe's.", min=0
        ),
    ] = None,
    attack_limit: Annotated[
        int | None, Option(help="Images to attack in each set; Prood certifies all. Default: all.", min=1)
    ] = None,
    minutes: Annotated[
        float | None, Option(help="Attack only as many images as take about this many minutes.", min=0.1)
    ] = None,
    stop: Annotated[
        str,
        Option(
            help="When to stop attacking an image: auc (no metric can change any more), bound (near the certified "
            "bound) or never."
        ),
    ] = "auc",
    bound: Bound = None,
    seed: Annotated[int, Option(help="Seed for the choice of images and for attacks.", min=0)] = 0,
    batch: Annotated[int | None, Option(help="Images at a time. Default: 250, fewer if they are large.", min=1)] = None,
    compile: Annotated[
        bool, Option("--compile", help="Compile the attacks' passes, which takes half a minute (for GPUs).")
    ] = False,
    device: Device = None,
    trust_code: TrustCode = False,
    module: Modules = None,
) -> None:
    """Score, certify and attack: AUC, GAUC, AAUC, rejections, proofs.

    Results go into the run's results.json, those of a shipped model into runs/shipped/NAME. Prood reuses results that
    already exist, so an interrupted evaluation continues where it stopped. The output and the report state how many
    images were attacked.
    """
    from prood import evaluation, processes, report
    from prood.evaluation.budget import budget_for
    from prood.methods.declaring import load_modules

    load_modules(module or ())
    shown, names = console(), separated(outside)
    radii = None if eps is None else evaluation.parse_radii(eps)
    options: dict[str, Any] = {"stop": stop, "bound": bound, "limit": limit, "seed": seed, "batch": batch}
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
        str,
        Option(metavar="RUN,…", help="Methods: plain,oe,acet,prood-s … Default: all that the recipe has tables for."),
    ] = "",
    inside: Annotated[
        str | None, Option(metavar="NAME", help="The in-distribution. Default: the recipe's test split.")
    ] = None,
    attacks: Annotated[str, Option(help="Attacks: fast, paper or strong.")] = "fast",
    bound: Bound = None,
    limit: Annotated[
        int | None,
        Option(help="Images from each out-distribution, chosen by a seed; 0 takes all. Default: the recipe's.", min=0),
    ] = None,
    seed: Annotated[int | None, Option(help="Seed for training. Default: the recipe's.")] = None,
    module: Modules = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Train and evaluate all methods on the same data.

    Two tables show the results, and which properties each method has (the table in the paper's introduction), with the
    numbers and rules that decide each tick. The same command continues an interrupted comparison.
    """
    from prood import processes, studies, training
    from prood.report import comparison
    from prood.studies.known import every_method

    loaded, shown = training.load_recipe(recipe, module or ()), console()
    way: Any = bound  # a wrong word is refused below
    attacked = loaded.evaluate.limit if limit is None else limit
    study = replace(every_method(loaded), inside=inside, attacks=attacks, attacked=attacked, bound=way)
    runner = studies.Runner(study, out, seeds=(seed,), home=seed, device=device, console=shown)
    found = studies.compare(runner, separated([methods]))
    if processes.is_main():
        comparison.save(found, out)
        comparison.show(found, shown)
        files = f"{out / comparison.MARKDOWN_FILE}, {out / comparison.JSON_FILE}"
        shown.print(f"the tables, and the numbers as data: {files}", soft_wrap=True)
    processes.stop()


def asymptotics(
    model: Annotated[str, MODEL],
    directions: Annotated[int, Option(help="Number of random directions of each kind.", min=1)] = 1000,
    adversarial: Annotated[int, Option(help="Number of directions that an adversary searches for.", min=1)] = 100,
    search: Annotated[str, Option(help="Schedule of that search: far, or paper (40,000 steps).")] = "far",
    far_penalty: Annotated[
        float | None, Option(help="Weight of the penalty outside [0, 1]. Default: the model's.", min=0)
    ] = None,
    outside: Annotated[str, Option(metavar="NAME", help="Images at which trajectories start.")] = "uniform",
    inside: Annotated[
        str | None, Option(metavar="NAME", help="Images to tell apart from points far away (AUC). Default: none.")
    ] = None,
    figure: Annotated[Path | None, Option(metavar="FILE.svg", help="File for a drawing of the curves.")] = None,
    json: Annotated[Path | None, Option(metavar="FILE.json", help="File for the findings.")] = None,
    seed: Annotated[int, Option(help="Seed for directions, trajectories and the search.", min=0)] = 0,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Test whether the confidence falls to 1/K far away from all data (the paper's Theorem 1).

    Prood checks the theorem's conditions on the stored weights, follows random directions to infinity, and searches for
    directions in which the model stays confident. Exit code 1 if a condition is violated.
    """
    from prood.evaluation.asymptotics import study_run
    from prood.report import far

    counts = {"directions": directions, "adversarial": adversarial, "seed": seed}
    found = study_run(
        model, outside=outside, inside=inside, far_penalty=far_penalty, search=search, device=device, **counts
    )
    print(*far.lines(found), sep="\n")
    if figure is not None:
        far.draw_model(found.to_json(), figure)
    if json is not None:
        far.write(found.to_json(), json)
    if not found.theorem.holds:
        raise Exit(1)
