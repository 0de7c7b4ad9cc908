import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from prood.evaluation.results import Evaluation, Results
from prood.evaluation.words import labels, radius_text, set_name, without_path
from prood.report.table import latest, results_table, tables


def made(model, outside="smooth", eps=0.3, auc=0.9, gauc=0.5, aauc=0.7, accuracy=0.99, **more):
    """Shares that pass are what the areas leave, so that both kinds of table order the models alike."""
    below = {"fpr95": 1 - auc, "gfpr95": 1 - gauc, "afpr95": None if aauc is None else 1 - aauc}
    return Evaluation(
        model, more.pop("inside", "digits:test"), outside, eps, 100, auc, gauc,
        aauc=aauc, accuracy=accuracy, **below, **more,
    )  # fmt: skip


def only(*evaluations, kind="auc"):
    (table,) = tables(Results(evaluations), kind)
    return table


def texts(row):
    return [cell.text for cell in row.cells]


def marks(table):
    return [[cell.best for cell in row.cells] for row in table.rows]


def test_accuracy_and_then_auc_gauc_and_aauc_of_each_set_in_percent():
    table = only(made("Plain", "smooth", auc=0.97512, gauc=0, aauc=0.1), made("Plain", "faces:test", auc=1.0))
    assert table.sets == ("smooth", "faces")
    assert table.metrics == ("AUC", "GAUC", "AAUC")
    assert texts(table.rows[0]) == ["99.0", "97.5", "0.0", "10.0", "100.0", "50.0", "70.0"]


def test_the_table_of_false_positives():
    table = only(
        made("A", auc=0.9, gauc=0.25, aauc=0.75), made("B", auc=0.8, gauc=0.3, aauc=0.75, accuracy=0.98), kind="fpr"
    )
    assert table.metrics == ("FPR", "GFPR", "AFPR")
    assert [texts(row)[1:] for row in table.rows] == [["10.0", "75.0", "25.0"], ["20.0", "70.0", "25.0"]]
    assert marks(table) == [[True, True, False, True], [False, False, True, True]], "smaller is better, accuracy is not"


def test_the_table_of_what_is_provably_rejected():
    shares = {"proved95": 0.125, "proved90": 0.25, "proved80": 0.5}
    table = only(made("A", **shares), made("B", **shares | {"proved80": 0.75}), kind="proved")
    assert table.metrics == ("at 95%", "at 90%", "at 80%")
    assert [texts(row)[1:] for row in table.rows] == [["12.5", "25.0", "50.0"], ["12.5", "25.0", "75.0"]]
    assert marks(table) == [[True, True, True, False], [True] * 4], "larger is better"


def test_an_older_result_without_scores_has_what_its_false_positives_say():
    table = only(made("A", gauc=0.25), made("B", "faces", gauc=0.5), kind="proved")
    assert table.metrics == ("at 95%",)
    assert [texts(row)[1:] for row in table.rows] == [["25.0", "–"], ["–", "50.0"]]
    table = only(made("A", gauc=0.25, proved90=0.5), made("B", gauc=0.5), kind="proved")
    assert [texts(row)[1:] for row in table.rows] == [["25.0", "50.0"], ["50.0", "–"]]


def test_what_was_not_measured_is_a_dash_and_what_nobody_measured_is_no_column():
    table = only(made("A", "x"), made("A", "y", aauc=None), made("B", "x"))
    assert texts(table.rows[0])[-3:] == ["90.0", "50.0", "–"]
    assert texts(table.rows[1])[-3:] == ["–", "–", "–"]
    assert only(made("A", aauc=None)).metrics == ("AUC", "GAUC")


def test_the_latest_evaluation_counts_and_keeps_the_place_of_the_first():
    results = [made("A", auc=0.1), made("B"), made("A", auc=0.8)]
    assert [(item.model, item.auc) for item in latest(results)] == [("A", 0.8), ("B", 0.9)]
    assert texts(only(*results).rows[0])[1] == "80.0"


def test_a_table_for_every_in_distribution_and_radius_in_order_of_appearance():
    results = [made("A", eps=0.3), made("A", eps=0.1), made("A", eps=0.3, inside="letters"), made("B", eps=0.1)]
    found = tables(Results(tuple(results)))
    assert [(table.inside, table.eps) for table in found] == [
        ("digits:test", 0.3),
        ("digits:test", 0.1),
        ("letters", 0.3),
    ]
    assert [row.model for row in found[1].rows] == ["A", "B"]


def test_models_that_lose_accuracy_or_have_none_are_grey():
    accuracies = {"best": 0.99, "at the limit": 0.96, "below": 0.9599, "none": None}
    table = only(*(made(model, accuracy=value) for model, value in accuracies.items()))
    assert [row.grey for row in table.rows] == [False, False, True, True]
    assert not only(made("A", accuracy=0.5247), made("B", accuracy=0.4947)).any_grey, "3 points but for rounding"
    assert not only(made("A", accuracy=None), made("B", accuracy=None)).any_grey, "nobody to compare with"


def test_the_best_of_a_column_is_marked_with_all_that_print_the_same_but_no_grey_one():
    table = only(
        made("A", auc=0.9001, gauc=0.6, aauc=0.2),
        made("B", auc=0.9004, gauc=0.61, aauc=0.1),
        made("grey", auc=0.9004, gauc=0.9, aauc=0.9, accuracy=None),
    )
    assert marks(table) == [[True, True, False, True], [True, True, True, False], [False] * 4]


