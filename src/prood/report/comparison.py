"""A comparison as files and for the terminal: its results, and the table of properties."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from prood.atomic import write_text
from prood.evaluation.words import MISSING, percent, radius_text
from prood.report import formats
from prood.report.table import results_table
from prood.studies.comparing import Comparison
from prood.studies.properties import FAR, RULES, Mark, Profile, Rule

JSON_FILE, MARKDOWN_FILE = "compare.json", "compare.md"

NOTES = {
    "robust acc": "accuracy when an attack may change in-distribution images within the same radius",
    "far conf": f"mean confidence in a class at x + {FAR:g}·n; 1/K says nothing, 100 is sure",
    "trained": "how long on the machine that ran the comparison",
}
LEGEND = {rule.title: rule.says for rule in RULES} | NOTES


def save(comparison: Comparison, folder: Path) -> None:
    """Write compare.json and compare.md into the folder."""
    write_text(folder / JSON_FILE, json.dumps(comparison.to_json(), indent=2) + "\n")
    head = f"In-distribution {comparison.inside}, ε = {radius_text(comparison.eps)}, in percent."
    rules = "\n".join(f"- **{name}**: {text}" for name, text in LEGEND.items())
    table = formats.markdown_table(lines(comparison.profiles))
    text = f"## Properties\n\n{head}\n\n{table}\n\n{rules}\n\n{formats.markdown(comparison.results)}"
    write_text(folder / MARKDOWN_FILE, text)


def show(comparison: Comparison, console: Console) -> None:
    console.print(results_table(comparison.results))
    where = f"In: {comparison.inside}, ε = {radius_text(comparison.eps)}"
    console.print(Text(f"\n{where}; properties, with what was measured in percent", style="italic"))
    heads, *rows = lines(comparison.profiles)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold underline")
    for place, name in enumerate(heads):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(Group(table, *(Text(f"{name}: {text}", style="dim") for name, text in LEGEND.items())))


def lines(profiles: Sequence[Profile]) -> list[list[str]]:
    """The headings; then a line for each model: its marks with the numbers behind them, and what no rule judges."""
    made = [["model", *LEGEND]]
    for profile in profiles:
        robust = None if profile.robustness is None else profile.robustness.robust_accuracy
        shares = [MISSING if one is None else percent(one) for one in (robust, profile.far_confidence())]
        seconds = MISSING if profile.seconds is None else f"{profile.seconds:.0f} s"
        made.append([profile.title, *(_cell(profile, rule) for rule in RULES), *shares, seconds])
    return made


def _cell(profile: Profile, rule: Rule) -> str:
    sign, number = Mark(profile.properties[rule.key]).sign, rule.number(profile)
    return sign if number is None else f"{sign} {percent(number)}"
