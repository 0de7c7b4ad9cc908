"""Steps that wait for one another, in real processes. What they do is of the standard library: each can import it."""

import io
import operator
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from prood.errors import ProodError
from prood.reproduce.jobs import Step, carry_out


def write(path: Path, needs: tuple[str, ...] = ()) -> Step:
    return Step(path.name, partial(Path.write_text, path, path.name), needs)


def move(name: str, one: Path, other: Path, *needs: str) -> Step:
    """Which fails where the file is not there yet."""
    return Step(name, partial(os.rename, one, other), needs)


def silent() -> Console:
    return Console(file=io.StringIO(), width=100)


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_step_comes_after_what_it_needs(tmp_path, jobs):
    a, b = tmp_path / "a", tmp_path / "b"
    steps = [
        Step("wait", partial(time.sleep, 0.3)),
        Step("write", partial(Path.write_text, a, "text"), ("wait",)),
        move("there", a, b, "write"),
        move("back", b, a, "there"),
        write(tmp_path / "c"),
    ]
    carry_out(steps, jobs=jobs, console=silent())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_several_run_at_a_time(tmp_path):
    """A pipe opens when somebody reads and somebody writes: one after the other, the reader would wait in vain."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    steps = [Step("read", partial(subprocess.run, ["cat", str(pipe)], check=True, timeout=60)), write(pipe)]
    console = silent()
    carry_out(steps, jobs=2, console=console)
    assert sorted(line.split()[0] for line in console.file.getvalue().splitlines()) == ["pipe", "read"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_begins_nothing_more_and_is_raised(tmp_path, jobs):
    steps = [
        Step("fail", partial(operator.truediv, 1, 0)),
        Step("run on", partial(time.sleep, 0.5)),
        write(tmp_path / "later", ("fail",)),
        write(tmp_path / "too late", ("run on",)),
    ]
    with pytest.raises(ZeroDivisionError):
        carry_out(steps, jobs=jobs, console=silent())
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_ended_is_one_line(tmp_path):
    steps = [Step("end", partial(signal.raise_signal, signal.SIGKILL)), write(tmp_path / "later", ("end",))]
    with pytest.raises(ProodError, match=r"^one of the processes was ended.*try fewer --jobs$"):
        carry_out(steps, jobs=2, console=silent())
    assert not (tmp_path / "later").exists()


@pytest.mark.parametrize("needs", [("second",), ("nothing of that name",)])
def test_steps_that_cannot_come_in_this_order_are_a_mistake(tmp_path, needs):
    with pytest.raises(ValueError, match=f"first stands before what it needs: {needs[0]}"):
        carry_out([write(tmp_path / "first", needs), write(tmp_path / "second")])
    assert list(tmp_path.iterdir()) == []


def test_not_within_torchrun(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ProodError, match="leave out --jobs, or torchrun"):
        carry_out([write(tmp_path / "a")], jobs=2)
    assert list(tmp_path.iterdir()) == []