def test_no_best_where_it_is_the_worst_possible_or_alone():
    nothing = {"gauc": 0.0, "aauc": 0.0004}
    assert marks(only(made("A", **nothing), made("B", **nothing))) == [[True, True, False, False]] * 2
    assert marks(only(made("A", **nothing), made("B", **nothing), kind="fpr"))[0][2:] == [False, False]
    assert marks(only(made("A"), made("grey", accuracy=None))) == [[False] * 4] * 2


def test_intervals_come_along():
    table = only(replace(made("A"), intervals={"auc": [0.85, 0.95]}))
    assert [cell.interval for cell in table.rows[0].cells] == [None, (0.85, 0.95), None, None]


@pytest.mark.parametrize(
    ("eps", "text"),
    [
        (8 / 255, "8/255"), (1 / 255, "1/255"), (0.3, "0.3"), (0.2, "0.2"), (51 / 255 + 1e-17, "0.2"), (0.0, "0"),
        (1.0, "1"), (0.03, "0.03"), (0.012345678, "0.0123457"), (1e-9, "1e-09"), (0.031372549, "8/255"), (2.0, "2"),
        (1e308, "1e+308"),
    ],
)  # fmt: skip
def test_radii(eps, text):
    assert radius_text(eps) == text


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("svhn", "svhn"),
        ("svhn:test", "svhn"),
        ("svhn:train", "svhn:train"),
        ("mosaic:svhn/test", "svhn"),
        ("mosaic:a/b/svhn/train", "svhn:train"),
        ("npz:svhn.npz", "svhn"),
        ("npz:svhn/test.npz", "svhn"),
        ("npz:svhn/train.npz", "svhn:train"),
        ("folder:my/svhn", "svhn"),
    ],
)
def test_the_column_of_a_set(name, short):
    assert set_name(name) == short


def test_a_path_is_no_name_for_a_reader():
    assert without_path("npz:/home/me/run/images/tiles/test.npz") == "tiles"
    assert without_path("digits:test") == "digits:test"


def test_labels_are_short_where_that_is_clear():
    names = ["photographs:test", "npz:a.npz", "npz:/far/away/b.npz", "smooth", ":odd"]
    assert list(labels(names).values()) == ["photographs", "a", "b", "smooth", ":odd"]
    assert labels(["smooth", "smooth:test"]) == {"smooth": "smooth", "smooth:test": "smooth:test"}
    own = ["folder:others/test", "folder:mine", "mosaic:/far/svhn/test", "digits:train"]
    assert list(labels(own).values()) == ["others", "folder:mine", "svhn", "digits:train"]  # not 'test' or 'folder'
    assert labels(["npz:x/a.npz", "npz:y/a.npz"]) == {"npz:x/a.npz": "npz:x/a.npz", "npz:y/a.npz": "npz:y/a.npz"}


def terminal(results, width=100, kind="auc", **options):
    console = Console(width=width, file=io.StringIO(), **options)
    console.print(results_table(Results(tuple(results)), kind))
    return console.file.getvalue()


def test_the_terminals_table_stacks_the_values_of_a_set():
    lines = terminal([made("Plain", auc=0.975, gauc=0.0, aauc=0.2), made("ProoD-Disc", accuracy=None)]).splitlines()
    assert lines[0] == "In: digits:test, ε = 0.3; AUC in percent"
    assert [line.split() for line in lines[1:8]] == [
        ["model", "Acc", "smooth"],
        ["Plain", "99.0", "AUC", "97.5"], ["AAUC", "20.0"], ["GAUC", "0.0"],
        ["ProoD-Disc", "–", "AUC", "90.0"], ["AAUC", "70.0"], ["GAUC", "50.0"],
    ]  # fmt: skip
    assert "not compared" in lines[8]


def test_the_terminals_table_of_false_positives():
    lines = terminal([made("A", auc=0.875, gauc=0.25, aauc=0.5)], kind="fpr").splitlines()
    assert [line.split()[-2:] for line in lines[2:5]] == [["FPR", "12.5"], ["AFPR", "50.0"], ["GFPR", "75.0"]]


def test_tables_of_two_kinds_in_the_terminal():
    console = Console(width=100, file=io.StringIO())
    console.print(results_table(Results((made("A", proved80=0.25),)), "auc", "proved"))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert [line[-1] for line in lines if "GAUC" in line or line[:2] == ["at", "80%"]] == ["50.0", "25.0"]


@pytest.mark.parametrize("width", [80, 100])
def test_seven_sets_fit_into_a_terminal(width):
    sets = ("photographs:test", "textures", "text", "faces", "smooth", "uniform", "left-out")
    lines = terminal([made(model, name, auc=1.0) for model in ("A", "ProoD-Disc") for name in sets], width).splitlines()
    assert lines[1].split() == ["model", "Acc", *(name.partition(":")[0] for name in sets)], "no name is broken"
    assert lines[2].split() == ["A", "99.0", "AUC", *["100.0"] * 7]
    assert max(map(len, lines)) <= width


def test_best_is_bold_and_grey_is_dim_and_names_are_no_markup():
    results = [made("[red]A", auc=0.8), made("B", auc=0.65), made("C", auc=0.6, accuracy=None)]
    shown = terminal(results, force_terminal=True, color_system="standard")
    assert "\x1b[1m80.0" in shown
    assert "\x1b[1m65.0" not in shown
    assert re.search(r"\x1b\[2m *60\.0", shown)
    assert "[red]A" in shown
