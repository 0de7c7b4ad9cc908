"""An error is one line whatever it quotes, and its type says what kind of thing went wrong."""

import ast
import builtins
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prood
from prood import errors

SOURCE = Path(prood.__file__).parent
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProodError)]


@given(st.text())
def test_an_error_is_one_line_whatever_it_quotes(text):
    for kind in KINDS:
        line = str(kind(text))
        assert len(line.splitlines()) <= 1
        assert line.isprintable()
        assert line == text or not text.isprintable() or len(text) > 2000  # otherwise the text as it is


def test_an_error_steers_no_terminal():
    assert str(errors.NotFound("\x1b[2Ka\x07\udcff\n é")) == "\\x1b[2Ka\\x07\\udcff  é"
    assert len(str(errors.NotFound("a" * 10**8))) < 2100


@pytest.mark.parametrize("kind", KINDS)
def test_errors_travel_between_processes(kind):
    there = pickle.loads(pickle.dumps(kind("a\nb")))
    assert type(there) is kind
    assert str(there) == "a b"


def raised(file: Path) -> Iterator[str]:
    """The names of all classes that a file raises by a call of that class."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            yield node.exc.func.id


@pytest.mark.slow
def test_no_error_is_a_bare_exception():
    """Whoever catches Exception catches everything: what is raised has a type of its own."""
    for file in SOURCE.rglob("*.py"):
        assert not {"Exception", "BaseException", "RuntimeError", "OSError"} & set(raised(file)), file


def test_the_first_line_of_what_a_library_says():
    assert errors.first_line(ValueError("a\nb")) == "a"
    assert errors.first_line(ValueError()) == "ValueError"
    assert errors.first_line(builtins.KeyError("a")) == "'a'"
