"""Far away from all data."""

import math

import pytest
import torch
from torch import nn

from prood.data import ImageSet
from prood.errors import BadValue
from prood.evaluation.asymptotics.far import far_away, random_directions
from prood.models import ProoD, discriminator, small

CLASSES = 4


def images(name: str, seed: int, count: int = 30) -> ImageSet:
    torch.manual_seed(seed)
    return ImageSet(name, torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8), torch.arange(count) % CLASSES)


INSIDE, OUTSIDE = images("in", 0), images("out", 1)


def test_a_relu_network_becomes_sure_of_itself() -> None:
    torch.manual_seed(0)
    model = small(CLASSES, width=4).eval()
    far = far_away(model, INSIDE, OUTSIDE, trajectories=20)
    assert far.confidence is not None
    assert far.confidence[-1] > 0.99
    assert far.auc[-1] < 0.05  # nearly every point out there looks more familiar than the data
    assert (far.trajectories, far.classes) == (20, CLASSES)


def test_a_joint_model_goes_to_the_uniform_distribution() -> None:
    torch.manual_seed(0)
    model = ProoD(small(CLASSES, width=4), discriminator("digits", image=(1, 8, 8))).eval()
    far = far_away(model, INSIDE, OUTSIDE, trajectories=20)
    assert far.confidence is not None
    assert math.isclose(far.confidence[-1], 1 / CLASSES, abs_tol=1e-3)
    assert far.auc[-1] == 1


def test_at_the_images_themselves_it_is_their_mean_confidence() -> None:
    torch.manual_seed(0)
    model = small(CLASSES, width=4).eval()
    far = far_away(model, INSIDE, OUTSIDE, alphas=[0.0])
    expected = model(OUTSIDE.floats()).double().softmax(1).amax(1).mean().item()
    assert far.confidence == pytest.approx((expected,), rel=1e-6)
    assert far.trajectories == 30  # all there are


def test_directions_are_uniform_and_follow_the_seed() -> None:
    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[torch.Tensor] = []

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            self.seen.append(points)
            return points.flatten(1)[:, :2]

    spies = [Spy(), Spy(), Spy()]
    for spy, seed in zip(spies, (0, 0, 1), strict=True):
        far_away(spy, INSIDE, OUTSIDE, alphas=[0.0, 100.0], seed=seed)
    moved = [(spy.seen[-1] - OUTSIDE.floats()) / 100 for spy in spies]
    assert torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])
    assert -0.5 <= moved[0].min() < -0.49
    assert 0.49 < moved[0].max() <= 0.5
    assert abs(moved[0].mean()) < 0.03


def test_a_discriminator_has_no_confidence_but_a_score() -> None:
    far = far_away(discriminator("digits", image=(1, 8, 8)), INSIDE, OUTSIDE, trajectories=5)
    assert (far.confidence, far.classes) == (None, None)
    assert far.auc[-1] == 1


def test_nowhere_to_go_is_refused() -> None:
    with pytest.raises(BadValue):
        far_away(small(CLASSES, width=4), INSIDE, OUTSIDE, alphas=[])


def test_more_directions_than_memory_are_refused() -> None:
    with pytest.raises(BadValue, match="choose at most 1,369,568"):
        random_directions(2_000_000_000, (1, 28, 28))
