"""Tasks that wait for one another, in real processes. What they do is of the standard library: each can import it."""

import io
import operator
import os
import signal
import subprocess
import sys
import time
from functools import partial
from graphlib import CycleError
from pathlib import Path

import pytest
from rich.console import Console

from prood.errors import BadValue, ProodError
from prood.studies.jobs import carry_out


def silent() -> Console:
    return Console(file=io.StringIO(), width=100)


def run(steps, **options):
    """Each step is its action, under its name, with the names that it needs."""
    needs = {action: {steps[name][0] for name in after} for action, *after in steps.values()}
    carry_out(needs, operator.call, console=silent(), **options)


def write(path):
    return partial(type(path).write_text, path, path.name)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_task_comes_after_what_it_needs(tmp_path, jobs):
    """A file is moved there and back again, which fails where it is not there yet."""
    a, b = tmp_path / "a", tmp_path / "b"
    steps = {
        "back": (partial(os.rename, b, a), "there"),
        "there": (partial(os.rename, a, b), "write"),
        "write": (write(a), "wait"),
        "wait": (partial(time.sleep, 0.3),),
        "other": (write(tmp_path / "c"),),
    }
    run(steps, jobs=jobs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_of_those_that_may_begin_the_first_does():
    done = []
    carry_out({"last": {"first"}, "second": set(), "first": set(), "third": {"second"}}, done.append)
    assert done == ["second", "first", "last", "third"]


@pytest.mark.slow
def test_several_run_at_a_time(tmp_path):
    """A pipe opens when somebody reads and somebody writes: one after the other, the reader would wait in vain."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = partial(subprocess.run, ["cat", str(pipe)], check=True, timeout=60)
    run({"read": (read,), "write": (write(pipe),)}, jobs=2)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_begins_nothing_more_and_is_raised(tmp_path, jobs):
    steps = {
        "fail": (partial(operator.truediv, 1, 0),),
        "run on": (partial(time.sleep, 2),),
        "later": (write(tmp_path / "later"), "fail"),
        "too late": (write(tmp_path / "too late"), "run on"),
    }
    with pytest.raises(ZeroDivisionError):
        run(steps, jobs=jobs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_process_that_was_ended_is_one_line(tmp_path):
    steps = {
        "end": (partial(signal.raise_signal, signal.SIGKILL),),
        "later": (write(tmp_path / "later"), "end"),
    }
    with pytest.raises(ProodError, match=r"--jobs$"):
        run(steps, jobs=2)
    assert not (tmp_path / "later").exists()


def alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_the_processes_end_with_the_one_that_began_them(tmp_path):
    step = f"import os, pathlib, time; pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch(); time.sleep(600)"
    program = f"""
from functools import partial
from operator import call
from prood.studies.jobs import carry_out
carry_out({{partial(exec, {step!r}): (), partial(exec, {step!r} + " "): ()}}, call, jobs=2)
"""
    begun = subprocess.Popen([sys.executable, "-c", program])
    end = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    begun.kill()
    begun.wait()
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_tasks_that_have_no_order_are_a_mistake():
    with pytest.raises(CycleError):
        carry_out({"a": {"b"}, "b": {"a"}}, pytest.fail)


def test_not_within_torchrun(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadValue, match="--jobs"):
        carry_out({"a": set()}, pytest.fail, jobs=2)
