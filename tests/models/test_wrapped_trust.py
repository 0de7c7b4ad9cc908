"""Code that comes with a model runs only for a caller who says so: TorchScript is a program."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import prood
from prood.detector import Detector
from prood.errors import Unsupported
from prood.export import export
from prood.models import ProoD, WrapOptions, discriminator, load, open_classifier, save
from prood.models.wrapped import trusting_code


class Writes(nn.Module):
    """A classifier that leaves a trace wherever it is asked: `torch.save` is in reach of a program."""

    def __init__(self, trace: str) -> None:
        super().__init__()
        self.trace, self.last = trace, nn.Linear(36, 3)

    def forward(self, images: Tensor) -> Tensor:
        torch.save(images, self.trace)
        return self.last(images.flatten(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a TorchScript classifier, and its trace, which its maker has removed."""
    folder = tmp_path_factory.mktemp("hostile")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Writes(str(folder / "trace"))).save(folder / "model.pt")
    f, _ = open_classifier(folder / "model.pt", (1, 6, 6), options=WrapOptions(trust_code=True, image=(1, 6, 6)))
    save(ProoD(f, discriminator("digits", image=(1, 6, 6)), 1.0), folder / "run" / "model.safetensors", eps=0.1)
    np.savez(folder / "images.npz", images=np.zeros((2, 6, 6), np.uint8))
    Image.fromarray(np.zeros((6, 6), np.uint8)).save(folder / "a.png")
    assert (folder / "trace").exists()
    return folder


@pytest.fixture
def prood_command(prood: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    return prood


@pytest.fixture(autouse=True)
def clean(folder: Path) -> None:
    (folder / "trace").unlink(missing_ok=True)


ENTRIES: dict[str, Callable[[Path], object]] = {
    "prood.load": lambda folder: prood.load(folder / "run"),
    "models.load": lambda folder: load(folder / "run"),
    "Detector.load": lambda folder: Detector.load(folder / "run"),
    "open_classifier": lambda folder: open_classifier(folder / "model.pt", (1, 6, 6)),
    "export": lambda folder: export(folder / "run", folder / "model.onnx"),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_python_entry_refuses_it(folder: Path, entry: str) -> None:
    with pytest.raises(Unsupported, match=r"TorchScript.*--trust-code"):
        ENTRIES[entry](folder)
    assert not (folder / "trace").exists()


COMMANDS = {
    "certify": "certify {0}/a.png --model {0}/run --eps 0.1",
    "predict": "predict {0}/a.png --model {0}/run",
    "verify": "verify {0}/certificates.jsonl --model {0}/run",
    "serve": "serve {0}/run --port 0",
    "export": "export {0}/run {0}/other.onnx",
    "evaluate": "evaluate {0}/run --out npz:{0}/images.npz",
    "wrap": "wrap {0}/model.pt --discriminator {0}/disc --shift 1 --run {0}/wrapped",
    "wrap a run": "wrap {0}/run --discriminator {0}/disc --shift 1 --run {0}/wrapped",
    "calibrate": "calibrate {0}/run npz:{0}/images.npz",
    "asymptotics": "asymptotics {0}/run",
    "info": "info {0}/run",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_it(prood_command: Callable[..., tuple[int, str, str]], folder: Path, command: str) -> None:
    if not (folder / "disc").exists():
        save(discriminator("digits", image=(1, 6, 6)), folder / "disc" / "model.safetensors")
    code, _, err = prood_command(*COMMANDS[command].format(folder).split())
    assert not (folder / "trace").exists()
    if command not in ("verify", "info"):  # which read numbers only
        assert code == 2
        assert "TorchScript" in err
        assert "--trust-code" in err


def test_whoever_trusts_it_may_run_it(prood_command: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    image = torch.zeros(1, 1, 6, 6)
    prood.load(folder / "run", trust_code=True).confidence(image)
    assert (folder / "trace").exists()
    Detector.load(folder / "run", trust_code=True).predict(image)
    with trusting_code():
        load(folder / "run")
    assert prood_command("predict", folder / "a.png", "--model", folder / "run", "--trust-code")[0] == 0
    with pytest.raises(Unsupported):  # said for one command, and for one call
        load(folder / "run")
    assert prood_command("predict", folder / "a.png", "--model", folder / "run")[0] == 2
