"""What holds for all tests."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import settings

from prood import cli

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
