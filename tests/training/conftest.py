"""A toy problem for training: 8×8 images, squares in one of four corners against smooth ramps, seconds on a CPU."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from prood.training import Recipe, load_recipe

COUNT, SIDE = 96, 8

RECIPE = """
[data]
inside = "npz:{inside}"
outside = "npz:{outside}"

[augment]
pad = 1
flip = true
degrees = 5.0

[networks.classifier]
name = "small"
width = 4

[networks.discriminator]
size = "digits"

[train.plain]
epochs = 3
batch = 24
optimizer = "sgd"
lr = 0.01
nesterov = true
weight_decay = 5e-4
checkpoint_seconds = 0

[train.oe]
epochs = 3
batch = 24
lr = 0.01
checkpoint_seconds = 0

[train.prood]
epochs = 3
batch = 24
lr = 0.01
checkpoint_seconds = 0

[train.discriminator]
epochs = 3
batch = 24
lr = 0.003
weight_decay = 5e-4
eps = 0.05
eps_ramp = 0.25
checkpoint_seconds = 0

[joint]
shift = 1.5
"""


@pytest.fixture(scope="session")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's file, with its two image sets beside it."""
    folder = tmp_path_factory.mktemp("toy")
    random = np.random.default_rng(0)
    labels = np.arange(COUNT) % 4
    inside = random.integers(0, 50, (COUNT, SIDE, SIDE))
    for image, label in zip(inside, labels, strict=True):
        top, left = 4 * (label // 2), 4 * (label % 2)
        image[top : top + 3, left : left + 3] += 200
    slopes = random.uniform(-15, 15, (2, COUNT, 1, 1))
    y, x = np.mgrid[:SIDE, :SIDE] - SIDE / 2
    outside = 128 + slopes[0] * y + slopes[1] * x + random.integers(-8, 9, (COUNT, SIDE, SIDE))
    np.savez(folder / "inside.npz", images=inside.astype(np.uint8), labels=labels)
    np.savez(folder / "outside.npz", images=outside.clip(0, 255).astype(np.uint8))
    file = folder / "toy.toml"
    file.write_text(RECIPE.format(inside=folder / "inside.npz", outside=folder / "outside.npz"))
    return file


@pytest.fixture
def recipe(toml: Path) -> Recipe:
    return load_recipe(str(toml))


@pytest.fixture
def console() -> Console:
    """A console whose text is `console.file.getvalue()`."""
    return Console(file=StringIO(), width=300)


@pytest.fixture
def said(console: Console) -> Callable[[], str]:
    return lambda: console.file.getvalue()  # type: ignore[attr-defined]
