"""The paper's tables of models: rows of what is published of each, with the paper's rows among them."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from prood.evaluation.words import METRICS, Kind, radius_text, set_name
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import escaped, markdown_table, model_name, model_row
from prood.studies import Group
from prood.studies.graph import Node
from prood.studies.lab import Lab
from prood.studies.published import method_of
from prood.studies.rows import Statistic, paper_rows

HEADINGS = METRICS["auc"] | METRICS["fpr"]
OTHERS = ("Plain", "OE", "EB", "ATOM", "ACET", "GOOD80", "GOOD100", "ProoD-Disc", "ProoD")
"""The models of the paper's tables."""
FACTORS = (1 / 3, 2 / 3, 4 / 3)  # of the radius that is trained for, where the recipe names no other
ADDITIONAL = ("places365", "textures", "uniform")
SEVERAL = ("oe", "discriminator", "prood")  # what is trained for error bars where that takes minutes


def shown(lab: Lab, *, robust: bool = False) -> list[Node]:
    """The rows of a table of all methods. Robust classifiers have a table of their own, and are here if asked for.

    Baselines take an hour: outside of studies for a GPU they are shown where they were made before.
    """
    nodes = [node for node in lab.study.rows.values() if robust or node.table == "main"]
    return [
        one for one in nodes if lab.study.gpu or not one.baseline or lab.has(one.name) or lab.file(one.name).is_file()
    ]


def table(
    lab: Lab,
    nodes: Sequence[Node],
    *,
    eps: float | None = None,
    kind: Kind = "auc",
    seeds: Sequence[int | None] = (0,),
    sets: Sequence[str] = (),
    attack: bool = True,
) -> Content:
    """The nodes as rows, means over the seeds; by default at the radius that they were trained for, on all sets."""
    eps = lab.eps if eps is None else eps
    radii = () if eps in lab.recipe.evaluate.eps else (eps,)
    groups: dict[str, Group] = {}
    for node in nodes:
        found = [lab.published(node.name, seed, eps=radii, attack=attack) for seed in seeds]
        if there := tuple(one for one in found if one is not None):
            groups[node.name] = Group(there)
    if missing := [node.label for node in nodes if node.name not in groups]:
        of = f" with seed {seeds[0]}" if len(seeds) == 1 else ""
        lab.notes.append(f"Not here{of}, neither published nor trained: {'; '.join(missing)}.")
    names = list(sets) or [set_name(name) for name in lab.recipe.evaluate.outside]
    return {
        "inside": set_name(lab.inside_name),
        "outside": lab.against,
        "eps": eps,
        "metrics": list(METRICS[kind]),
        "sets": names,
        "rows": [_row(run, group, names, eps, kind) for run, group in groups.items()],
        "certified": _counts(groups.values(), names, eps, "gauc"),
        "attacked": _counts(groups.values(), names, eps, "aauc"),
    }


def _row(run: str, group: Group, sets: Sequence[str], eps: float, kind: Kind) -> dict[str, Any]:
    cells = {name: {one: _numbers(group.statistic(one, name, eps)) for one in METRICS[kind]} for name in sets}
    seeds = [member.seed for member in group.members]
    facts = {"run": run, "title": group.title, "shifts": group.shifts, "seeds": seeds}
    return facts | {"accuracy": _numbers(group.accuracy()), "sets": cells}


def _numbers(statistic: Statistic | None) -> list[float | None] | None:
    """Mean and deviation, six digits of each, and of several seeds how many."""
    if statistic is None:
        return None
    pair = [None if value is None else float(f"{value:.6g}") for value in (statistic.mean, statistic.deviation)]
    return pair if statistic.deviation is None else [*pair, statistic.count]


def _counts(groups: Collection[Group], sets: Sequence[str], eps: float, metric: str) -> list[str]:
    """How many images of a set were certified, and by which method; or attacked, and by which preset."""
    found = [one for group in groups for name in sets for one in group.used(metric, name, eps)]
    words = ((one.images, method_of(one) if metric == "gauc" else one.attacks) for one in found)
    return [f"{images:,} images ({word})" for images, word in sorted(set(words), reverse=True)]


