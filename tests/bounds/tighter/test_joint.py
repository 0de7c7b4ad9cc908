"""What chords lose together: never more than they do at any point, and often something."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Box, Normalise
from prood.bounds.tighter import joint
from prood.bounds.tighter.alpha import better_start, tilts
from prood.bounds.tighter.chain import Linear, flatten


def first_layers(seed: int) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(seed)
    convolution = nn.Conv2d(2, 7, 3, padding=1, stride=2)
    network = nn.Sequential(Normalise([0.4, 0.5], [0.3, 0.2]), convolution, nn.ReLU(), nn.Flatten(), nn.Linear(63, 1))
    return network.double().requires_grad_(False), torch.rand(3, 2, 5, 5).double()


def ball(x: Tensor, sound: bool) -> Box:
    if sound:
        return Box.sound_ball(x.float(), 0.1).double()
    return replace(Box.ball(x, 0.1, points=x), anchored=True)


def lost_together(part: joint.Joint, slope: Tensor, box: Box, owner: Tensor | None = None) -> Tensor:
    return part.group(slope, box, owner).least(None).clamp(min=0).sum(1)


@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_point_loses_less(inside: Callable[..., Tensor], climb: Callable[..., Tensor], sound: bool, seed) -> None:
    network, x = first_layers(seed)
    linear = Linear.of(flatten(network), ball(x, sound))
    relu, slope = linear.boxes[2], torch.randn(3, 7, 3, 3).double()
    assert linear.joint is not None
    saved = lost_together(linear.joint, slope, relu)
    assert (saved > 0).any()
    unstable = (relu.lower < 0) & (relu.upper > 0) & (slope > 0)
    chord = relu.upper / (relu.upper - relu.lower)

    class Lost(nn.Module):
        def forward(self, point: Tensor) -> Tensor:
            z = network[1](network[0](point))
            tent = chord * (z - relu.lower) - torch.relu(z)
            return -torch.where(unstable, slope * tent, 0).flatten(1).sum(1, keepdim=True)

    least = -climb(Lost(), linear.boxes[0], starts=10, steps=12)
    assert (least >= saved - 1e-9).all()
    assert (saved > 0.2 * least).any()  # and what is claimed is not nothing


@pytest.mark.parametrize("sound", [False, True])
def test_rows_of_images_and_cut_boxes(sound: bool) -> None:
    network, x = first_layers(0)
    linear = Linear.of(flatten(network), ball(x, sound))
    assert linear.joint is not None
    slope = torch.randn(3, 7, 3, 3).double()
    owner = torch.tensor([2, 0, 1, 2])
    from_rows = lost_together(linear.joint, slope[owner], replace(linear, owner=owner).box(2), owner)
    torch.testing.assert_close(from_rows, lost_together(linear.joint, slope, linear.boxes[2])[owner])


def test_the_bound_is_lowered_and_still_holds(climb: Callable[..., Tensor]) -> None:
    network, x = first_layers(1)
    linear = Linear.of(flatten(network), ball(x, sound=True))
    alone, together = linear.bound(), linear.bound(joint=True)
    assert (together <= alone).all()
    assert (together < alone).any()
    assert (climb(network, linear.boxes[0], starts=6) <= together).all()


@pytest.mark.slow
@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_slopes_of_what_is_lost_give_a_bound_and_good_ones_a_better_one(
    climb: Callable[..., Tensor], inside: Callable[..., Tensor], sound: bool, seed: int
) -> None:
    network, x = first_layers(seed)
    linear = Linear.of(flatten(network), ball(x, sound))
    plain = Linear.of(flatten(network), ball(x, sound=False))
    found = climb(network, linear.boxes[0], starts=10, steps=12)
    for point in inside(linear.boxes[0], 200):
        found = torch.maximum(found, network(point)[:, 0])
    choice = better_start(linear)
    assert linear.joint is not None
    shape = linear.joint.radius.shape
    slack = 0 if sound else 1e-9
    for size in (0.0, 0.01, 0.3, 10.0):
        anywhere = replace(linear, tilt=size * torch.randn(shape).double())
        assert (found <= anywhere.bound(choice, joint=True) + slack).all()
    good = replace(linear, tilt=tilts(plain, choice, 30)).bound(choice, joint=True)
    assert (found <= good + slack).all()
    flat = linear.bound(choice, joint=True)
    assert (good <= flat + 1e-6).all()
    assert ((flat - good) > 0.1 * (flat - found)).any()  # a visible part of the gap


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Flatten(), nn.Linear(50, 4), nn.ReLU(), nn.Linear(4, 1)],
        [nn.ReLU(), nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 1)],
        [nn.Conv2d(2, 2, 3, padding="same"), nn.ReLU(), nn.Flatten(), nn.Linear(50, 1)],
        [nn.Conv2d(2, 2, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 1)],
        [nn.Conv2d(2, 2, 5), nn.Flatten(), nn.Linear(2, 1)],
    ],
)
def test_other_networks_are_left_alone(layers: list[nn.Module]) -> None:
    network = nn.Sequential(*layers).double().requires_grad_(False)
    linear = Linear.of(flatten(network), ball(torch.rand(2, 2, 5, 5).double(), sound=False))
    assert linear.joint is None
    assert torch.equal(linear.bound(joint=True), linear.bound())


def test_more_units_in_a_group_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x = first_layers(2)
    linear = Linear.of(flatten(network), ball(x, sound=False))
    assert linear.joint is not None
    slope = torch.rand(3, 7, 3, 3).double()
    sums = []
    for size in (1, 2, 4, 6):
        monkeypatch.setattr(joint, "GROUP", size)
        sums.append(lost_together(linear.joint, slope, linear.boxes[2]).sum().item())
    assert sums[0] == pytest.approx(0, abs=1e-9)  # a unit alone may be at an end
    assert sums[1] < sums[2] < sums[3]
