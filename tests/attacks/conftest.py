"""Scores that are known in closed form, images whose balls are cut by [0, 1], and attacks to be tried on them."""

import pytest
import torch
from torch import Tensor, nn

from prood.attacks import APGD, PGD, PRESETS, Ensemble, Square
from prood.models import ProoD, Score, build, discriminator

ALL = {**PRESETS, "pgd": PGD(), "apgd": APGD(), "square": Square()}
SHORT = {
    "pgd": PGD(steps=12, uniform=1, gaussian=1, blocks=1),
    "apgd": APGD(iterations=20, restarts=2),
    "refine": APGD(iterations=12, restarts=0, refine=2),
    "square": Square(queries=40),
    "ensemble": Ensemble((PGD(steps=6), APGD(iterations=8, restarts=1), Square(queries=15), APGD(5, 0, 1))),
}


class Function(Score):
    """Any function of images as a score. It counts the passes and remembers how many rows each call had."""

    def __init__(self, function) -> None:
        super().__init__(nn.Identity())
        self.function, self.calls, self.backward = function, [], 0

    def __call__(self, images: Tensor) -> Tensor:
        self.calls.append(len(images))
        scores = self.function(images).double()
        if scores.requires_grad:
            scores.register_hook(self._count)
        return scores

    @property
    def forward(self) -> int:
        return sum(self.calls)

    def _count(self, gradient: Tensor) -> None:
        self.backward += len(gradient)


@pytest.fixture(scope="session")
def scored():
    return Function


@pytest.fixture(scope="session")
def joint():
    """Makes an untrained joint model for 32×32 images, with this classifier or a small one."""

    def make(classifier: nn.Module | None = None) -> ProoD:
        torch.manual_seed(0)
        colours = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
        classifier = classifier or build({"name": "small", "classes": 3, "width": 8, **colours})
        return ProoD(classifier, discriminator("XS"), 1.0).eval()

    return make


@pytest.fixture(params=ALL)
def full(request):
    """Every attack as it comes, and every preset."""
    return ALL[request.param]


@pytest.fixture(params=SHORT)
def attack(request):
    """Every attack with a small budget."""
    return SHORT[request.param]


@pytest.fixture(scope="session")
def edgy():
    """Random images with many pixels at 0 and 1, or close to them."""

    def draw(count: int, shape: tuple[int, int, int], seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        images, kind = torch.rand(2, count, *shape, generator=generator, dtype=dtype)
        images = torch.where(kind < 0.2, images.round(), images)
        images = torch.where((kind > 0.2) & (kind < 0.4), images / 100, images)
        return torch.where((kind > 0.4) & (kind < 0.6), 1 - images / 100, images)

    return draw


@pytest.fixture(scope="session")
def wavy(scored):
    """A score with many local maxima, whose value for an image has nothing to do with the rest of the batch."""

    def make(shape: tuple[int, int, int], seed: int = 0) -> Score:
        generator = torch.Generator().manual_seed(seed)
        w, v = torch.randn(2, *shape, generator=generator, dtype=torch.float64)

        def function(x: Tensor) -> Tensor:
            return (w * x.double()).flatten(1).sum(1).sin() + (v * (3 * x.double()).cos()).flatten(1).sum(1)

        return scored(function)

    return make