class Stored:
    """A row of a content, with the numbers of `Group`."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def statistic(self, metric: str, outside: str, eps: float) -> Statistic | None:
        found = self.row["sets"].get(outside, {}).get(metric)
        return None if found is None else Statistic(*found)

    def accuracy(self) -> Statistic | None:
        return None if self.row["accuracy"] is None else Statistic(*self.row["accuracy"])


def section(content: Content, *, others: Collection[str] = OTHERS, runs: int = 1, like: str | None = None) -> str:
    """Our rows, each with the paper's of the same model below it, then those of `others` that only the paper has.

    The paper's rows are those of models that it trained `runs` times, against what our training out-distribution stands
    for. With `like` that one stands for ours, also as a column.
    """
    metrics, eps, sets, outside = (content[key] for key in ("metrics", "eps", "sets", "outside"))
    named = [like if like and name == outside else name for name in sets]
    found = paper_rows(content["inside"], like or outside, eps, metrics)
    # The first of a title counts.
    papers = {row.title: row for row in reversed(found) if row.table["runs"] == runs and {*named} & row.values.keys()}
    titles = [ours["title"].partition(",")[0] for ours in content["rows"]]  # without ', linear bound', as the paper's
    lines = [["model", "Acc", *map(escaped, sets)]]
    for ours, title in zip(content["rows"], titles, strict=True):
        count = len(ours["seeds"])
        name = model_name(ours["title"], ours["shifts"], count)
        lines.append(model_row(name, Stored(ours), sets, metrics, eps, count))
        if row := papers.get(title):
            lines.append(model_row(f"↳ *{row.name}*", row, named, metrics, eps))
    for title, row in reversed(papers.items()):
        if title in {*others} - {*titles}:
            lines.append(model_row(f"{title}, *{row.name}*", row, named, metrics, eps))
    return f"{_caption(content)}\n\n{markdown_table(lines)}"


def _caption(content: Content) -> str:
    names = " / ".join(HEADINGS[metric] for metric in content["metrics"])
    seeds = {seed for row in content["rows"] for seed in row["seeds"]}
    of = f", seed {min(seeds)}" if len(seeds) == 1 else ""
    words = [f"{names}, ε = {radius_text(content['eps'])}, trained against {escaped(content['outside'])}{of}."]
    words += [f"Certified: {' and '.join(content['certified'])} of a set."] if content["certified"] else []
    attacked = f"Attacked: {' and '.join(content['attacked'])} of a set." if content["attacked"] else "Not attacked."
    return " ".join([*words, attacked])


def radii(lab: Lab) -> list[float]:
    """The other radii of the recipe, else smaller and larger ones; three digits, so that 0.3 has 0.1 beside it."""
    others = [eps for eps in lab.recipe.evaluate.eps if eps != lab.eps]
    return others or [float(f"{factor * lab.eps:.3g}") for factor in FACTORS]


def _radius(lab: Lab) -> Content:
    """Attacked at the largest of them only: that is the question of the paper, and attacks take the time."""
    asked = radii(lab)
    return {"tables": [table(lab, shown(lab), eps=eps, attack=eps == max(asked)) for eps in asked]}


def _sets(lab: Lab) -> Content:
    """Uniform noise, and the test set of what the models were trained against."""
    names = [set_name(name) for name in lab.recipe.evaluate.outside]
    return table(lab, shown(lab), sets=[name for name in names if name in (*ADDITIONAL, lab.against)])


def _sets_section(content: Content) -> str:
    against, text = content["outside"], section(content, like="openimages")  # others have no such table in the paper
    told = f"{escaped(against)} is the test set of what our models were trained against; the paper's is OpenImages."
    return f"{text}\n\n{told}" if against in content["sets"] else text


def _separate(lab: Lab) -> Content:
    """Models combined of a classifier, beside those that are trained with the same discriminator."""
    joint = [node for node in lab.study.rows.values() if node.discriminator and node.table == "main"]
    joint.sort(key=lambda node: (node.intervals, node.classifier is None))
    separate = {node.name: node.classifier for node in joint if node.classifier}
    content = table(lab, [*map(lab.study.node, dict.fromkeys(separate.values())), *joint])
    accuracy = {row["run"]: row["accuracy"] for row in content["rows"]}
    # Eq. 3 keeps the order of the classes.
    pairs = [(run, of) for run, of in separate.items() if run in accuracy and of in accuracy]
    return content | {"same_accuracy": {run: accuracy[run] == accuracy[of] for run, of in pairs}}


def _separate_section(content: Content) -> str:
    titles = {row["run"]: row["title"] for row in content["rows"]}
    words = {True: "has exactly OE's accuracy, as it must", False: "has **not** OE's accuracy, as it should have"}
    told = "; ".join(f"{titles[run]} {words[same]}" for run, same in content["same_accuracy"].items())
    text = section(content, others=("OE", "ProoD-S", "ProoD"))
    return f"{text}\n\n{told}." if told else text


def _seeds(lab: Lab) -> Content:
    """On CIFAR the seeds that are there, unless training was asked for: each seed is half an hour of a GPU."""
    if lab.study.gpu and lab.training is None:
        lab = replace(lab, training=False)  # with the same lists of models and notes
    known = {name: any(lab.file(name, seed).is_file() for seed in lab.seeds) for name in lab.study.rows}
    nodes = [node for name, node in lab.study.rows.items() if (known[name] if lab.study.gpu else name in SEVERAL)]
    content = table(lab, nodes, seeds=lab.seeds)
    if single := [row["title"] for row in content["rows"] if len(row["seeds"]) == 1]:
        lab.notes.append(f"Of one seed so far, and so without a deviation: {'; '.join(single)}.")
    return content


def _seeds_section(content: Content) -> str:
    text = section(content, others=("Plain", "OE", "ProoD-Disc", "ProoD"), runs=5)
    return f"{text}\n\n“(2)” is said of a mean of fewer seeds than its row names; what is of a single one has no ±."


_MAIN = (
    "OOD performance: AUC, guaranteed AUC, adversarial AUC",
    "the main table, Section 4.2; trained against 80M Tiny Images, App. “80M Tiny Images”",
)
MAIN = Experiment("table", "main", *_MAIN, lambda lab: table(lab, shown(lab)), section)
_FPR = "False positive rates at 95% true positive rate (smaller is better)", "App. “False Positive Rates”"
FPR = Experiment("table", "fpr", *_FPR, lambda lab: table(lab, shown(lab), kind="fpr"), section)
_SEPARATE = "Separate training (ProoD-S) beside semi-joint training (ProoD)", "App. “Separate Training for ProoD”"
SEPARATE = Experiment("table", "separate", *_SEPARATE, _separate, _separate_section)
SETS = Experiment("table", "sets", "Additional test sets", "App. “Additional Datasets”", _sets, _sets_section)
_RADIUS = "Generalisation to radii that were not trained for", "App. “Generalization to Larger Threat Model”"
RADIUS = Experiment("table", "radius", *_RADIUS, _radius, lambda content: "\n\n".join(map(section, content["tables"])))
_SEEDS = "Error bars: mean ± standard deviation over seeds", "App. “Error Bars”"
SEEDS = Experiment("table", "seeds", *_SEEDS, _seeds, _seeds_section)
