"""Whatever a user gets wrong on the command line is one line that begins with "error: ", and exit code 2."""

import re
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
import typer

from prood.cli import app

Words = tuple[str, ...]


def walk(command: Any, words: Words = ()) -> Iterator[tuple[Words, Any]]:
    """Every command with the words that call it."""
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


COMMANDS = dict(walk(typer.main.get_command(app)))


def call(words: Words, command: Any, fill: str) -> list[str]:
    """A call that has all it needs, of which nothing exists, so that no command begins its work."""
    needed = [fill for one in command.params if one.param_type_name == "argument" and one.required]
    options = [one.opts[0] for one in command.params if one.param_type_name == "option" and one.required]
    names = [name for one in command.params for name in one.opts]
    end = next(([name, "nosuch"] for name in ("--device", "--seed") if name in names), [])
    return [*words, *needed, *(word for name in options for word in (name, fill)), *end]


def refused(answer: tuple[int, str, str], words: list[str]) -> None:
    code, _, err = answer
    if code == 0:
        assert "error: " not in err, words
        return
    assert code == 2, (words, err)
    assert err.startswith("error: "), (words, err)
    assert len(err.splitlines()) == 1, (words, err)
    assert len(err) > len("error: \n"), words


@pytest.fixture
def bad(tmp_path, monkeypatch) -> list[str]:
    """Texts that no option means: no name, no number, no file, no model, no folder of a run, more than one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.safetensors").write_bytes(b"\xff\x00junk\nmore junk")
    (tmp_path / "junk.toml").write_text("[[[\nno\n")
    (tmp_path / "folder").mkdir()
    return ["no such\nthing", "-1e999", "nan", "junk.safetensors", "junk.toml", "folder", "junk.toml/below"]


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_bad_value_of_any_option_is_one_line(prood, bad, words):
    command = COMMANDS[words]
    for text in bad:
        line = call(words, command, text)
        refused(prood(*line), line)
    options = [one for one in command.params if one.param_type_name == "option" and not getattr(one, "is_flag", False)]
    for option, text in zip(options, cycle(bad), strict=False):  # each with one of them: all with all takes minutes
        line = [*call(words, command, "nosuch"), f"{option.opts[0]}={text}"]
        refused(prood(*line), line)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_word_that_is_unknown_or_missing_is_one_line(prood, bad, words):
    command = COMMANDS[words]
    line = [*call(words, command, "nosuch"), "--no-such-option"]
    refused(prood(*line), line)
    for option in command.params:
        if option.required:
            code, _, err = prood(*words)
            assert code == 2
            refused((code, "", err), list(words))


@pytest.mark.parametrize("words", [*COMMANDS, ("data",), ("reproduce",), ()], ids=" ".join)
def test_a_group_or_command_that_does_not_exist_is_one_line(prood, words):
    if words not in COMMANDS:
        line = [*words, "nosuch"]
        refused(prood(*line), line)
        assert prood(*words)[0] == 2  # its help


def test_an_empty_text_is_one_line(prood):
    refused(prood("certify", "x.png", "--model", ""), [])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_word_of_a_help_is_taken_for_markup(words):
    command = COMMANDS[words]
    for text in (command.help, *(getattr(one, "help", None) for one in command.params)):
        assert not re.search(r"(?<!\\)\[[a-z]", text or ""), "rich leaves out what stands in such brackets"
