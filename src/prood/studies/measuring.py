"""What is measured about a node of a study, and published."""

from typing import Any

from prood import processes
from prood.evaluation import Results, evaluate_run
from prood.evaluation import evaluate as evaluate_model
from prood.models import load
from prood.studies.graph import Measure, Node
from prood.studies.published import has_news
from prood.studies.published import publish as write
from prood.studies.site import Site


def evaluate(site: Site, node: Node, seed: int | None, measure: Measure) -> Results:
    """Evaluate a node into its folder, or all of a study into one; what is there is not made again."""
    study, planned = site.study, site.recipe.evaluate
    radii = list(measure.eps or site.radii)
    attacks, limit = (study.attacks, study.attacked) if measure.attacked else (None, study.limit)
    method = measure.bound or study.bound or site.recipe.evaluate_for(node.method).method
    options: dict[str, Any] = {
        "eps": radii[:1] if measure.first else radii,
        "attacks": attacks,
        "limit": planned.limit if limit is None else limit,
        "method": method,
        "device": site.device,
        "console": site.console,
    }
    run = site.place(node.name, seed)
    if study.together:
        model, _ = load(run)
        return evaluate_model(model, **site.sets, name=node.title, folder=site.folder, **options)
    compile = attacks in ("paper", "strong") and processes.device(site.device).type == "cuda"  # pays there
    return evaluate_run(run, inside=site.inside_name, outside=planned.outside, compile=compile, **options)


def publish(site: Site, node: Node, seed: int | None) -> None:
    """Write what a run's folder says into the published file, if that does not say it yet."""
    if processes.is_main():  # it alone looks whether there is news: it is the one that writes
        run, before = site.place(node.name, seed), site.read(node.name, seed)
        if before is None or before.weights != site.weights(node.name, seed) or has_news(run, before):
            file = site.file(node.name, seed)
            write(run, file, command=site.command, title=node.title, outside=site.against, seed=seed)
    processes.barrier()
