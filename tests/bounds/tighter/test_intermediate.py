"""Bounds of hidden units: windows against whole images, and against values that units take."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Box, Normalise
from prood.bounds.tighter.chain import Linear, flatten, intersect
from prood.bounds.tighter.intermediate import Units
from prood.bounds.tighter.windows import Windows


def pooled(seed: int) -> tuple[list[nn.Module], Tensor]:
    torch.manual_seed(seed)
    norm = nn.BatchNorm2d(4)
    norm.running_var.uniform_(0.5, 2)
    network = nn.Sequential(
        Normalise([0.4, 0.5], [0.3, 0.2]),
        nn.Conv2d(2, 4, 3, padding=1),
        norm,
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 4, (3, 2), stride=(2, 1), padding=(1, 0), groups=2),
        nn.Dropout(),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, padding=2, dilation=2),
        nn.ReLU(),
        nn.Conv2d(3, 2, 2),
    )
    return flatten(network.eval().double().requires_grad_(False)), torch.rand(2, 2, 12, 12).double()


def ball(x: Tensor, sound: bool) -> Box:
    if sound:
        return Box.sound_ball(x.float(), 0.05).double()
    return replace(Box.ball(x, 0.05, points=x), anchored=True)


@pytest.mark.slow
@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize("steps", [0, 3])
@torch.no_grad()
def test_windows_give_the_bounds_of_whole_images(sound: bool, steps: int) -> None:
    layers, x = pooled(0)
    box = ball(x, sound)
    before = Linear.of(layers, box)
    assert Windows(before).possible
    by_windows = Linear.of(layers, box, Units(1 << 22, steps))
    by_rows = Linear.of(layers, box, Units(1 << 22, steps, windows=False))
    one_by_one = Linear.of(layers, box, Units(1, steps))
    # Sound rows may pay a little less for rounding where inputs are not negative.
    close = {"rtol": 1e-6, "atol": 1e-6} if sound else {"rtol": 1e-9, "atol": 1e-10}
    shrunk = 0
    for number in (7, 9):
        for other in (by_rows, one_by_one):
            torch.testing.assert_close(by_windows.boxes[number].lower, other.boxes[number].lower, **close)
            torch.testing.assert_close(by_windows.boxes[number].upper, other.boxes[number].upper, **close)
        assert (by_windows.boxes[number].radius <= before.boxes[number].radius).all()
        shrunk += int((by_windows.boxes[number].radius < before.boxes[number].radius * 0.99).sum())
    assert shrunk > 20


@pytest.mark.slow
@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize("windows", [False, True])
@torch.no_grad()
def test_units_stay_in_their_tightened_boxes(inside: Callable[..., Tensor], sound: bool, windows: bool) -> None:
    layers, x = pooled(1)
    box = ball(x, sound)
    tightened = Linear.of(layers, box, Units(1 << 20, 2, windows=windows))
    for point in inside(box, 30):
        value = point
        for layer, entering in zip(layers, tightened.boxes, strict=False):
            assert (value >= entering.lower - (0 if sound else 1e-12)).all()
            assert (value <= entering.upper + (0 if sound else 1e-12)).all()
            value = layer(value.clone())


@torch.no_grad()
def test_only_wanted_units_are_bounded_anew() -> None:
    layers, x = pooled(2)
    box = ball(x, sound=False)
    before = Linear.of(layers, box)
    wanted = {n: torch.zeros_like(before.boxes[n].radius, dtype=torch.bool) for n in before.bends}
    wanted[7][0, 1] = True
    after = Linear.of(layers, box, Units(1 << 20, 0, wanted))
    smaller = after.boxes[7].radius < before.boxes[7].radius
    assert smaller.any()
    assert not (smaller & ~wanted[7]).any()


@pytest.mark.parametrize("sound", [False, True])
def test_an_intersection_is_a_smaller_box_with_what_lies_in_both(sound: bool) -> None:
    torch.manual_seed(0)
    box = ball(torch.rand(4, 5).double(), sound)
    lower, upper = box.lower - 0.02 + 0.05 * torch.rand(4, 5), box.upper + 0.02 - 0.05 * torch.rand(4, 5)
    lower[0, 0], upper[0, 1] = torch.nan, torch.nan
    both = intersect(box, lower, upper)
    assert (both.radius <= box.radius).all()
    for end, other in ((torch.maximum, lower), (torch.minimum, upper)):
        point = end(other.nan_to_num(0.5), box.lower if end is torch.maximum else box.upper)
        known = ~other.isnan() & (lower <= upper)
        slack = 0 if sound else 1e-12
        assert ((both.lower - slack <= point) & (point <= both.upper + slack))[known].all()
    assert both.radius.isfinite().all()
