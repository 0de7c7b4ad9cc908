import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from prood.errors import AlreadyThere, BadValue, Busy, Damaged, Mismatch, ProodError
from prood.training import Run, TrainOptions


def trained(optimizer: Any = "adam", steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    made = TrainOptions(optimizer=optimizer, lr=0.1, weight_decay=0.1).make_optimizer(model)
    for _ in range(steps):
        made.zero_grad()
        model(torch.rand(4, 1, 4, 4)).square().sum().backward()
        made.step()
    return model, made


# The folder


def test_a_new_folder_is_claimed_with_the_settings(tmp_path: Path) -> None:
    run = Run(tmp_path / "deep" / "run")
    run.open({"train": {"lr": 0.1, "drops": (1.0, 2.0)}}, resume=False)
    assert json.loads(run.recipe.read_text()) == {"train": {"lr": 0.1, "drops": [1.0, 2.0]}}
    assert not run.finished


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.open({"a": 1}, resume=False)
    with pytest.raises(AlreadyThere, match="--resume"):
        run.open({"a": 1}, resume=False)


def test_another_path_to_the_same_run_is_the_same_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(tmp_path / "run")
    run.open({"discriminator_run": "runs/disc"}, resume=False)
    run.open({"discriminator_run": str(tmp_path / "runs" / "disc")}, resume=True)
    with pytest.raises(Mismatch, match=r"\(discriminator_run\)"):
        run.open({"discriminator_run": str(tmp_path / "other" / "disc")}, resume=True)


def test_a_folder_is_trained_into_by_one_at_a_time(tmp_path: Path) -> None:
    run, other = Run(tmp_path / "run"), Run(tmp_path / "run")
    with run.claimed():
        with pytest.raises(Busy), other.claimed():
            pass
        with Run(tmp_path / "another").claimed():
            pass
    with other.claimed():
        pass
    assert not list(other.folder.iterdir())


def test_a_run_that_is_made_at_once_and_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    run = Run(tmp_path)
    first, second = ({"method": "combine", "shift": shift} for shift in (1, 2))
    run.open(first, resume=False, at_once=True)
    run.open(second, resume=False, at_once=True)
    assert run.settings() == second
    run.model.write_bytes(b"weights")
    with pytest.raises(AlreadyThere):
        run.open(first, resume=False, at_once=True)


def test_a_training_that_is_not_finished_is_not_taken_for_what_a_kill_left_of_another_kind(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.open({"method": "oe"}, resume=False)
    for resume, said in ((False, "holds a run already"), (True, "other settings")):
        with pytest.raises(ProodError, match=said):
            run.open({"method": "combine"}, resume=resume, at_once=True)
    assert run.settings() == {"method": "oe"}


def test_resuming_needs_the_same_settings_and_names_those_that_differ(tmp_path: Path) -> None:
    run = Run(tmp_path)
    settings = {"recipe": "a", "train": {"lr": 0.1, "batch": 5, "drops": (1,)}, "classifier": {"name": "small"}}
    run.open(settings, resume=True)
    run.open(settings, resume=True)
    changed = settings | {"train": {"lr": 0.2, "batch": 5, "drops": (2,)}, "shift": 3.0}
    with pytest.raises(Mismatch, match=r"train.drops.*train.lr"):
        run.open(changed, resume=True)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AlreadyThere):
        Run(tmp_path / "file").open({}, resume=False)


@pytest.mark.parametrize("resume", [False, True])
def test_a_model_that_no_run_left_there_is_not_taken_for_this_runs(tmp_path: Path, resume: bool) -> None:
    run = Run(tmp_path)
    run.model.write_bytes(b"from elsewhere")
    with pytest.raises(AlreadyThere):
        run.open({"a": 1}, resume=resume)
    assert run.model.read_bytes() == b"from elsewhere"


def test_resuming_sweeps_up_what_a_kill_left_half_written(tmp_path: Path) -> None:
    """Of the run's own files: an evaluation may be writing its results there at the same time."""
    run = Run(tmp_path)
    run.open({}, resume=False)
    for name in ("checkpoint.safetensors", "model.safetensors", "recipe.json", "metrics.jsonl"):
        (tmp_path / f".{name}.123.part").write_bytes(b"half")
    others = [".results.json.124.part", "notes.txt"]
    for name in others:
        (tmp_path / name).write_text("somebody's")
    run.open({}, resume=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*others, "recipe.json"])


# metrics.jsonl


