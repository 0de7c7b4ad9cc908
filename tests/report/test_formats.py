"""The report as Markdown, LaTeX and CSV."""

import csv
import re
from dataclasses import replace

import pytest

from prood.errors import NotFound, Unsupported
from prood.evaluation.results import Results
from prood.report import write_report
from prood.report.formats import csv_text, latex, latex_escaped, markdown
from prood.report.table import tables

NASTY = r"a_b & c|d <script> *e* [2pt] 100% #1 {x} ~ ^ \end{table} $y$"


@pytest.fixture
def nasty(make_results):
    results = make_results(("Plain", "OE"), ("smooth",), (8 / 255,))
    return Results(tuple(replace(item, model=NASTY) if item.model == "OE" else item for item in results))


@pytest.mark.slow
def test_the_ending_decides(results, tmp_path):
    begins = {"html": "<!doctype html>", "md": "# ", "tex": "% Needs", "csv": "model,inside,outside,eps,"}
    for ending, begin in begins.items():
        file = tmp_path / "new" / f"report.{ending.upper()}"
        results.report(file)
        assert file.read_text(encoding="utf-8").startswith(begin)


@pytest.mark.parametrize("name", ["report.pdf", "report", "html"])
def test_another_ending_is_refused(results, tmp_path, name):
    with pytest.raises(Unsupported):
        write_report(results, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_empty_results_are_refused(tmp_path):
    with pytest.raises(NotFound):
        write_report(Results(), tmp_path / "report.html")


def test_every_line_of_the_csv_is_an_evaluation_in_full_precision(results):
    repeated = results.plus(replace(results.evaluations[0], auc=1 / 3, aauc=None, intervals={}))
    lines = list(csv.DictReader(csv_text(repeated).splitlines()))
    assert len(lines) == len(repeated) == 71
    for line, item in zip(lines, repeated, strict=True):
        assert (line["model"], line["outside"], float(line["eps"])) == (item.model, item.outside, item.eps)
        assert [float(line[name]) for name in ("auc", "gauc", "fpr95", "gfpr95")] == [
            item.auc, item.gauc, item.fpr95, item.gfpr95,
        ]  # fmt: skip
        assert line["accuracy"] == ("" if item.accuracy is None else repr(item.accuracy))
    assert [float(lines[0]["gauc_low"]), float(lines[0]["gauc_high"])] == results.evaluations[0].intervals["gauc"]
    assert (lines[-1]["auc"], lines[-1]["aauc"], lines[-1]["auc_low"]) == (repr(1 / 3), "", "")
    assert not {"scores", "attack", "intervals"} & set(lines[0])


def test_names_survive_the_csv(nasty):
    assert [line["model"] for line in csv.DictReader(csv_text(nasty).splitlines())] == ["Plain", NASTY]


def markdown_rows(text):
    """Cells of the lines of all tables; a bar that is escaped separates nothing."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_markdown_table(results):
    everything = markdown_rows(markdown(results))
    assert everything[0][:2] == ["model", "threshold"]
    rows = everything[2 + 5 * 7 :]  # after the verdicts: each model on each set
    assert len(rows) == 6 * (2 + 5), "three kinds at two radii"
    assert {len(row) for row in rows} == {2 + 7 * 3}
    assert rows[0][:5] == ["model", "Acc", "photographs AUC", "photographs GAUC", "photographs AAUC"]
    table = tables(results)[0]
    assert table.rows[2].grey
    assert rows[4] == ["*ProoD-Disc*", *(f"*{cell.text}*" for cell in table.rows[2].cells)]
    assert rows[2][1] == "**99.2**"
    for shown, row in zip(rows[2:4] + rows[5:7], (*table.rows[:2], *table.rows[3:]), strict=True):
        assert shown[1:] == [f"**{cell.text}**" if cell.best else cell.text for cell in row.cells]


def test_names_do_not_break_the_markdown(nasty):
    text = markdown(nasty)
    assert {len(row) for row in markdown_rows(text)[:3]} == {6}  # the verdicts
    assert {len(row) for row in markdown_rows(text)[4:]} == {5}
    assert "<script>" not in text.replace(r"\<", "")
    assert "ε = 8/255" in text


def latex_rows(text):
    """The cells of each line of each tabular, a \\multicolumn counted as often as it says."""
    rows = []
    for body in re.findall(r"\\begin\{tabular\}\{(l r*|l[r]*)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        for line in (line for line in body[1].splitlines() if line.endswith(r" \\")):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))]
            spans = [re.match(r"\\multicolumn\{(\d+)\}", cell) for cell in cells]
            rows.append((len(body[0]), sum(int(span[1]) if span else 1 for span in spans), cells))
    return rows


def assert_balanced(text):
    depth = 0
    for sign in re.findall(r"(?<!\\)[{}]", text.replace(r"\\", "")):
        depth += 1 if sign == "{" else -1
        assert depth >= 0
    assert depth == 0


def test_the_latex_tables(results):
    text = latex(results)
    assert_balanced(text)
    rows = latex_rows(text)
    assert len(rows) == 6 * (2 + 5)
    assert {(said, counted) for said, counted, _ in rows} == {(23, 23)}
    table = tables(results)[0]
    assert rows[2][2][:2] == ["Plain", r"\textbf{99.2}"]
    assert rows[4][2][:2] == [r"\textcolor{gray}{ProoD-Disc}", r"\textcolor{gray}{--}"]
    assert rows[6][2][1:] == [f"\\textbf{{{cell.text}}}" if cell.best else cell.text for cell in table.rows[4].cells]
    assert r"\cmidrule(lr){3-5} \cmidrule(lr){6-8}" in text
    assert r"\cmidrule(lr){21-23}" in text
    assert rows[-6][2][2:5] == [r"at 95\%", r"at 90\%", r"at 80\%"], "a bare % would end the line"
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 6
    for package in ("booktabs", "xcolor", "graphicx"):
        assert f"\\usepackage{{{package}}}" in text.splitlines()[0]


def test_names_do_not_break_the_latex(nasty):
    text = latex(nasty)
    assert_balanced(text)
    assert {(said, counted) for said, counted, _ in latex_rows(text)} == {(5, 5)}
    assert text.count(r"\end{table}") == 3, "the name's own is escaped"
    assert latex_escaped(NASTY) in text
    escaped = r"a\_b {[}2pt{]} 50\% \textasciitilde{} \textbackslash{}x"
    assert latex_escaped("a_b [2pt]\n 50% ~ \\x") == escaped
