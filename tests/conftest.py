"""What holds for all tests."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from rich.console import Console

from prood import cli
from prood.attacks import APGD, PGD, PRESETS, Ensemble, Square
from prood.data import ImageSet, uniform_noise
from prood.models import discriminator, small
from prood.studies import Runner, study_of

# Networks in tests are small, and test processes run side by side: more threads would only wait for each other.
torch.set_num_threads(1)

# The same examples in every run, however busy the machine: a change fails by itself, never by chance. To look for new
# examples, run pytest with --hypothesis-profile=explore.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeat")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with slow tests first, each in its own order: whoever is through takes over short tests at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A data folder of the tests' own: folders of pictures are cached there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROOD_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def squares_and_ramps() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """60 images of 8×8: bright squares in one of four corners, the numbers of their corners, and smooth ramps."""
    count, side = 60, 8
    random = np.random.default_rng(0)
    labels = np.arange(count) % 4
    squares = random.integers(0, 50, (count, side, side))
    for image, label in zip(squares, labels, strict=True):
        top, left = 4 * (label // 2), 4 * (label % 2)
        image[top : top + 3, left : left + 3] += 200
    slopes = random.uniform(-15, 15, (2, count, 1, 1))
    y, x = np.mgrid[:side, :side] - side / 2
    ramps = 128 + slopes[0] * y + slopes[1] * x
    return squares.astype(np.uint8), labels, ramps.clip(0, 255).astype(np.uint8)


@pytest.fixture
def prood(monkeypatch, capsys):
    """Run `prood …` in this process; the exit code, what it printed, and what it complained about."""

    def run(*words: object, columns: int = 200) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["prood", *map(str, words)])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


# A recipe of a few steps on images of 8×8 pixels, and labs in which all of it is trained and published in seconds.

RECIPE = """
[data]
inside = "npz:{folder}/squares/train.npz"
outside = "npz:{folder}/ramps.npz"
held_back = 10
[networks.classifier]
name = "small"
width = 4
[networks.discriminator]
size = "digits"
[joint]
shift = 1.0
[evaluate]
outside = ["npz:{folder}/ramps.npz", "uniform"]
eps = [0.06]
limit = 6
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, squares_and_ramps: tuple[np.ndarray, ...]) -> Path:
    """The recipe's file, with its image sets beside it."""
    folder = tmp_path_factory.mktemp("tiny")
    squares, labels, ramps = squares_and_ramps
    (folder / "squares").mkdir()
    for split, rows in (("train", slice(None)), ("test", slice(0, None, 2))):
        np.savez(folder / "squares" / f"{split}.npz", images=squares[rows], labels=labels[rows])
    np.savez(folder / "ramps.npz", images=ramps)
    text = RECIPE.format(folder=folder)
    for method in ("plain", "oe", "discriminator", "prood", "robust"):
        text += f"[train.{method}]\nepochs = 2\nbatch = 20\nlr = 0.01\n"
        text += "eps = 0.06\n" if method in ("discriminator", "robust") else ""
    (folder / "tiny.toml").write_text(text)
    return folder / "tiny.toml"


@contextmanager
def shortened() -> Iterator[None]:
    """The preset's attacks with a tenth of their steps."""
    with pytest.MonkeyPatch.context() as patch:
        members = (PGD(steps=5, uniform=1, gaussian=0), APGD(iterations=5, restarts=1), Square(queries=5))
        patch.setitem(PRESETS, "fast", Ensemble(members))
        yield


@pytest.fixture(scope="module")
def short() -> Iterator[None]:
    """In the modules that ask for it, and not in those that come after them."""
    with shortened():
        yield


@pytest.fixture(scope="session")
def runner_in(tiny: Path) -> Callable[..., Runner]:
    """A runner of this recipe in a folder."""

    def make(folder: Path, **options: object) -> Runner:
        study = study_of(str(tiny))
        ours = {name: options.pop(name) for name in list(options) if hasattr(study, name)}
        study = replace(study, **{"attacked": 3} | ours)
        settings = {"seeds": (0, 1), "command": "prood reproduce", "results": folder / "results"} | options
        console = Console(file=io.StringIO(), width=160)
        return Runner(study, folder / "runs", console=console, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def trained(runner_in: Callable[..., Runner], tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A runner whose cheap models are trained and published; tests only add to it."""
    runner = runner_in(tmp_path_factory.mktemp("runner"))
    with shortened():
        for run in ("plain", "oe", "discriminator", "prood-s", "prood"):
            assert runner.published(run) is not None
    return runner


# A small joint model on noise: random weights, so that nothing separates well and every order can go wrong.


@pytest.fixture(scope="session")
def inside():
    noise = uniform_noise(30, (1, 28, 28), seed=1)
    return ImageSet("inside", noise.images, torch.arange(30) % 4, ("a", "b", "c", "d"))


@pytest.fixture(scope="session")
def outside(inside):
    return {"dark": ImageSet("dark", inside.images // 3), "noise": uniform_noise(20, (1, 28, 28), seed=2)}


@pytest.fixture
def f():
    torch.manual_seed(0)
    return small(4, width=4).eval()


@pytest.fixture
def g():
    torch.manual_seed(1)
    return discriminator("digits", image=(1, 28, 28)).eval()


@pytest.fixture(scope="module")
def parts():
    """A classifier and a discriminator for digits: random, but sure, and with bounds below the ceiling."""
    from prood.models import discriminator, small

    torch.manual_seed(3)
    f, g = small(6, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    return f, g
