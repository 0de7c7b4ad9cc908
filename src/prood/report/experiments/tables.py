"""The paper's tables of models: rows of what is published of each, with the paper's rows among them."""

from dataclasses import replace

from prood.evaluation.words import set_name
from prood.report.experiments.experiment import Content, Experiment
from prood.report.experiments.rows import section, table
from prood.report.formats import escaped
from prood.studies.graph import Node
from prood.studies.runner import Runner

FACTORS = (1 / 3, 2 / 3, 4 / 3)  # of the radius that is trained for, where the recipe names no other
ADDITIONAL = ("places365", "textures", "uniform")
SEVERAL = ("oe", "discriminator", "prood")  # what is trained for error bars where that takes minutes


def shown(runner: Runner, *, robust: bool = False) -> list[Node]:
    """The rows of a table of all methods. Robust classifiers have a table of their own, and are here if asked for.

    Baselines take an hour: outside of studies for a GPU they are shown where they were made before.
    """
    nodes = [node for node in runner.study.rows.values() if robust or node.table == "main"]
    return [
        one
        for one in nodes
        if runner.study.gpu or not one.baseline or runner.has(one.name) or runner.file(one.name).is_file()
    ]


def radii(runner: Runner) -> list[float]:
    """The other radii of the recipe, else smaller and larger ones; three digits, so that 0.3 has 0.1 beside it."""
    others = [eps for eps in runner.recipe.evaluate.eps if eps != runner.eps]
    return others or [float(f"{factor * runner.eps:.3g}") for factor in FACTORS]


def _radius(runner: Runner) -> Content:
    """Attacked at the largest of them only: that is the question of the paper, and attacks take the time."""
    asked = radii(runner)
    return {"tables": [table(runner, shown(runner), eps=eps, attack=eps == max(asked)) for eps in asked]}


def _sets(runner: Runner) -> Content:
    """Uniform noise, and the test set of what the models were trained against."""
    names = [set_name(name) for name in runner.recipe.evaluate.outside]
    return table(runner, shown(runner), sets=[name for name in names if name in (*ADDITIONAL, runner.against)])


def _sets_section(content: Content) -> str:
    against, text = content["outside"], section(content, like="openimages")  # others have no such table in the paper
    caption = f"{escaped(against)} is the test set of what our models were trained against; the paper's is OpenImages."
    return f"{text}\n\n{caption}" if against in content["sets"] else text


def _separate(runner: Runner) -> Content:
    """Models combined of a classifier, beside those that are trained with the same discriminator."""
    joint = [node for node in runner.study.rows.values() if node.discriminator and node.table == "main"]
    joint.sort(key=lambda node: (node.intervals, node.classifier is None))
    separate = {node.name: node.classifier for node in joint if node.classifier}
    content = table(runner, [*map(runner.study.node, dict.fromkeys(separate.values())), *joint])
    accuracy = {row["run"]: row["accuracy"] for row in content["rows"]}
    # Eq. 3 keeps the order of the classes.
    pairs = [(run, of) for run, of in separate.items() if run in accuracy and of in accuracy]
    return content | {"same_accuracy": {run: accuracy[run] == accuracy[of] for run, of in pairs}}


def _separate_section(content: Content) -> str:
    titles = {row["run"]: row["title"] for row in content["rows"]}
    words = {True: "has exactly OE's accuracy, as it must", False: "has **not** OE's accuracy, as it should have"}
    sentence = "; ".join(f"{titles[run]} {words[same]}" for run, same in content["same_accuracy"].items())
    text = section(content, others=("OE", "ProoD-S", "ProoD"))
    return f"{text}\n\n{sentence}." if sentence else text


def _seeds(runner: Runner) -> Content:
    """On CIFAR the seeds that are there, unless training was asked for: each seed is half an hour of a GPU."""
    if runner.study.gpu and runner.training is None:
        runner = replace(runner, training=False)  # with the same lists of models and notes
    published = {name: any(runner.file(name, seed).is_file() for seed in runner.seeds) for name in runner.study.rows}
    nodes = [
        node for name, node in runner.study.rows.items() if (published[name] if runner.study.gpu else name in SEVERAL)
    ]
    content = table(runner, nodes, seeds=runner.seeds)
    if single := [row["title"] for row in content["rows"] if len(row["seeds"]) == 1]:
        runner.notes.append(f"One seed so far, hence no deviation: {'; '.join(single)}.")
    return content


def _seeds_section(content: Content) -> str:
    text = section(content, others=("Plain", "OE", "ProoD-Disc", "ProoD"), runs=5)
    return f"{text}\n\n“(2)” marks a mean over fewer seeds than the row names; a single seed has no ±."


_MAIN = (
    "OOD performance: AUC, guaranteed AUC, adversarial AUC",
    "the main table, Section 4.2; trained against 80M Tiny Images, App. “80M Tiny Images”",
)
MAIN = Experiment("table", "main", *_MAIN, lambda runner: table(runner, shown(runner)), section)
_FPR = "False positive rates at 95% true positive rate (smaller is better)", "App. “False Positive Rates”"
FPR = Experiment("table", "fpr", *_FPR, lambda runner: table(runner, shown(runner), kind="fpr"), section)
_SEPARATE = "Separate training (ProoD-S) beside semi-joint training (ProoD)", "App. “Separate Training for ProoD”"
SEPARATE = Experiment("table", "separate", *_SEPARATE, _separate, _separate_section)
SETS = Experiment("table", "sets", "Additional test sets", "App. “Additional Datasets”", _sets, _sets_section)
_RADIUS = "Generalisation to radii that were not trained for", "App. “Generalization to Larger Threat Model”"
RADIUS = Experiment("table", "radius", *_RADIUS, _radius, lambda content: "\n\n".join(map(section, content["tables"])))
_SEEDS = "Error bars: mean ± standard deviation over seeds", "App. “Error Bars”"
SEEDS = Experiment("table", "seeds", *_SEEDS, _seeds, _seeds_section)
