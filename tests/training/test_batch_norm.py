"""Two processes on one CPU, started as a user would start them, against one process with the same global batch."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rich.console import Console
from torch import nn

from prood import processes
from prood.models import load, read_metadata
from prood.training import Run, load_recipe, train
from prood.training.update import GlobalBatchNorm2d, shared_batch_norm

METHODS = ("discriminator", "oe", "prood")

# Every process runs this. The second one must not write: there, whatever writes is made to fail.
SCRIPT = """
import os, sys
from pathlib import Path
from prood.errors import ProodError
from prood.training import Run, load_recipe, train, trainer
recipe, folder = load_recipe(sys.argv[1]), Path(sys.argv[2])
rank = int(os.environ["RANK"])

def forbidden(*_, **__):
    raise AssertionError(f"process {rank} writes")

if rank:
    Run.open = Run.log = Run.save_checkpoint = Run.forget_after = trainer.save = forbidden
for method in ("discriminator", "oe", "prood"):
    g = folder / "discriminator" if method == "prood" else None
    train(method, recipe, folder / method, discriminator=g, device="cpu")
model = train("oe", recipe, folder / "oe", resume=True, device="cpu")  # finished: all processes return it
try:
    train("plain", recipe.with_settings("plain", ["train.batch=25"]), folder / "odd", device="cpu")
except ProodError as error:
    Path(folder, f"error-{rank}.txt").write_text(str(error))
"""


@pytest.fixture(scope="module")
def two(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes."""
    folder = tmp_path_factory.mktemp("two")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    # A rendezvous on port 0 takes a free port.
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(script), str(toml), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Warning" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def one(toml: Path, two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs of a single process; the joint model with the discriminator of the others."""
    folder = tmp_path_factory.mktemp("one")
    for method in METHODS:
        g = two / "discriminator" if method == "prood" else None
        recipe, silent = load_recipe(str(toml)), Console(quiet=True)
        train(method, recipe, folder / method, discriminator=g, device="cpu", console=silent)
    return folder


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Run(run).metrics.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_processes_have_the_losses_of_one(method: str, one: Path, two: Path) -> None:
    alone, together = metrics(one / method), metrics(two / method)
    assert [line["step"] for line in together] == [4, 8, 12]
    for a, b in zip(alone, together, strict=True):
        for name in a.keys() & {"loss", "loss_in", "loss_out", "accuracy", "g_in", "g_out_bound", "g_out_attacked"}:
            assert b[name] == pytest.approx(a[name], rel=1e-5), name
        assert (a["step"], a["epoch"], a["lr"]) == (b["step"], b["epoch"], b["lr"])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_processes_have_the_weights_of_one(method: str, one: Path, two: Path) -> None:
    """Running means and variances of batch norm included."""
    alone, together = (load(folder / method)[0].state_dict() for folder in (one, two))
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text)
    assert read_metadata(one / method).data == read_metadata(two / method).data


@pytest.mark.parametrize("method", METHODS)
def test_only_one_process_writes(method: str, two: Path) -> None:
    """The script makes every write of the second process fail; here is what the first one left."""
    run = two / method
    files = sorted(file.name for file in run.iterdir())
    assert files == ["metrics.jsonl", "model.safetensors", "recipe.json", "tensorboard"]
    assert len(list((run / "tensorboard").iterdir())) == 1


def test_the_saved_network_has_ordinary_batch_norms(two: Path) -> None:
    model, _ = load(two / "oe")
    kinds = {type(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d)}
    assert kinds == {nn.BatchNorm2d}


def test_a_batch_that_two_processes_cannot_share_is_an_error_in_both(two: Path) -> None:
    for rank in range(2):
        text = (two / f"error-{rank}.txt").read_text()
        assert text == "batch = 25 must be a multiple of the 2 processes"


# In a single process


def test_batch_norms_are_shared_and_unshared_with_names_and_values_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.BatchNorm2d(2)), nn.BatchNorm1d(2))
    before = list(model.state_dict())
    with shared_batch_norm(model):
        assert type(model[1][0]) is nn.BatchNorm2d  # a single process keeps torch's own
    monkeypatch.setattr(processes, "world_size", lambda: 2)
    with shared_batch_norm(model):
        assert type(model[1][0]) is GlobalBatchNorm2d
        assert list(model.state_dict()) == before
    assert type(model[1][0]) is nn.BatchNorm2d


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    processes.stop()


def pair(momentum: float = 0.1) -> tuple[nn.BatchNorm2d, GlobalBatchNorm2d]:
    torch.manual_seed(0)
    ours, reference = GlobalBatchNorm2d(3, momentum=momentum), nn.BatchNorm2d(3, momentum=momentum)
    nn.init.uniform_(reference.weight)
    nn.init.uniform_(reference.bias)
    ours.load_state_dict(reference.state_dict())
    return reference, ours


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (5.0, 0.5), (1000.0, 0.1)])
def test_global_batch_norm_is_batch_norm(mean: float, std: float) -> None:
    """Also where the mean is large: a variance as the difference of squares would have no digit left there."""
    reference, ours = pair()
    for _ in range(3):
        x = (torch.randn(6, 3, 4, 4) * std + mean).requires_grad_()
        y = x.detach().clone().requires_grad_()
        target = torch.randn(6, 3, 4, 4)
        for layer, images in ((reference, x), (ours, y)):
            layer.zero_grad()
            (layer(images) * target).sum().backward()
        torch.testing.assert_close(ours(y), reference(x), rtol=1e-4, atol=1e-4 + 1e-6 * mean / std)
        assert x.grad is not None
        assert y.grad is not None
        torch.testing.assert_close(y.grad, x.grad, rtol=1e-3, atol=1e-3 / std)
        torch.testing.assert_close(ours.weight.grad, reference.weight.grad, rtol=1e-3, atol=1e-2)
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("group")
def test_global_batch_norm_in_float64_has_the_gradient_of_finite_differences() -> None:
    layer = GlobalBatchNorm2d(2).double()
    x = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))


@pytest.mark.usefixtures("group")
def test_global_batch_norm_of_a_bfloat16_batch() -> None:
    """As under autocast: statistics in float32, the result in bfloat16 again."""
    reference, ours = pair()
    x = (torch.randn(32, 3, 8, 8) + 3).bfloat16()
    expected, found = reference(x), ours(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    torch.testing.assert_close(ours.running_mean, reference.running_mean)
    torch.testing.assert_close(ours.running_var, reference.running_var)


@pytest.mark.usefixtures("group")
def test_global_batch_norm_in_eval_mode_uses_its_running_statistics() -> None:
    reference, ours = pair()
    x = torch.randn(5, 3, 4, 4)
    for layer in (reference, ours):
        layer(x * 3 + 1)
        layer.eval()
    torch.testing.assert_close(ours(x), reference(x), rtol=1e-5, atol=1e-5)
