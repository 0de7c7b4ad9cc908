"""The paper's tables of models: views on what is published, which differ in their rows, sets, radii and seeds."""

from dataclasses import replace

from prood.evaluation.words import set_name
from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import escaped
from prood.studies.lab import Lab

FACTORS = (1 / 3, 2 / 3, 4 / 3)
"""Of the radius that is trained for, where the recipe names no other."""
ADDITIONAL = ("places365", "textures", "uniform")
PAPERS = "openimages"
SEVERAL = ("oe", "discriminator", "prood")
"""What is trained for error bars where that takes minutes."""


def radii(lab: Lab) -> list[float]:
    """The other radii of the recipe, else smaller and larger ones; three digits, so that 0.3 has 0.1 beside it."""
    others = [eps for eps in lab.recipe.evaluate.eps if eps != lab.eps]
    return others or [float(f"{factor * lab.eps:.3g}") for factor in FACTORS]


def _radius(lab: Lab) -> Content:
    """Attacked at the largest of them only: that is the question of the paper, and attacks take the time."""
    asked = radii(lab)
    return {"tables": [rows.table(lab, rows.shown(lab), eps=eps, attack=eps == max(asked)) for eps in asked]}


def _sets(lab: Lab) -> Content:
    """Uniform noise, and the test set of what the models were trained against."""
    names = [set_name(name) for name in lab.recipe.evaluate.outside]
    return rows.table(lab, rows.shown(lab), sets=[name for name in names if name in (*ADDITIONAL, lab.against)])


def _sets_section(content: Content) -> str:
    against = content["outside"]
    if against not in content["sets"]:
        return rows.section(content, like=PAPERS)
    told = f"{escaped(against)} is the test set of what our models were trained against; the paper's is OpenImages."
    # Its models against 80M Tiny Images have no such table.
    return f"{rows.section(content, like=PAPERS, columns={against: PAPERS})}\n\n{told}"


def _separate(lab: Lab) -> Content:
    """Models combined of a classifier, beside those that are trained with the same discriminator."""
    joint = [node for node in lab.study.rows.values() if node.discriminator and node.table == "main"]
    joint.sort(key=lambda node: (node.intervals, node.classifier is None))
    separate = {node.name: node.classifier for node in joint if node.classifier}
    content = rows.table(lab, [*map(lab.study.node, dict.fromkeys(separate.values())), *joint])
    accuracy = {row["run"]: row["accuracy"] for row in content["rows"]}
    # Eq. 3 keeps the order of the classes.
    pairs = [(run, of) for run, of in separate.items() if run in accuracy and of in accuracy]
    return content | {"same_accuracy": {run: accuracy[run] == accuracy[of] for run, of in pairs}}


def _separate_section(content: Content) -> str:
    titles = {row["run"]: row["title"] for row in content["rows"]}
    words = {True: "has exactly OE's accuracy, as it must", False: "has **not** OE's accuracy, as it should have"}
    told = "; ".join(f"{titles[run]} {words[same]}" for run, same in content["same_accuracy"].items())
    table = rows.section(content, others=("OE", "ProoD-S", "ProoD"))
    return f"{table}\n\n{told}." if told else table


def _seeds(lab: Lab) -> Content:
    """On CIFAR the seeds that are there, unless training was asked for: each seed is half an hour of a GPU."""
    if lab.study.gpu and lab.training is None:
        lab = replace(lab, training=False)  # with the same lists of models and notes
    known = {name: any(lab.file(name, seed).is_file() for seed in lab.seeds) for name in lab.study.rows}
    nodes = [node for name, node in lab.study.rows.items() if (known[name] if lab.study.gpu else name in SEVERAL)]
    content = rows.table(lab, nodes, seeds=lab.seeds)
    if single := [row["title"] for row in content["rows"] if len(row["seeds"]) == 1]:
        lab.notes.append(f"Of one seed so far, and so without a deviation: {'; '.join(single)}.")
    return content


def _seeds_section(content: Content) -> str:
    table = rows.section(content, others=("Plain", "OE", "ProoD-Disc", "ProoD"), runs=5)
    fewer = "“(2)” is said of a mean of fewer seeds than its row names; what is of a single one has no ±."
    return f"{table}\n\n{fewer}"


MAIN = Experiment(
    "table",
    "main",
    "OOD performance: AUC, guaranteed AUC, adversarial AUC",
    "the main table, Section 4.2; trained against 80M Tiny Images, App. “80M Tiny Images”",
    lambda lab: rows.table(lab, rows.shown(lab)),
    rows.section,
)
FPR = Experiment(
    "table",
    "fpr",
    "False positive rates at 95% true positive rate (smaller is better)",
    "App. “False Positive Rates”",
    lambda lab: rows.table(lab, rows.shown(lab), kind="fpr"),
    rows.section,
)
SEPARATE = Experiment(
    "table",
    "separate",
    "Separate training (ProoD-S) beside semi-joint training (ProoD)",
    "App. “Separate Training for ProoD”",
    _separate,
    _separate_section,
)
SETS = Experiment("table", "sets", "Additional test sets", "App. “Additional Datasets”", _sets, _sets_section)
RADIUS = Experiment(
    "table",
    "radius",
    "Generalisation to radii that were not trained for",
    "App. “Generalization to Larger Threat Model”",
    _radius,
    lambda content: "\n\n".join(map(rows.section, content["tables"])),
)
SEEDS = Experiment(
    "table",
    "seeds",
    "Error bars: mean ± standard deviation over seeds",
    "App. “Error Bars”",
    _seeds,
    _seeds_section,
)