def test_metrics_are_appended_and_forgotten_by_step(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.last_metrics() is None
    run.forget_after(0)
    for step in (5, 10, 15):
        run.log({"step": step, "loss": 1 / step})
    assert run.last_metrics() == {"step": 15, "loss": 1 / 15}
    run.forget_after(10)
    assert run.last_metrics() == {"step": 10, "loss": 1 / 10}
    run.forget_after(0)
    assert run.metrics.read_text() == ""
    assert run.last_metrics() is None


@pytest.mark.parametrize("cut", range(1, 27))
def test_a_line_that_a_kill_cut_short_does_not_count(tmp_path: Path, cut: int) -> None:
    run = Run(tmp_path)
    run.log({"step": 5, "loss": 0.25})
    run.log({"step": 10, "loss": 0.125})
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole[:-cut])
    assert run.last_metrics() == {"step": 5, "loss": 0.25}
    run.forget_after(10)
    run.log({"step": 10, "loss": 0.125})
    assert run.metrics.read_bytes() == whole


# Checkpoints


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b"[" * 10**5, b"null", b'{"loss": 1}', b'{"step": "x"}'])
def test_a_damaged_line_of_metrics_stops_nothing(tmp_path: Path, damage: bytes) -> None:
    run = Run(tmp_path)
    run.log({"step": 1})
    with run.metrics.open("ab") as file:
        file.write(damage + b"\n")
    assert run.last_metrics() == {"step": 1}
    run.log({"step": 2})
    run.log({"step": 3})
    run.forget_after(2)
    assert [json.loads(line) for line in run.metrics.read_text().splitlines()] == [{"step": 1}, {"step": 2}]


def test_a_bit_of_a_checkpoint_that_was_flipped_is_noticed(tmp_path: Path) -> None:
    """Training would go on silently, and end with other weights."""
    run = Run(tmp_path)
    model, optimizer = trained()
    run.save_checkpoint(model, optimizer, 3)
    content = bytearray(run.checkpoint.read_bytes())
    start = int.from_bytes(content[:8], "little") + 8
    for place in range(start, len(content), (len(content) - start) // 5):
        run.checkpoint.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(Damaged, match="checksum"):
            run.load_checkpoint(*trained())
    run.checkpoint.write_bytes(content)
    assert run.load_checkpoint(*trained()) == 3


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="not valid UTF-8"):
        Run(tmp_path / os.fsdecode(b"bad\xff")).open({"a": 1}, resume=False)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_checkpoint_brings_back_weights_statistics_and_optimiser(tmp_path: Path, optimizer: Any) -> None:
    run = Run(tmp_path)
    model, made = trained(optimizer)
    run.save_checkpoint(model, made, 30)
    other, other_made = trained(optimizer, steps=0)
    other_made.param_groups[0]["lr"] = 0.7
    assert run.load_checkpoint(other, other_made) == 30
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    saved, loaded = made.state_dict()["state"], other_made.state_dict()["state"]
    assert saved.keys() == loaded.keys()
    for index in saved:
        assert saved[index].keys() == loaded[index].keys()
        assert all(torch.equal(saved[index][key], loaded[index][key]) for key in saved[index])
    assert other_made.param_groups[0]["lr"] == 0.7  # the schedule's business


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_what_the_optimiser_remembers_lies_in_memory_as_the_weights_do(tmp_path: Path, optimizer: Any) -> None:
    """As on a GPU, where weights are channels last and the fused updates refuse anything else beside them."""
    run = Run(tmp_path)
    run.save_checkpoint(*trained(optimizer), 30)
    other, made = trained(optimizer, steps=0)
    other.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    run.load_checkpoint(other, made)
    compared = 0
    for parameter, state in made.state.items():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.ndim:
                assert value.stride() == parameter.stride()
                compared += value.ndim == 4
    assert compared


def test_without_a_checkpoint_training_starts_at_step_0(tmp_path: Path) -> None:
    model, made = trained()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert Run(tmp_path).load_checkpoint(model, made) == 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_checkpoint_is_written_aside_and_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    model, made = trained()
    run.save_checkpoint(model, made, 1)
    first = run.checkpoint.read_bytes()

    def interrupted(path: Path, content: bytes) -> None:
        assert path != run.checkpoint
        assert path.parent == run.folder  # on the same file system, or the rename would not be atomic
        path.write_text("half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(OSError, match="no space left"):
        run.save_checkpoint(model, made, 2)
    assert run.checkpoint.read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def damage(file: Path, how: str) -> None:
    whole = file.read_bytes()
    if how == "no metadata":
        save_file({"model.x": torch.zeros(1)}, file)
    elif how == "no step":
        save_file({"model.x": torch.zeros(1)}, file, metadata={"prood": "{}"})
    elif how == "another network":
        save_file({"model.0.weight": torch.zeros(1)}, file, metadata={"step": "3"})
    else:
        file.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "noise": b"\xff" * 500}[how])


