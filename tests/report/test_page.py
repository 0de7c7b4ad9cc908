"""The page, read as a browser reads it: by its elements."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from prood.evaluation.metrics import fpr, threshold
from prood.evaluation.results import Results
from prood.evaluation.scores import Scores
from prood.report.charts import certified, histogram, price_curves
from prood.report.gallery import confidence, picked, shown_each
from prood.report.markup import Chart
from prood.report.page import page
from prood.report.table import tables

SECTIONS = ["summary", "verdicts", "auc", "fpr", "proved", "price", "radius", "scores", "roc", "gallery", "attack"]


@pytest.fixture(scope="module")
def text(results):
    return page(results)


@pytest.fixture(scope="module")
def tree(text, parse):
    return parse(text)


def classes(entry):
    return (entry["attrs"].get("class") or "").split()


@pytest.mark.slow
def test_nothing_is_fetched_from_anywhere(text, tree):
    assert not tree.all("link")
    sources = [entry["attrs"][key] for entry in tree.elements for key in ("src", "href") if key in entry["attrs"]]
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert not re.findall(r"https?://|@import|url\(", text)


def test_sections_and_links_to_them(tree):
    assert [section["attrs"]["id"] for section in tree.all("section")] == SECTIONS
    (nav,) = tree.all("nav")
    assert [link["attrs"]["href"] for link in tree.all("a", nav)] == [f"#{name}" for name in SECTIONS]


def test_the_header_says_what_was_done(tree):
    named = dict(zip((x["text"] for x in tree.all("dt")), (x["text"] for x in tree.all("dd")), strict=True))
    assert named == {
        "In-distribution": "digits:test", "Radii ε": "0.1, 0.3", "Attack": "standard", "Images per set": "400",
        "Seed": "0", "Machine": "x86_64, 2 threads", "Version": "0.3", "Shift": "3",
    }  # fmt: skip
    (chain,) = tree.all("p", cls="chain")
    assert [part["text"] for part in tree.all("b", chain)] == ["GAUC", "worst case", "AAUC", "AUC"]
    assert chain["text"].count("≤") == 3


@pytest.mark.slow
def test_figures_begin_with_the_largest_radius_that_was_attacked(results, parse):
    def selected(results):
        return [x["attrs"]["value"] for x in parse(page(results)).all("option") if "selected" in x["attrs"]]

    assert selected(results) == ["0.3", ""]  # the second choice is the out-distribution: all of them
    spared = [one if one.eps == 0.1 else replace(one, aauc=None) for one in results]
    assert selected(Results(tuple(spared))) == ["0.1", ""]


@pytest.mark.slow
def test_scores_of_an_attack_that_stopped_early_are_explained(results):
    said = "as soon as it cannot change a metric any more"
    assert said not in page(Results(tuple(replace(one, stop="never") for one in results)))
    assert page(Results(tuple(replace(one, stop="auc") for one in results))).count(said) == 2  # scores and gallery


@pytest.mark.parametrize("kind", ["auc", "fpr", "proved"])
def test_the_tables_hold_values_marks_and_intervals(results, tree, kind):
    expected = tables(results, kind)
    found = tree.all("table", within=kind)
    assert len(found) == len(expected) == 2
    for table, shown in zip(expected, found, strict=True):
        (body,) = tree.all("tbody", shown)
        rows = tree.all("tr", body)
        assert [tree.all("th", row, scope="row")[0]["text"] for row in rows] == [row.model for row in table.rows]
        for row, line in zip(table.rows, rows, strict=True):
            assert ("grey" in classes(line)) == row.grey
            cells = tree.all("td", line)
            assert [cell["text"] for cell in cells] == [cell.text for cell in row.cells]
            assert ["best" in classes(cell) for cell in cells] == [cell.best for cell in row.cells]
            assert len(tree.all("b", line)) == sum(cell.best for cell in row.cells)
            for cell, drawn in zip(row.cells[1:], cells[1:], strict=True):
                low, high = cell.interval
                assert drawn["attrs"]["title"] == f"95% interval {100 * low:.1f} to {100 * high:.1f}"
        spans = [int(head["attrs"]["colspan"]) for head in tree.all("th", shown, scope="colgroup")]
        assert spans == [3] * 7
        assert len(tree.all("th", shown, scope="col")) == 2 + 21
    assert any("grey" in classes(row) for row in tree.all("tr", found[0]))


def test_headlines_are_those_of_the_model_that_proves_most(results, tree):
    tiles = tree.all("div", within="summary", cls="tile")
    assert tree.all("b", tiles[0])[0]["text"] == "99.1%"
    assert "accuracy of ProoD" in tiles[0]["text"]
    at = [item for item in results if item.model == "ProoD" and item.eps == 0.3]
    proved, found = (100 * np.mean([getattr(item, name) for item in at]) for name in ("gauc", "aauc"))
    assert tree.all("b", tiles[3])[0]["text"] == f"{proved:.1f} – {found:.1f}%"


def test_no_headline_is_about_a_model_that_is_grey(make_results, parse):
    results = make_results(sets=("uniform",), radii=(0.3,))
    proved = {item.model: item.gauc for item in results}
    assert max(proved, key=proved.get) == "ProoD-Disc"
    assert "ProoD-Disc" not in "".join(tile["text"] for tile in parse(page(results)).all("div", cls="tile"))


def test_a_histogram_for_every_model_set_and_radius(results, tree):
    figures = tree.all("figure", within="scores")
    assert len(figures) == len(results) == 70
    (first,) = tree.all("svg", figures[0])
    assert first["attrs"]["aria-label"].startswith("Histogram of the scores of Plain on photographs at ε = 0.1: AUC")
    kinds = [[classes(path)[1] for path in tree.all("path", figure, cls="steps")] for figure in figures]
    assert kinds.count(["inside", "clean", "attacked"]) == 28, "Plain and OE"
    assert kinds.count(["inside", "clean", "attacked", "certified"]) == 42
    for figure, drawn in zip(figures, kinds, strict=True):
        assert ("no certificate" in figure["text"]) == ("certified" not in drawn)


def test_every_image_is_counted_in_a_histogram_and_none_that_has_no_certificate(make_results, monkeypatch):
    drawn = {}
    monkeypatch.setattr(Chart, "steps", lambda _, edges, heights, kind, tip: drawn.update({kind: heights}))
    item = make_results(("ProoD",), ("smooth",), (0.1,)).evaluations[0]
    spread = np.random.default_rng(0).normal(size=1000)
    beyond = np.append(spread[:-2], [-1e6, -np.inf])
    partly = np.append(spread[:750], np.full(250, np.inf))
    histogram(replace(item, scores=Scores(spread + 9, beyond, partly, spread)), "smooth")
    shares = {kind: (heights**2).sum() for kind, heights in drawn.items()}
    assert shares == pytest.approx({"inside": 1, "clean": 1, "attacked": 1, "certified": 0.75})


def test_the_line_in_a_histogram_is_the_threshold_that_rates_are_measured_at(make_results, monkeypatch):
    drawn = []
    monkeypatch.setattr(Chart, "upright", lambda _, place, *words: drawn.append(place))
    item = make_results(("ProoD",), ("smooth",), (0.1,)).evaluations[0]
    inside = np.arange(20.0)
    without = np.append(inside[2:], [-np.inf] * 2)
    for scores in (inside, without):
        histogram(replace(item, scores=Scores(scores, inside, inside)), "smooth")
    assert drawn[0] == threshold(inside) == 1  # 19 of 20 reach it, and nothing is interpolated
    assert -1 < drawn[1] < 1, "at the left end, where −∞ is counted"


def test_roc_curves_guaranteed_only_where_there_is_a_certificate(tree):
    figures = tree.all("figure", within="roc")
    assert len(figures) == 14
    for figure in figures:
        kinds = [classes(path)[1:] for path in tree.all("path", figure, cls="line")]
        assert len(kinds) == 5 + 5 + 3
        assert {colour for kind, colour in kinds if kind == "guaranteed"} == {"m2", "m3", "m4"}
        assert {colour for kind, colour in kinds if kind == "attacked"} == {"m0", "m1", "m2", "m3", "m4"}


def test_a_roc_curve_goes_from_corner_to_corner_and_right_before_up(make_results, parse):
    one = make_results(("ProoD",), ("smooth",), (0.1,)).evaluations[0]
    scores = Scores(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.full(2, np.inf), np.array([0.0, 0.0]))
    tree = parse(page(Results((replace(one, scores=scores),))))
    curves = [path["attrs"]["d"] for path in tree.all("path", within="roc", cls="line") if path["text"]]
    assert len(curves) == 2, "clean and attacked"
    clean, attacked = ([tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", d)] for d in curves)
    assert len(clean) == 5, "two steps"
    assert [b[0] > a[0] for a, b in pairwise(clean)] == [True, False, True, False]
    assert attacked == [clean[0], (clean[0][0], clean[-1][1]), clean[-1]]


def test_the_price_of_proof_has_three_lines_where_there_is_a_certificate_and_two_elsewhere(results, tree):
    figures = tree.all("figure", within="price")
    assert len(figures) == 14
    for figure in figures:
        kinds = [classes(path)[1:] for path in tree.all("path", figure, cls="line")]
        assert len(kinds) == 5 + 5 + 3
        assert {colour for kind, colour in kinds if kind == "guaranteed"} == {"m2", "m3", "m4"}
    tips = [dot["text"] for dot in tree.all("circle", figures[0])]
    one = results["ProoD", "photographs:test", 0.1]
    shares = {95: one.proved95, 90: one.proved90, 80: one.proved80}
    assert tips[-3:] == [f"ProoD: {100 * share:.1f}% proved at {at}% accepted" for at, share in shares.items()]


def test_the_lines_of_the_price_are_the_shares_that_are_rejected(make_results, monkeypatch):
    drawn = {}
    monkeypatch.setattr(Chart, "line", lambda _, x, y, kind, tip: drawn.update({kind: (x, y)}))
    item = make_results(("ProoD",), ("smooth",), (0.1,)).evaluations[0]
    price_curves([item], "smooth", {"ProoD": "m0"})
    scores = item.scores
    kinds = {"clean m0": scores.clean, "attacked m0": scores.attacked, "guaranteed m0": scores.certified}
    for kind, values in kinds.items():
        accept, shares = drawn[kind]
        assert (accept[0], accept[-1]) == (0.5, 0.99)
        assert list(shares) == [1 - fpr(scores.inside, values, share) for share in accept]


def test_a_panel_over_the_radius_for_every_set_with_bands_where_there_is_a_certificate(results, tree):
    figures = tree.all("figure", within="radius")
    assert [tree.all("strong", figure)[0]["text"] for figure in figures][:2] == ["photographs", "textures"]
    assert len(figures) == 7
    for figure in figures:
        assert len(tree.all("path", figure, cls="band")) == 3
        assert len(tree.all("path", figure, cls="line")) == 5 + 3
    tips = {dot["text"] for dot in tree.all("circle", figures[0])}
    item = results["ProoD", "photographs:test", 0.3]
    assert f"ProoD, GAUC at ε = 0.3: {100 * item.gauc:.1f}" in tips
    assert f"ProoD, AAUC at ε = 0: {100 * item.auc:.1f}" in tips


def test_no_panel_over_the_radius_without_a_radius(make_results, parse):
    tree = parse(page(make_results(sets=("smooth",), radii=(0.0,))))
    assert "radius" not in [section["attrs"]["id"] for section in tree.all("section")]


def test_pictures_before_and_after_with_what_they_do_to_the_confidence(results, tree):
    rows = tree.all("div", within="gallery", cls="gallery")
    assert len(rows) == 70
    count = shown_each(results.evaluations)
    assert [len(tree.all("img", row)) for row in rows] == [2 * count] * 70
    captions = [caption["text"] for caption in tree.all("figcaption", rows[4])]
    scores = results["ProoD", "photographs:test", 0.1].scores
    index = scores.gallery[picked(scores, 1)[0]]
    shares = [100 * confidence(values[index], 8) for values in (scores.clean, scores.attacked, scores.certified)]
    shown = [float(number) for number in re.findall(r"([\d.]+)%", captions[0])]
    assert re.fullmatch(r"[\d.]+% → [\d.]+% ≤ [\d.]+%", captions[0])
    assert shown == pytest.approx(shares, abs=0.1001)
    assert shown[2] >= shares[2] - 1e-4, "a bound is rounded up"
    assert "no certificate" in tree.all("figcaption", rows[0])[0]["text"]
    assert ["p(in)" in row["text"] for row in rows[:5]] == [False, False, True, False, False]


def test_confidence():
    assert confidence(0.0, None) == 0.5
    assert confidence(0.0, 10) == pytest.approx(0.55)
    assert confidence(-1e4, 10) == pytest.approx(0.1)
    assert confidence(math.inf, 10) == confidence(math.inf, None) == 1
    assert confidence(2.0, None) == pytest.approx(1 / (1 + math.exp(-2)))


def test_the_gallery_takes_turns_between_attacked_and_certified():
    values = np.array([9.0, 8.0, 7.0, 6.0]), np.array([5.0, 6.0, 7.0, 8.0])
    scores = Scores(values[0], values[0], values[1], values[0], gallery=np.array([3, 0, 1]))
    assert picked(scores, 3) == [1, 0, 2], "image 0 by attack, image 3 by certificate, image 1"


def test_attack_statistics(results, tree):
    (body, _) = tree.all("tbody", within="attack")
    rows = tree.all("tr", body)
    assert len(rows) == 35
    cells = [cell["text"] for cell in tree.all("td", rows[-1])]
    assert cells == [
        "left-out", "standard", "123,456", "65,432", "25.0%", "12.3", "apgd 70.0%, square 30.0%",
    ]  # fmt: skip


def test_strange_statistics_and_missing_parts_do_no_harm(make_results, parse):
    items = make_results(("Plain", "ProoD"), ("smooth",), (0.1,)).evaluations
    odd = {"forward": None, "note": "<b>", "ok": True, "deep": {"list": [1]}, "list": [1], "rate": 0.123456}
    bare = replace(items[1], scores=None, attack=odd, aauc=None, afpr95=None, intervals={}, machine="")
    tree = parse(page(Results((items[0], bare))))
    assert len(tree.all("figure", within="scores")) == 1
    heads = [head["text"] for head in tree.all("th", within="attack", scope="col")]
    shown = [cell["text"] for cell in tree.all("td", tree.all("tr", within="attack")[-1])]
    named = dict(zip(heads[1:], shown, strict=True))
    assert [named[name] for name in ("Forward passes", "Note", "Ok", "Rate")] == ["–", "<b>", "yes", "0.123"]
    assert not {"Deep", "List"} & set(heads)
    legends = [entry["text"] for entry in tree.all("li", within="roc")]
    assert legends == ["Plain", "ProoD", "clean", "attacked", "guaranteed"]
    alone = parse(page(Results((replace(bare, attack={}, attacks=None),))))
    assert [entry["text"] for entry in alone.all("li", within="radius")] == ["ProoD", "guaranteed"]
    assert [section["attrs"]["id"] for section in alone.all("section")] == [
        "summary",
        "verdicts",
        "auc",
        "fpr",
        "proved",
        "radius",
    ]


def test_infinite_and_equal_scores_can_be_drawn(make_results, parse):
    item = make_results(("ProoD",), ("smooth",), (0.1,)).evaluations[0]
    same, half = np.full(4, 3.0), np.array([3.0, 3.0, np.inf, np.inf])
    low = np.full(4, -np.inf)
    tree = parse(page(Results((replace(item, scores=Scores(same, same, half, same)),))))
    assert "50.0% certified" in tree.all("figure", within="scores")[0]["text"]
    drawn = page(Results((replace(item, scores=Scores(same, low, low, low)),)))
    assert not re.search(r'd="[^"]*(nan|inf)', drawn)
    assert certified(replace(item, scores=Scores(same, low, low, low)))


def test_names_are_text_and_never_markup(make_results, parse):
    evil = '<script>alert("x")</script>&amp;'
    items = make_results(("Plain", "ProoD"), ("smooth", "faces"), (0.1, 0.2)).evaluations
    renamed = tuple(replace(item, model=evil, outside=evil, inside=evil, machine=evil, attacks=evil) for item in items)
    text = page(Results((*renamed, *items), {"note": evil, evil: 1}))
    tree = parse(text)
    assert len(tree.all("script")) == 1
    assert text.count("<script>") == 1
    assert evil in [head["text"] for head in tree.all("th", within="auc", scope="row")]
    assert [option["attrs"]["value"] for option in tree.all("option")].count(f"{evil} (in: {evil})") == 1


def test_figures_say_to_which_set_and_radius_they_belong_and_all_are_open(tree):
    assert not [entry for entry in tree.elements if "hidden" in entry["attrs"] and entry["tag"] != "form"]
    folds = tree.all("details")
    assert len(folds) == 7 + 7 + 2
    assert all("open" in fold["attrs"] for fold in folds)
    radii = {option["attrs"]["value"] for option in tree.all("option")}
    assert {entry["attrs"]["data-eps"] for entry in tree.elements if "data-eps" in entry["attrs"]} == {"0.1", "0.3"}
    assert {entry["attrs"]["data-outside"] for entry in tree.elements if "data-outside" in entry["attrs"]} <= radii


@pytest.mark.slow
def test_a_large_report_stays_small(make_results):
    noise = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    results = make_results(radii=(0.1, 0.2, 0.3), count=2000)
    full = tuple(
        replace(
            item,
            scores=replace(item.scores, gallery=np.arange(12), gallery_clean=noise, gallery_attacked=noise),
        )
        for item in results
    )
    assert len(page(Results(full)).encode()) < 3_000_000
