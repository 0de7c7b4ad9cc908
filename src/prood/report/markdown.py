"""Markdown that cannot be broken by what is put into it, and the rows of models that all its tables have."""

import re
from collections.abc import Sequence
from typing import Protocol

from prood.evaluation.words import MISSING
from prood.studies.rows import Statistic


class Numbers(Protocol):
    """What a row shows: of one of our models, or of one of the paper's."""

    def statistic(self, metric: str, outside: str, eps: float) -> Statistic | None: ...

    def accuracy(self) -> Statistic | None: ...


def code(text: str) -> str:
    """A command as code, also in the cell of a table."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


def escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", " ".join(text.split()))


def markdown_table(lines: list[list[str]], align: str = "---:") -> str:
    """The first line holds the headings; `align` is for all columns but the first, numbers as a rule."""
    rule = ["---", *[align] * (len(lines[0]) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def model_row(
    name: str, numbers: Numbers, sets: Sequence[str], metrics: Sequence[str], eps: float, seeds: int = 1
) -> list[str]:
    """The name, the accuracy, and for each set its metrics in one cell."""
    cells = [[numbers.statistic(metric, outside, eps) for metric in metrics] for outside in sets]
    texts = [" / ".join(text_of(one, seeds) for one in cell) if any(cell) else MISSING for cell in cells]
    return [name, text_of(numbers.accuracy(), seeds), *texts]


def model_name(title: str, shifts: Sequence[float], seeds: int) -> str:
    """The first cell of a model's row."""
    words = [f"Δ = {', '.join(f'{shift:g}' for shift in shifts)}"] if shifts else []
    words += [f"{seeds} seeds"] if seeds > 1 else []
    return ", ".join([f"**{escaped(title)}**", *words])


def text_of(statistic: Statistic | None, seeds: int = 1) -> str:
    return MISSING if statistic is None else statistic.text(seeds)