@pytest.mark.parametrize("how", ["empty", "cut", "noise", "no metadata", "no step", "another network"])
def test_a_damaged_checkpoint_is_one_line_with_a_way_out(tmp_path: Path, how: str) -> None:
    run = Run(tmp_path)
    model, made = trained()
    run.save_checkpoint(model, made, 3)
    damage(run.checkpoint, how)
    with pytest.raises(Damaged, match=r"checkpoint.safetensors") as error:
        run.load_checkpoint(model, made)
    assert "\n" not in str(error.value)


# A run that is killed

# Imports PyTorch once, and then runs each training in a new process that is forked off.
SERVER = """
import json, os, sys, torch.utils.tensorboard
from prood.training import load_recipe, train
for line in sys.stdin:
    method, recipe, run, settings = json.loads(line)
    child = os.fork()
    if child == 0:
        train(method, load_recipe(recipe).with_settings(method, settings), run, resume=True, device="cpu")
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SERVER]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=one_thread, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
        yield process


class Job:
    """A training run in a process of its own, and what can be seen of it from outside."""

    def __init__(self, server: subprocess.Popen[str], method: str, toml: Path, run: Run, epochs: int) -> None:
        self.server, self.run = server, run
        settings = [f"train.epochs={epochs}", "train.batch=48"]  # a checkpoint every second step
        assert server.stdin is not None
        server.stdin.write(json.dumps([method, str(toml), str(run.folder), settings]) + "\n")
        self.pid = self._read()

    def _read(self) -> int:
        assert self.server.stdout is not None
        return int(self.server.stdout.readline())

    def finish(self) -> None:
        assert self._read() == 0

    def kill_when(self, moment: Callable[[Run], bool], delay: float) -> None:
        deadline = time.monotonic() + 60
        while not moment(self.run) and not self.run.finished and time.monotonic() < deadline:
            time.sleep(0.0003)
        time.sleep(delay)
        os.kill(self.pid, signal.SIGKILL)
        assert self._read() == -signal.SIGKILL
        assert not self.run.finished


def reports(run: Run) -> int:
    return run.metrics.read_bytes().count(b"\n") if run.metrics.is_file() else 0


def metrics(run: Run) -> list[dict[str, Any]]:
    """All lines, each of which must be whole, without what differs from one computer to the next."""
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def contents(file: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    with safe_open(file, framework="np") as opened:
        return {name: opened.get_tensor(name).tobytes() for name in opened.keys()}, opened.metadata()  # noqa: SIM118


@pytest.mark.slow
@pytest.mark.parametrize(("method", "epochs"), [("discriminator", 18), ("plain", 60)])
def test_a_run_that_is_killed_three_times_ends_where_an_undisturbed_one_does(
    method: str, epochs: int, server: subprocess.Popen[str], toml: Path, tmp_path: Path
) -> None:
    """Adam with ramps, an attack and noise; and SGD with momentum and batch norm. An epoch, and thus the
    time between two checkpoints, takes a few dozen milliseconds here."""
    straight, killed = Run(tmp_path / "straight"), Run(tmp_path / "killed")
    Job(server, method, toml, straight, epochs).finish()

    seed = random.SystemRandom().randrange(10**6)
    print("seed of the kills:", seed)  # pytest shows it if the test fails
    draw = random.Random(seed)
    first = draw.randrange(epochs // 3)
    later = draw.randrange(epochs // 3, 2 * epochs // 3)
    moments: list[Callable[[Run], bool]] = [
        lambda run: run.recipe.is_file(),  # before the first checkpoint
        lambda run: reports(run) > first,
        # while a checkpoint is being written, if that can be caught
        lambda run: reports(run) > later and (any(run.folder.glob(".*.part")) or reports(run) > later + 5),
    ]
    for moment, delay in zip(moments, (draw.uniform(0, 0.05), draw.uniform(0, 0.03), 0.0), strict=True):
        Job(server, method, toml, killed, epochs).kill_when(moment, delay)
    Job(server, method, toml, killed, epochs).finish()

    assert contents(killed.model) == contents(straight.model)
    assert metrics(killed) == metrics(straight)
    assert [line["step"] for line in metrics(killed)] == [2 * epoch for epoch in range(1, epochs + 1)]
    assert sorted(file.name for file in killed.folder.iterdir()) == sorted(
        ["metrics.jsonl", "model.safetensors", "recipe.json", "tensorboard"]
    )
