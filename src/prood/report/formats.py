"""The tables as Markdown, LaTeX and CSV."""

import csv
import io
from dataclasses import fields

from prood.evaluation.results import Evaluation, Results
from prood.evaluation.words import METRICS, MISSING, radius_text
from prood.report.markdown import escaped, markdown_table
from prood.report.table import GREY_NOTE, MEANING, Table, tables

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


def _tables(results: Results) -> list[Table]:
    return tables(results) + tables(results, "fpr")


def markdown(results: Results) -> str:
    parts = ["# Out-of-distribution detection", MEANING]
    for table in _tables(results):
        heads = [f"{name} {metric}" for name in table.sets for metric in table.metrics]
        lines = [["model", "Acc", *map(escaped, heads)]]
        for row in table.rows:
            plain = "*{}*" if row.grey else "{}"
            cells = [("**{}**" if cell.best else plain).format(cell.text) for cell in row.cells]
            lines.append([plain.format(escaped(row.model)), *cells])
        parts += [f"## {escaped(title(table))}", markdown_table(lines)]
        parts.append("Bold: the best." + (f" Italics: {GREY_NOTE}." if table.any_grey else ""))
    return "\n\n".join(parts) + "\n"


def latex(results: Results) -> str:
    parts = [
        "% Needs \\usepackage{booktabs}, \\usepackage{xcolor} and \\usepackage{graphicx}.\n"
        "% Bold: the best. Grey: " + GREY_NOTE + "."
    ]
    return "\n\n".join([*parts, *map(_latex_table, _tables(results))]) + "\n"


def latex_escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _latex_table(table: Table) -> str:
    step = len(table.metrics)
    spans = [(2 + step * place + 1, 2 + step * (place + 1)) for place in range(len(table.sets))]
    sets = [f"\\multicolumn{{{step}}}{{c}}{{{latex_escaped(name)}}}" for name in table.sets]
    rules = " ".join(f"\\cmidrule(lr){{{first}-{last}}}" for first, last in spans)
    body = []
    for row in table.rows:
        plain = r"\textcolor{{gray}}{{{}}}" if row.grey else "{}"
        cells = [(r"\textbf{{{}}}" if cell.best else plain).format(latex_escaped(cell.text)) for cell in row.cells]
        body.append([plain.format(latex_escaped(row.model)), *cells])
    heads = [["", "", *sets], ["Model", "Acc", *table.metrics * len(table.sets)]]
    first, second, *rest = (" & ".join(line) + r" \\" for line in heads + body)
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{latex_escaped(title(table))}.}}",
        r"\resizebox{\linewidth}{!}{%",
        f"\\begin{{tabular}}{{l{'r' * (1 + step * len(table.sets))}}}",
        *(r"\toprule", first, rules, second, r"\midrule"),
        *rest,
        *(r"\bottomrule", r"\end{tabular}}", r"\end{table}"),
    ]
    return "\n".join(lines)


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
