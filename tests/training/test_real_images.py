"""One short epoch of the recipe for CIFAR on real images, where they are at hand."""

import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from prood import data
from prood.evaluation import evaluate_run
from prood.training import load_recipe, train

REAL = Path(__file__).parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the real images are not beside the checkout")

# CIFAR-100 plays the in-distribution, for CIFAR-10 is not among them; precision and compile are for GPUs.
SETTINGS = [
    f"data.inside=mosaic:{REAL}/cifar100/train",
    f"data.outside=mosaic:{REAL}/natural32/train",
    "data.limit=32",
    f'evaluate.outside=["mosaic:{REAL}/svhn/test", "smooth"]',
    "evaluate.limit=2",
    "train.epochs=1",
    "train.decay_from=0.5",
    "train.batch=16",
    "train.precision=float32",
    "train.compile=false",
]


def test_a_short_epoch_of_cifar10_fast_on_real_images(tmp_path: Path) -> None:
    recipe, silent = load_recipe("cifar10-fast"), Console(quiet=True)
    train(
        "discriminator",
        recipe.with_settings("discriminator", [*SETTINGS, "train.eps_ramp=0.5"]),
        tmp_path / "disc",
        device="cpu",
        console=silent,
    )
    model = train(
        "prood",
        recipe.with_settings("prood", SETTINGS),
        tmp_path / "prood",
        discriminator=tmp_path / "disc",
        shift=3.0,
        device="cpu",
        console=silent,
    )
    assert sum(parameter.numel() for parameter in model.parameters()) > 14e6
    # All 10,000 test images through a ResNet18 would take minutes.
    some = data.load(f"mosaic:{REAL}/cifar100/test").subset(32, seed=0)
    np.savez(tmp_path / "some.npz", images=some.images.permute(0, 2, 3, 1).numpy(), labels=some.labels)
    results = evaluate_run(
        tmp_path / "prood", inside=f"npz:{tmp_path}/some.npz", attacks=None, device="cpu", console=silent
    )
    assert [(one.outside, one.eps) for one in results] == [
        (name, eps) for name in (f"mosaic:{REAL}/svhn/test", "smooth") for eps in (0.01, 8 / 255)
    ]
    for one in results:
        assert one.images == 2
        assert 0 <= one.gauc <= one.auc <= 1
        assert math.isfinite(one.fpr95)
