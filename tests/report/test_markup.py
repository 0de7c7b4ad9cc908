import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prood.report.markup import Axis, Chart, Html, element, joined, nice_ticks, thinned


def chart(x=Axis(0, 1), y=Axis(0, 1), **options):  # noqa: B008 - frozen
    return Chart("label", x, y, **options)


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e5), st.integers(3, 8))
def test_ticks_lie_inside_and_are_neither_too_few_nor_too_many(low, width, most):
    ticks = list(nice_ticks(low, low + width, most))
    assert 1 <= len(ticks) <= most
    assert min(ticks) >= low - 1e-6 * width
    assert max(ticks) <= low + width * (1 + 1e-6)
    steps = np.diff(ticks)
    assert np.allclose(steps, steps[:1])


def test_ticks_are_round_numbers_with_a_real_minus():
    assert list(nice_ticks(-12.3, 14).values()) == ["−10", "−5", "0", "5", "10"]
    assert list(nice_ticks(0, 1).values()) == ["0", "0.5", "1"]


def test_thinning_keeps_a_curve_of_many_points_and_most_of_it_goes():
    x = np.sort(np.random.default_rng(0).uniform(0, 250, 20_000))
    y = 200 * (1 - (1 - x / 250) ** 4)
    few = thinned(x, y)
    assert len(few[0]) < 100
    assert np.abs(np.interp(x, *few) - y).max() < 0.5, "half a pixel"
    assert (few[0][0], few[0][-1], few[1][-1]) == (x[0], x[-1], y[-1])


def test_thinning_keeps_corners():
    x, y = np.array([0.0, 0, 0, 5, 10, 10]), np.array([0.0, 5, 10, 10, 10, 3])
    assert [list(values) for values in thinned(x, y)] == [[0, 0, 10, 10], [0, 10, 10, 3]]


@pytest.mark.parametrize(("x", "y"), [([3.0], [4.0]), ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])])
def test_thinning_of_points_that_are_one(x, y):
    few = thinned(np.array(x), np.array(y))
    assert set(zip(*few, strict=True)) == {(x[0], y[0])}


def test_steps_stand_on_the_axis_and_nothing_is_drawn_where_nothing_is(parse):
    drawn = chart(size=(130, 126), x=Axis(0, 4))  # 22 pixels a unit from 30 on, up from 108 to 8
    drawn.steps(np.arange(5.0), np.array([0.5, 1.0, 0.0, 0.25]), "clean")
    (path,) = parse(drawn.svg()).all("path", cls="steps")
    assert path["attrs"]["d"] == "M30.0 108.0V58.0H52.0V8.0H74.0V108.0M96.0 108.0V83.0H118.0V108.0"


def test_a_chart_says_what_it_shows_and_has_its_ticks(parse):
    drawn = chart(Axis(0, 1, {0: "none", 1: "all"}, "across"), Axis(0, 1, {0.5: "half"}, "up"))
    drawn.line([0, 1], [0, 1], "clean m1", "a < b")
    tree = parse(drawn.svg())
    (svg,) = tree.all("svg")
    assert (svg["attrs"]["role"], svg["attrs"]["aria-label"]) == ("img", "label")
    assert [text["text"] for text in tree.all("text")] == ["none", "all", "half", "across", "up"]
    assert [path["text"] for path in tree.all("path", cls="m1")] == ["a < b"]


def test_text_is_escaped_and_markup_is_not():
    assert element("b", "<i>", Html("<i></i>"), title='"&') == '<b title="&quot;&amp;">&lt;i&gt;<i></i></b>'
    assert element("img", alt=None, hidden=True, data_x=1, class_="a") == '<img hidden data-x="1" class="a">'
    assert joined("a", element("u", "<")) == "a<u>&lt;</u>"
