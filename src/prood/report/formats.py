"""The tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import fields

from prood.evaluation.results import Evaluation, Results
from prood.evaluation.words import METRICS, MISSING, radius_text
from prood.report.table import GREY_NOTE, Cell, Row, Table, tables

MEANING = (
    "AUC is the probability that an in-distribution image scores strictly above an out-of-distribution one. "
    "GAUC is a proved lower bound of it when every out-of-distribution image may be changed by up to ε per pixel, "
    "AAUC what is left of it under our attacks: GAUC ≤ worst case ≤ AAUC ≤ AUC. "
    "FPR, GFPR and AFPR are the same for the share of out-of-distribution images that pass when 95% of the "
    "in-distribution does: smaller is better."
)
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


def title(table: Table) -> str:
    what = "FPR at 95% TPR" if table.kind == "fpr" else "AUC"
    return f"{what} in percent, in-distribution {table.inside}, ε = {radius_text(table.eps)}"


def markdown(results: Results) -> str:
    parts = ["# Out-of-distribution detection", MEANING]
    for table in tables(results) + tables(results, "fpr"):
        heads = [f"{name} {metric}" for name in table.sets for metric in table.metrics]
        lines = [["model", "Acc", *map(_markdown, heads)], ["---", *["---:"] * (1 + len(heads))]]
        lines += [
            [_emphasis(row, _markdown(row.model)), *(_mark(row, cell) for cell in row.cells)] for row in table.rows
        ]
        parts.append(f"## {_markdown(title(table))}")
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts.append("Bold: the best." + (f" Italics: {GREY_NOTE}." if table.any_grey else ""))
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", " ".join(text.split()))


def _emphasis(row: Row, text: str) -> str:
    return f"*{text}*" if row.grey else text


def _mark(row: Row, cell: Cell) -> str:
    return f"**{cell.text}**" if cell.best else _emphasis(row, cell.text)


def latex(results: Results) -> str:
    parts = [
        "% Needs \\usepackage{booktabs}, \\usepackage{xcolor} and \\usepackage{graphicx}.\n"
        "% Bold: the best. Grey: " + GREY_NOTE + "."
    ]
    parts += [_latex_table(table) for table in tables(results) + tables(results, "fpr")]
    return "\n\n".join(parts) + "\n"


def latex_escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _latex_table(table: Table) -> str:
    step = len(table.metrics)
    spans = [(2 + step * place + 1, 2 + step * (place + 1)) for place in range(len(table.sets))]
    sets = [f"\\multicolumn{{{step}}}{{c}}{{{latex_escaped(name)}}}" for name in table.sets]
    heads = ["Model", "Acc", *table.metrics * len(table.sets)]
    rules = " ".join(f"\\cmidrule(lr){{{first}-{last}}}" for first, last in spans)
    body = [
        " & ".join([_coloured(row, row.model), *(_latex_cell(row, cell) for cell in row.cells)]) for row in table.rows
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{latex_escaped(title(table))}.}}",
        r"\resizebox{\linewidth}{!}{%",
        f"\\begin{{tabular}}{{l{'r' * (1 + step * len(table.sets))}}}",
        r"\toprule",
        " & ".join(["", "", *sets]) + r" \\",
        rules,
        " & ".join(heads) + r" \\",
        r"\midrule",
        *(f"{line} \\\\" for line in body),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _coloured(row: Row, text: str) -> str:
    return f"\\textcolor{{gray}}{{{latex_escaped(text)}}}" if row.grey else latex_escaped(text)


def _latex_cell(row: Row, cell: Cell) -> str:
    return f"\\textbf{{{cell.text}}}" if cell.best else _coloured(row, cell.text)


def csv_text(results: Results) -> str:
    """One line per evaluation, repeated ones too: all scalar fields, then the ends of the intervals; fractions of 1."""
    nested = {"intervals", "attack", "fingerprints", "scores"}
    scalars = [item.name for item in fields(Evaluation) if item.name not in nested]
    known = dict.fromkeys(["accuracy", *METRICS["auc"], *METRICS["fpr"]])
    measured = list(known | dict.fromkeys(name for item in results for name in item.intervals))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*scalars, *(f"{name}_{end}" for name in measured for end in ("low", "high"))])
    for item in results:
        ends = [end for name in measured for end in item.intervals.get(name, (None, None))]
        writer.writerow([*(getattr(item, name) for name in scalars), *ends])
    return file.getvalue()
