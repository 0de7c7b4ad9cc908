"""Training and evaluation as a user starts them on several processes and on several machines."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from prood.models import load
from prood.training import Run

EPOCHS = 40
TRAIN = ("train", "oe", "--device", "cpu", "--set", f"train.epochs={EPOCHS}", "--set", "train.checkpoint_seconds=0")
HERE = ("--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")


def torchrun(*options: str, prood: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "--", "prood", *prood]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed; it must have gone well."""
    printed, _ = process.communicate(timeout=180)
    assert process.returncode == 0, printed[-3000:]
    return printed


def children(parent: int) -> list[int]:
    """The process ids of its children, the oldest first."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True)
    return sorted(map(int, found.stdout.split()))


def steps(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in Run(run).metrics.read_text().splitlines()]


def same_weights(one: Path, other: Path) -> None:
    a, b = (load(run)[0].state_dict() for run in (one, other))
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text)


@pytest.fixture(scope="module")
def whole(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes that nobody disturbed."""
    run = tmp_path_factory.mktemp("whole") / "oe"
    assert f"wrote {run}" in ended(torchrun(*HERE, prood=(*TRAIN, "--recipe", str(toml), "--run", str(run))))
    return run


@pytest.mark.slow
@pytest.mark.parametrize("last", ["processes.stop()", "", "raise SystemExit(0)"])
def test_no_thread_outlives_the_group(last: str, tmp_path: Path) -> None:
    """One that does may abort a process that has done all its work."""
    script = tmp_path / "threads.py"
    script.write_text(
        "import atexit, os, torch\n"
        "from prood import processes\n"
        "def threads():\n"
        "    return [open(f'/proc/self/task/{id}/comm').read() for id in os.listdir('/proc/self/task')]\n"
        "def check():\n"
        "    assert not any('gloo' in name for name in threads()), threads()\n"
        "    print('checked')\n"
        "atexit.register(check)\n"  # what is registered first comes last
        "processes.start(torch.device('cpu'))\n"
        "torch.optim.SGD([torch.zeros(3, requires_grad=True)])\n"
        "assert processes.total(torch.ones(1)).item() == 2\n"
        "assert any('gloo' in name for name in threads()), threads()\n"
        f"{last}\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", *HERE, str(script)]
    printed = ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    assert printed.count("checked") == 2, printed


@pytest.mark.slow
def test_two_processes_train_and_evaluate(whole: Path, toml: Path) -> None:
    assert steps(whole) == [4 * (epoch + 1) for epoch in range(EPOCHS)]
    sets = (f"npz:{toml.parent}/inside.npz", f"npz:{toml.parent}/outside.npz")
    options = ("--in", sets[0], "--out", sets[1], "--eps", "0.05", "--device", "cpu", "--limit", "12")
    assert "AAUC" in ended(torchrun(*HERE, prood=("evaluate", str(whole), *options)))
    (result,) = json.loads((whole / "results.json").read_text())["evaluations"]
    assert (result["images"], result["gauc"]) == (12, 0)


@pytest.mark.slow
def test_a_killed_process_ends_the_job_and_resume_continues_it(whole: Path, toml: Path, tmp_path: Path) -> None:
    run = tmp_path / "oe"
    command = (*TRAIN, "--recipe", str(toml), "--run", str(run))
    job = torchrun(*HERE, prood=command)
    deadline = time.monotonic() + 120
    while not Run(run).checkpoint.is_file():
        assert job.poll() is None, job.communicate()[0][-3000:]
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.02)
    workers = children(job.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    job.communicate(timeout=120)
    assert job.returncode != 0
    for worker in workers:
        assert not Path(f"/proc/{worker}").exists(), "a process of the job is still there"
    assert not Run(run).finished
    assert len(steps(run)) < EPOCHS
    ended(torchrun(*HERE, prood=(*command, "--resume")))
    assert steps(run) == steps(whole)
    same_weights(run, whole)


@pytest.mark.slow
def test_two_agents_that_meet_on_a_port_are_one_job(whole: Path, toml: Path, tmp_path: Path) -> None:
    """What several machines do, each with an agent and a process of its own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    meeting = ("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "job")
    meeting += ("--rdzv-endpoint", f"localhost:{port}")
    run = tmp_path / "oe"
    command = (*TRAIN, "--recipe", str(toml), "--run", str(run))
    agents = [torchrun(*meeting, prood=command) for _ in range(2)]
    printed = [ended(agent) for agent in agents]
    assert sum(f"wrote {run}" in text for text in printed) == 1
    assert steps(run) == steps(whole)
    same_weights(run, whole)
