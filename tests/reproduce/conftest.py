"""A recipe of a few steps on images of 8×8 pixels, and labs in which all of it is trained and published in seconds."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from prood.attacks import APGD, PGD, PRESETS, Ensemble, Square
from prood.reproduce import Lab

COUNT, SIDE = 60, 8
RECIPE = """
[data]
inside = "npz:{folder}/squares.npz"
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
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the recipe: squares in one of four corners against smooth ramps."""
    folder = tmp_path_factory.mktemp("tiny")
    random = np.random.default_rng(0)
    labels = np.arange(COUNT) % 4
    inside = random.integers(0, 50, (COUNT, SIDE, SIDE))
    for image, label in zip(inside, labels, strict=True):
        top, left = 4 * (label // 2), 4 * (label % 2)
        image[top : top + 3, left : left + 3] += 200
    slopes = random.uniform(-15, 15, (2, COUNT, 1, 1))
    y, x = np.mgrid[:SIDE, :SIDE] - SIDE / 2
    outside = 128 + slopes[0] * y + slopes[1] * x
    np.savez(folder / "squares.npz", images=inside.astype(np.uint8), labels=labels)
    np.savez(folder / "ramps.npz", images=outside.clip(0, 255).astype(np.uint8))
    text = RECIPE.format(folder=folder)
    for method in ("plain", "oe", "discriminator", "prood", "robust"):
        text += f"[train.{method}]\nepochs = 2\nbatch = 20\nlr = 0.01\n"
        text += "eps = 0.06\n" if method in ("discriminator", "robust") else ""
    (folder / "tiny.toml").write_text(text)
    return folder / "tiny.toml"


@pytest.fixture(scope="session", autouse=True)
def short() -> Iterator[None]:
    """The preset's attacks with a tenth of their steps."""
    with pytest.MonkeyPatch.context() as patch:
        members = (PGD(steps=5, uniform=1, gaussian=0), APGD(iterations=5, restarts=1), Square(queries=5))
        patch.setitem(PRESETS, "fast", Ensemble(members))
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
    for run in ("plain", "oe", "discriminator", "prood-s", "prood"):
        assert lab.published(run) is not None
    return lab
