"""A recipe of a few steps on images of 8×8 pixels, and labs in which all of it is trained and published in seconds."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from prood.attacks import APGD, PGD, PRESETS, Ensemble, Square
from prood.reproduce import Lab

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


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """In the modules of this folder, and not in those that come after them."""
    with shortened():
        yield


@pytest.fixture(scope="session")
def lab_in(tiny: Path) -> Callable[..., Lab]:
    """A lab of this recipe in a folder."""

    def make(folder: Path, **options: object) -> Lab:
        settings = {
            "seeds": (0, 1),
            "attacked": 3,
            "command": "prood reproduce",
            "results": folder / "results",
        } | options
        console = Console(file=io.StringIO(), width=160)
        return Lab(str(tiny), folder / "runs", console=console, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def trained(lab_in: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab whose cheap models are trained and published; tests only add to it."""
    lab = lab_in(tmp_path_factory.mktemp("lab"))
    with shortened():
        for run in ("plain", "oe", "discriminator", "prood-s", "prood"):
            assert lab.published(run) is not None
    return lab
