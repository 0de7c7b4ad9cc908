"""Rows of models with their numbers over the seeds, and the paper's rows of the same models."""

from collections.abc import Collection, Sequence
from typing import Any

from prood.evaluation.words import METRICS, Kind, radius_text, set_name
from prood.report.experiments.experiment import Content
from prood.report.formats import escaped, markdown_table, model_name, model_row
from prood.studies import Group
from prood.studies.graph import Node
from prood.studies.published import method_of
from prood.studies.rows import Statistic, paper_rows
from prood.studies.runner import Runner

HEADINGS = METRICS["auc"] | METRICS["fpr"]


OTHERS = ("Plain", "OE", "EB", "ATOM", "ACET", "GOOD80", "GOOD100", "ProoD-Disc", "ProoD")
"""The models of the paper's tables."""


def table(
    runner: Runner,
    nodes: Sequence[Node],
    *,
    eps: float | None = None,
    kind: Kind = "auc",
    seeds: Sequence[int | None] = (0,),
    sets: Sequence[str] = (),
    attack: bool = True,
) -> Content:
    """The nodes as rows, means over the seeds; by default at the radius that they were trained for, on all sets."""
    eps = runner.eps if eps is None else eps
    radii = () if eps in runner.recipe.evaluate.eps else (eps,)
    groups: dict[str, Group] = {}
    for node in nodes:
        found = [runner.published(node.name, seed, eps=radii, attack=attack) for seed in seeds]
        if there := tuple(one for one in found if one is not None):
            groups[node.name] = Group(there)
    if missing := [node.label for node in nodes if node.name not in groups]:
        of = f" with seed {seeds[0]}" if len(seeds) == 1 else ""
        runner.notes.append(f"Missing{of}, neither published nor trained: {'; '.join(missing)}.")
    names = list(sets) or [set_name(name) for name in runner.recipe.evaluate.outside]
    return {
        "inside": set_name(runner.inside_name),
        "outside": runner.against,
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
