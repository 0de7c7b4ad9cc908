"""The property table for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from prood.compare.properties import RULES, Mark
from prood.compare.rows import FAR, Row
from prood.evaluation.words import MISSING, percent, radius_text
from prood.report.results import markdown_table

NOTES = {
    "robust acc": "accuracy when an attack may change in-distribution images within the same radius",
    "far conf": f"mean confidence in a class at x + {FAR:g}·n; 1/K says nothing, 100 is sure",
    "trained": "how long on the machine that ran the comparison",
}


def heading() -> list[str]:
    return ["model", *(rule.title for rule in RULES), *NOTES]


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each model: its marks with the numbers behind them, and what no rule judges."""
    made = []
    for row in rows:
        cells = [_cell(row, place) for place in range(len(RULES))]
        robust = None if row.robustness is None else row.robustness.robust_accuracy
        seconds = MISSING if row.seconds is None else f"{row.seconds:.0f} s"
        made.append([row.title, *cells, _percent(robust), _percent(row.far_confidence()), seconds])
    return made


def terminal(rows: Sequence[Row], inside: str, eps: float) -> Group:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold underline")
    for place, name in enumerate(heading()):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    for line in lines(rows):
        table.add_row(*map(Text, line))
    title = Text(f"In: {inside}, ε = {radius_text(eps)}; properties, with what was measured in percent", style="italic")
    return Group(title, table, *(Text(f"{name}: {text}", style="dim") for name, text in legend()))


def legend() -> list[tuple[str, str]]:
    return [*((rule.title, rule.says) for rule in RULES), *NOTES.items()]


def markdown(rows: Sequence[Row], inside: str, eps: float) -> str:
    table = markdown_table([heading(), *lines(rows)])
    rules = "\n".join(f"- **{name}**: {text}" for name, text in legend())
    head = f"In-distribution {inside}, ε = {radius_text(eps)}, in percent."
    return f"## Properties\n\n{head}\n\n{table}\n\n{rules}\n"


def _cell(row: Row, place: int) -> str:
    rule = RULES[place]
    sign = Mark(row.properties[rule.key]).sign
    number = rule.number(row)
    return sign if number is None else f"{sign} {percent(number)}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else percent(value)
