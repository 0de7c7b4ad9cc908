"""Tables of models: rows made of what is published of each, and their Markdown with the paper's rows among them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from prood.evaluation.words import METRICS, Kind, radius_text, set_name
from prood.report.markdown import escaped, markdown_table, model_name, model_row
from prood.studies import Group
from prood.studies.graph import Node
from prood.studies.lab import Lab
from prood.studies.published import method_of
from prood.studies.rows import Statistic, paper_rows

Content = dict[str, Any]
HEADINGS = {name: text for names in METRICS.values() for name, text in names.items()}
OTHERS = ("Plain", "OE", "EB", "ATOM", "ACET", "GOOD80", "GOOD100", "ProoD-Disc", "ProoD")
"""The models of the paper's tables."""


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
    groups: dict[str, Group] = {}
    for node in nodes:
        found = [lab.published(node.name, seed, eps=_radii(lab, eps), attack=attack) for seed in seeds]
        if there := tuple(one for one in found if one is not None):
            groups[node.name] = Group(there)
    missing = [node.label for node in nodes if node.name not in groups]
    if missing:
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
        "certified": _counts(groups.values(), names, eps, attacked=False),
        "attacked": _counts(groups.values(), names, eps, attacked=True),
    }


def section(
    content: Content,
    *,
    others: Collection[str] = OTHERS,
    runs: int = 1,
    like: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> str:
    """Our rows, each with the paper's of the same model below it, then those of `others` that only the paper has.

    The paper's rows are those of models that it trained `runs` times, against what our training out-distribution stands
    for, or against `like`. `columns` translates names of sets, from ours to the paper's.
    """
    metrics, eps, sets = content["metrics"], content["eps"], content["sets"]
    named = [(columns or {}).get(name, name) for name in sets]
    found = paper_rows(content["inside"], like or content["outside"], eps, metrics)
    rows = [row for row in found if row.table["runs"] == runs and any(name in row.values for name in named)]
    lines = [["model", "Acc", *map(escaped, sets)]]
    for ours in content["rows"]:
        count = len(ours["seeds"])
        name = model_name(ours["title"], ours["shifts"], count)
        lines.append(model_row(name, Stored(ours), sets, metrics, eps, count))
        same = [row for row in rows if row.title == _plain(ours["title"])]
        lines += [model_row(f"↳ *{row.name}*", row, named, metrics, eps) for row in same[:1]]
    here = {_plain(ours["title"]) for ours in content["rows"]}
    left = {row.title: row for row in reversed(rows) if row.title in set(others) - here}
    lines += [model_row(f"{row.title}, *{row.name}*", row, named, metrics, eps) for row in reversed(left.values())]
    return f"{_caption(content)}\n\n{markdown_table(lines)}"


class Stored:
    """A row of a content, with the numbers of `Group`."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def statistic(self, metric: str, outside: str, eps: float) -> Statistic | None:
        found = self.row["sets"].get(outside, {}).get(metric)
        return None if found is None else Statistic(*found)

    def accuracy(self) -> Statistic | None:
        found = self.row["accuracy"]
        return None if found is None else Statistic(*found)


def _row(run: str, group: Group, sets: Sequence[str], eps: float, kind: Kind) -> dict[str, Any]:
    return {
        "run": run,
        "title": group.title,
        "shifts": group.shifts,
        "seeds": [member.seed for member in group.members],
        "accuracy": _numbers(group.accuracy()),
        "sets": {
            name: {metric: _numbers(group.statistic(metric, name, eps)) for metric in METRICS[kind]} for name in sets
        },
    }


def _numbers(statistic: Statistic | None) -> list[float | None] | None:
    """Mean and deviation, six digits of each, and of several seeds how many."""
    if statistic is None:
        return None
    pair = [None if value is None else float(f"{value:.6g}") for value in (statistic.mean, statistic.deviation)]
    return pair if statistic.deviation is None else [*pair, statistic.count]


def _counts(groups: Collection[Group], sets: Sequence[str], eps: float, *, attacked: bool) -> list[str]:
    """How many images of a set were certified, and by which method; or attacked, and by which preset."""
    metric = "aauc" if attacked else "gauc"
    found = [one for group in groups for name in sets for one in group.used(metric, name, eps)]
    words = ((one.images, one.attacks if attacked else method_of(one)) for one in found)
    return [f"{images:,} images ({word})" for images, word in sorted(set(words), reverse=True)]


def _radii(lab: Lab, eps: float) -> tuple[float, ...]:
    return () if eps in lab.recipe.evaluate.eps else (eps,)


def _caption(content: Content) -> str:
    names = " / ".join(HEADINGS[metric] for metric in content["metrics"])
    seeds = {seed for row in content["rows"] for seed in row["seeds"]}
    of = f", seed {min(seeds)}" if len(seeds) == 1 else ""
    words = [f"{names}, ε = {radius_text(content['eps'])}, trained against {escaped(content['outside'])}{of}."]
    words += [f"Certified: {' and '.join(content['certified'])} of a set."] if content["certified"] else []
    attacked = f"Attacked: {' and '.join(content['attacked'])} of a set." if content["attacked"] else "Not attacked."
    return " ".join([*words, attacked])


def _plain(title: str) -> str:
    """'ProoD' of 'ProoD, linear bound': the paper's name of the method."""
    return title.partition(",")[0]
