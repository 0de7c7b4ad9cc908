"""The tables as Markdown, LaTeX and CSV; Markdown that cannot be broken by what is put into it; a model's row in it."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Protocol

from prood.evaluation.results import Evaluation, Results
from prood.evaluation.words import METRICS, MISSING, PROVED, radius_text, without_path
from prood.report.openood import HEADINGS, WORDS, tables_of
from prood.report.table import GREY_NOTE, MEANING, VERDICTS, WHAT, Table, left_out, tables, widest
from prood.report.verdicts import headings, rows, sentences, verdicts
from prood.studies.rows import Statistic

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: f"{{{character}}}" for character in "[]*"},  # after \\ they would be its arguments
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "ε": r"$\varepsilon$",
    "≤": r"$\leq$",
    MISSING: "--",
}


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


def _title(table: Table) -> str:
    return f"{WHAT[table.kind]} in percent, in-distribution {without_path(table.inside)}, ε = {radius_text(table.eps)}"


def _all_tables(results: Results) -> list[Table]:
    return [table for kind in METRICS for table in tables(results, kind)]


def markdown(results: Results) -> str:
    parts = ["# Out-of-distribution detection", MEANING, VERDICTS]
    parts += [escaped(text) for text in [left_out(results)] if text]
    parts += _verdicts(results)
    for table in _all_tables(results):
        heads = [f"{name} {metric}" for name in table.sets for metric in table.metrics]
        lines = [["model", "Acc", *map(escaped, heads)]]
        for row in table.rows:
            plain = "*{}*" if row.grey else "{}"
            cells = [("**{}**" if cell.best else plain).format(cell.text) for cell in row.cells]
            lines.append([plain.format(escaped(row.model)), *cells])
        parts += [f"## {escaped(_title(table))}", markdown_table(lines)]
        parts.append("Bold: the best." + (f" Italics: {GREY_NOTE}." if table.any_grey else ""))
    for title, table_rows in tables_of(results):
        lines = [[escaped(cell) for cell in row] for row in (HEADINGS, *table_rows)]
        parts += [f"## OpenOOD: {escaped(title)}, in percent", WORDS, markdown_table(lines)]
    return "\n\n".join(parts) + "\n"


def _verdicts(results: Results) -> list[str]:
    """The sentence about each model's threshold, and the numbers behind it."""
    found = verdicts(widest(results))
    radii = sorted({eps for one in found for eps in one.proved})
    table = [[escaped(cell) for cell in line] for line in (headings(radii), *rows(found, radii))]
    listed = "\n".join(f"- {escaped(text)}" for text in sentences(found))
    return ["## Verdicts at each model's threshold, in percent", listed, markdown_table(table)]


def latex(results: Results) -> str:
    head = "% Needs \\usepackage{booktabs}, \\usepackage{xcolor} and \\usepackage{graphicx}.\n"
    head += f"% Bold: the best. Grey: {GREY_NOTE}."
    return "\n\n".join([head, *map(_latex_table, _all_tables(results))]) + "\n"


def latex_escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _latex_table(table: Table) -> str:
    step, count = len(table.metrics), len(table.sets)
    sets = [f"\\multicolumn{{{step}}}{{c}}{{{latex_escaped(name)}}}" for name in table.sets]
    rules = " ".join(f"\\cmidrule(lr){{{first}-{first + step - 1}}}" for first in range(3, 3 + step * count, step))
    body = [["", "", *sets], ["Model", "Acc", *map(latex_escaped, table.metrics * count)]]
    for row in table.rows:
        plain = r"\textcolor{{gray}}{{{}}}" if row.grey else "{}"
        cells = [(r"\textbf{{{}}}" if cell.best else plain).format(latex_escaped(cell.text)) for cell in row.cells]
        body.append([plain.format(latex_escaped(row.model)), *cells])
    first, second, *rest = (" & ".join(line) + r" \\" for line in body)
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{latex_escaped(_title(table))}.}}",
        r"\resizebox{\linewidth}{!}{%",
        f"\\begin{{tabular}}{{l{'r' * (1 + step * count)}}}",
        *(r"\toprule", first, rules, second, r"\midrule"),
        *rest,
        *(r"\bottomrule", r"\end{tabular}}", r"\end{table}"),
    ]
    return "\n".join(lines)


def csv_text(results: Results) -> str:
    """One line per evaluation, repeated ones too: all scalar fields, then the ends of the intervals; fractions of 1."""
    nested = {"intervals", "attack", "fingerprints", "scores"}
    scalars = [item.name for item in fields(Evaluation) if item.name not in nested]
    columns = dict.fromkeys(["accuracy", *METRICS["auc"], *METRICS["fpr"], *METRICS["proved"]])
    measured = list(columns | dict.fromkeys(name for item in results for name in item.intervals))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*scalars, *(f"{name}_{end}" for name in measured for end in ("low", "high"))])
    for item in results:
        ends = [end for name in measured for end in item.intervals.get(name, (None, None))]
        values = (item.value(name) if name in PROVED else getattr(item, name) for name in scalars)
        writer.writerow([*values, *ends])
    return file.getvalue()
