"""A line now and then where output is no terminal."""

import io
from functools import partial

import pytest
from rich.console import Console

from prood import progress
from prood.progress import Lines


@pytest.fixture
def clock(monkeypatch):
    """The time, which the test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_is_due_after_a_while_and_says_what_is_left(clock):
    file = io.StringIO()
    lines = Lines(Console(file=file, width=40), "oe", every=30)
    for seconds in range(0, 100, 10):
        clock[0] = 100.0 + seconds
        lines.tell(seconds, 200, partial("[step] {}".format, seconds))
    assert file.getvalue().splitlines() == [
        "oe: [step] 30, 0:00:30 passed, about 0:02:50 left",
        "oe: [step] 60, 0:01:00 passed, about 0:02:20 left",
        "oe: [step] 90, 0:01:30 passed, about 0:01:50 left",
    ]


def test_a_terminal_has_a_bar_and_short_work_no_line(clock):
    shown = io.StringIO()
    for lines in (
        Lines(Console(file=shown, force_terminal=True), "a"),
        Lines(None, "b"),
        Lines(Console(file=shown), "c"),
    ):
        lines.tell(1, 2, lambda: "text")
    clock[0] += 1000
    Lines(Console(file=shown, force_terminal=True), "a").tell(1, 2, lambda: "text")
    assert shown.getvalue() == ""


def test_what_cannot_be_known_is_left_out(clock):
    file = io.StringIO()
    lines = Lines(Console(file=file), "oe", every=1)
    clock[0] += 4000
    lines.tell(0, 5, lambda: "begun")
    assert file.getvalue() == "oe: begun, 1:06:40 passed\n"
