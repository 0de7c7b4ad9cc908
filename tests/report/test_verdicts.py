"""The numbers of somebody who deploys a model, and what a report says is missing."""

from dataclasses import replace

import pytest

from prood.evaluation.results import Results
from prood.report.formats import csv_text, markdown
from prood.report.page import page
from prood.report.table import left_out, results_table, tables, widest
from prood.report.verdicts import headings, rows, sentences, verdict_sentences, verdicts


@pytest.fixture
def own(make_results):
    """A model with a threshold of its own, on two sets at two radii."""
    shares = {"threshold": 0.5664, "accepted": 0.972, "passed": 0.013, "proved": 0.8}
    made = make_results(("ProoD",), ("smooth", "faces"), (0.1, 0.3))
    return [replace(one, **shares | {"proved": 0.8 if one.eps == 0.1 else 0.0}) for one in made]


def test_the_sentence_is_about_the_mean_over_sets_at_the_smallest_radius(own):
    assert verdict_sentences(own) == [
        "At this threshold (0.5664) ProoD accepts 97.2% of digits:test; of 2 sets outside 1.3% pass, "
        "and 80.0% stay rejected whatever changes by up to 0.1."
    ]
    nothing = [replace(one, proved=0.0) for one in own]
    assert verdict_sentences(nothing)[0].endswith("and no rejection is proved.")
    (single,) = sentences(verdicts([replace(one, passed=0.5) for one in own if one.outside == "faces"]))
    assert "of faces 50.0% pass" in single


def test_without_a_threshold_the_numbers_are_at_95_percent_and_that_is_said(make_results):
    items = list(make_results(("ProoD",), ("smooth",), (0.1,)))
    (text,) = verdict_sentences(items)
    assert "no threshold of its own" in text
    assert f"smooth {100 * items[0].fpr95:.1f}% pass" in text
    assert f"{100 * items[0].proved95:.1f}% stay rejected" in text
    assert rows(verdicts(items), [0.1]) == [
        ["ProoD", "–", "95.0", "smooth", f"{100 * items[0].fpr95:.1f}", f"{100 * items[0].proved95:.1f}"]
    ]
    assert len(headings([0.1])) == 6


def test_two_thresholds_at_once_are_none(own):
    """As where only some of the evaluations were asked for since the model was calibrated."""
    mixed = [replace(own[0], threshold=0.9), *own[1:]]
    assert [one.threshold for one in verdicts(mixed)] == [None, 0.5664]


def test_the_page_the_markdown_and_the_csv_have_them(own, parse):
    tree = parse(page(Results(tuple(own))))
    (text,) = tree.all("p", within="verdicts", cls="verdict")
    assert text["text"] == verdict_sentences(own)[0]
    shown = [[cell["text"] for cell in tree.all("td", row)] for row in tree.all("tr", within="verdicts")[1:]]
    assert shown == [["0.5664", "97.2", name, "1.3", "80.0", "0.0"] for name in ("smooth", "faces")]
    assert "At this threshold (0.5664)" in markdown(Results(tuple(own)))
    assert "0.5664,0.972,0.013,0.8" in csv_text(Results(tuple(own)))


def budgeted(make_results):
    """All images certified and a few of them attacked, as `prood evaluate` leaves it."""
    whole = make_results(("ProoD",), ("smooth", "faces"), (0.1,), count=400)
    few = make_results(("ProoD",), ("smooth", "faces"), (0.1,), count=40)
    certified = [replace(one, attacks=None, aauc=None, afpr95=None, attack={}) for one in whole]
    certified = [replace(one, scores=replace(one.scores, attacked=None)) for one in certified]
    return Results((*certified, *(replace(one, available=400) for one in few)))


def test_what_is_attacked_stands_together_and_what_is_proved_is_about_all(make_results, parse):
    results = budgeted(make_results)
    certified, attacked = results.evaluations[:2], results.evaluations[2:]
    assert widest(results) == list(certified)
    (table,) = tables(results, "auc")
    assert [cell.value for cell in table.rows[0].cells[1:4]] == [attacked[0].auc, attacked[0].gauc, attacked[0].aauc]
    (table,) = tables(results, "proved")
    assert table.rows[0].cells[1].value == certified[0].proved95
    said = left_out(results)
    assert "of 400 images of each set, 400 were certified and 40 attacked" in said
    tree = parse(page(results))
    assert any("400 were certified and 40 attacked" in entry["text"] for entry in tree.all("dd"))
    assert said in markdown(results)
    assert said in str(results_table(results).renderables[-1])


def test_nothing_is_said_where_nothing_is_left_out(results, parse):
    assert left_out(results) == ""
    tree = parse(page(results))
    assert not [entry for entry in tree.all("p", cls="note") if "Not evaluated" in entry["text"]]


def test_weights_that_were_replaced_count_no_more(make_results):
    old, new = (make_results(("ProoD",), ("smooth",), (0.1,), count=count).evaluations[0] for count in (400, 40))
    old = replace(old, fingerprints={"model": "old"})
    new = replace(new, fingerprints={"model": "new"})
    assert widest([old, new]) == [new]


def test_a_partly_evaluated_set_says_what_is_missing(make_results, parse):
    full = make_results(("Plain", "ProoD"), ("smooth", "faces"), (0.1, 0.3)).evaluations
    kept = [one for one in full if (one.outside, one.eps) != ("faces", 0.3) and (one.model, one.eps) != ("Plain", 0.3)]
    kept[0] = replace(kept[0], scores=None)
    tree = parse(page(Results(tuple(kept))))
    for name in ("scores", "roc", "price", "gallery"):
        notes = {entry["text"]: entry["attrs"] for entry in tree.all("p", within=name, cls="note")}
        assert notes["Not evaluated on faces at ε = 0.3: Plain, ProoD."] == {
            "class": "note", "data-eps": "0.3", "data-outside": "faces",
        }  # fmt: skip
        assert "Not evaluated on smooth at ε = 0.3: Plain." in notes
        assert "Scores on smooth at ε = 0.1 are not beside the results: Plain. Evaluate again." in notes
    assert len(tree.all("figure", within="scores")) == len(kept) - 1
