"""A comparison as files and for the terminal: its results, and the table of properties."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from prood.atomic import write_text
from prood.evaluation.words import MISSING, percent, radius_text
from prood.report.formats import markdown as results_markdown
from prood.report.markdown import markdown_table
from prood.report.table import results_table
from prood.studies.properties import FAR, RULES, Mark, Profile
from prood.studies.whole import Comparison

JSON_FILE, MARKDOWN_FILE = "compare.json", "compare.md"

NOTES = {
    "robust acc": "accuracy when an attack may change in-distribution images within the same radius",
    "far conf": f"mean confidence in a class at x + {FAR:g}·n; 1/K says nothing, 100 is sure",
    "trained": "how long on the machine that ran the comparison",
}


def save(comparison: Comparison, folder: Path) -> None:
    """Write compare.json and compare.md into the folder."""
    write_text(folder / JSON_FILE, json.dumps(comparison.to_json(), indent=2) + "\n")
    text = markdown(comparison.profiles, comparison.inside, comparison.eps)
    write_text(folder / MARKDOWN_FILE, f"{text}\n{results_markdown(comparison.results)}")


def show(comparison: Comparison, console: Console) -> None:
    console.print(results_table(comparison.results))
    console.print()
    console.print(terminal(comparison.profiles, comparison.inside, comparison.eps))


def heading() -> list[str]:
    return ["model", *(rule.title for rule in RULES), *NOTES]


def lines(profiles: Sequence[Profile]) -> list[list[str]]:
    """A line for each model: its marks with the numbers behind them, and what no rule judges."""
    made = []
    for profile in profiles:
        cells = [_cell(profile, place) for place in range(len(RULES))]
        robust = None if profile.robustness is None else profile.robustness.robust_accuracy
        seconds = MISSING if profile.seconds is None else f"{profile.seconds:.0f} s"
        made.append([profile.title, *cells, _percent(robust), _percent(profile.far_confidence()), seconds])
    return made


def terminal(profiles: Sequence[Profile], inside: str, eps: float) -> Group:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold underline")
    for place, name in enumerate(heading()):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    for line in lines(profiles):
        table.add_row(*map(Text, line))
    title = Text(f"In: {inside}, ε = {radius_text(eps)}; properties, with what was measured in percent", style="italic")
    return Group(title, table, *(Text(f"{name}: {text}", style="dim") for name, text in legend()))


def legend() -> list[tuple[str, str]]:
    return [*((rule.title, rule.says) for rule in RULES), *NOTES.items()]


def markdown(profiles: Sequence[Profile], inside: str, eps: float) -> str:
    table = markdown_table([heading(), *lines(profiles)])
    rules = "\n".join(f"- **{name}**: {text}" for name, text in legend())
    head = f"In-distribution {inside}, ε = {radius_text(eps)}, in percent."
    return f"## Properties\n\n{head}\n\n{table}\n\n{rules}\n"


def _cell(profile: Profile, place: int) -> str:
    rule = RULES[place]
    sign = Mark(profile.properties[rule.key]).sign
    number = rule.number(profile)
    return sign if number is None else f"{sign} {percent(number)}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else percent(value)
