"""The paper's numbers, transcribed into paper.json, as rows that stand in a table beside ours."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from prood.studies.seeds import Statistic

# Others are compared with 80M Tiny Images, which CIFAR-10 and CIFAR-100 were drawn from.
STANDS_FOR = {"openimages": "OpenImages", "natural32": "OpenImages"}


@dataclass(frozen=True)
class PaperRow:
    """A row of a table of the paper, as printed: in percent."""

    table: Mapping[str, Any]
    values: Mapping[str, Any]

    @property
    def title(self) -> str:
        return str(self.values["title"])

    @property
    def name(self) -> str:
        shift, runs = self.values["shift"], self.table["runs"]
        words = ["paper", self.table["outside"], f"Δ = {shift}" if shift is not None else ""]
        return ", ".join(filter(None, [*words, f"{runs} seeds" if runs > 1 else ""]))

    def statistic(self, metric: str, outside: str, eps: float) -> Statistic | None:
        place = self.table["metrics"].index(metric)
        return self._statistic(lambda values: values.get(outside, [None] * 3)[place])

    def accuracy(self) -> Statistic | None:
        return self._statistic(lambda values: values["accuracy"])

    def methods(self, outside: str, eps: float) -> set[str]:
        proved = self.statistic("gauc", outside, eps)
        return {"ibp"} if proved and proved.mean > 0 else set()

    def _statistic(self, read: Callable[[Mapping[str, Any]], float | None]) -> Statistic | None:
        mean, spread = read(self.values), self.values.get("deviation")
        deviation = read(spread) if spread else None
        return None if mean is None else Statistic(mean / 100, None if deviation is None else deviation / 100)


@cache
def paper() -> dict[str, Any]:
    """The content of paper.json: its source, and its tables."""
    return dict(json.loads(resources.files("prood.studies").joinpath("paper.json").read_text(encoding="utf-8")))


def paper_rows(inside: str, outside: str, eps: float, metrics: list[str]) -> list[PaperRow]:
    """The paper's rows at this radius, first those of models trained against what `outside` stands for.

    Of models that it trained only against something else, those; `PaperRow.name` says against what.
    """
    rows = [
        PaperRow(table, values)
        for table in paper()["tables"]
        if table["inside"] == inside and math.isclose(table["eps"], eps) and table["metrics"] == metrics
        for values in table["rows"]
    ]
    alike = [row for row in rows if row.table["outside"] == STANDS_FOR.get(outside, "80M Tiny Images")]
    there = {row.title for row in alike}
    return alike + [row for row in rows if row.title not in there]
