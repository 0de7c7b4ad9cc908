"""What several tests of the bounds need: points of boxes, among them those that a gradient finds."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Box


@pytest.fixture(scope="session")
def simulator() -> ModuleType:
    """The float32 hardware of simulator.py: tests are not a package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("simulator", Path(__file__).with_name("simulator.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulator"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def inside() -> Callable[..., Tensor]:
    """Points of each box, shape (count, B, …): random ones, corners and the centre."""

    def draw(box: Box, count: int = 8) -> Tensor:
        place = torch.rand(count, *box.radius.shape, dtype=box.radius.dtype) * 2 - 1
        place = torch.cat([place, place.sign(), torch.zeros_like(place[:1])])
        return torch.clamp(box.middle + box.radius * place, box.lower, box.upper)

    return draw


@pytest.fixture(scope="session")
def climb(inside: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The largest outputs of a scalar network on each box that sign-gradient ascent finds; shape (B,)."""

    def ascend(network: nn.Module, box: Box, starts: int = 3, steps: int = 8) -> Tensor:
        best = torch.full((len(box.radius),), -torch.inf, dtype=box.radius.dtype)
        for point in inside(box, starts):
            for step in range(steps):
                point = point.detach().requires_grad_()
                value = network(point.clone())[:, 0]
                best = torch.maximum(best, value.detach())
                (gradient,) = torch.autograd.grad(value.sum(), point)
                length = 2 * box.radius * 0.7**step
                point = torch.clamp(point + length * gradient.sign(), box.lower, box.upper)
        return best

    return ascend
