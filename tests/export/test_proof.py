"""The bound as it is traced, in torch: that of `upper_bound`, with steps that an export can express."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from prood.bounds import NegativeLinear, Residual
from prood.errors import Unsupported
from prood.export.graph import Graph, Portable, ball, layers_of
from prood.models import Discriminator, ProoD

ANY = st.floats(allow_nan=False, allow_infinity=False)
FLOAT32 = st.floats(0, 1, width=32)


def proven(model: ProoD, images: Tensor, eps: float) -> Tensor:
    proof = Graph(model).proof
    wide = {name: value.double() for name, value in (*proof.named_parameters(), *proof.named_buffers())}
    with torch.no_grad():
        return functional_call(proof, wide, (images, torch.tensor(eps)))


@pytest.mark.parametrize("which", ["detector", "odd"])
@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.01, 0.1, 1.0, 1e30, math.inf])
def test_the_bound_is_that_of_torch(which, eps, request):
    model, shape = request.getfixturevalue(which).model, request.getfixturevalue(which).shape
    torch.manual_seed(1)
    images = torch.rand(6, *shape)
    images[0], images[1] = 0, (images[1] > 0.5).float()
    ours = proven(model, images, eps)
    theirs = model.discriminator.upper_bound(images, torch.tensor(eps).item()).double()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    if eps <= 0.01:
        assert (theirs < model.discriminator.ceiling).all()  # not all the ceiling, which would be easy


def test_there_is_no_bound_where_a_sum_may_overflow(odd):
    model = copy.deepcopy(odd.model).requires_grad_(False)
    images = torch.rand(3, *odd.shape)
    assert proven(model, images, 0.01).isfinite().all()
    model.discriminator.body[1].weight.mul_(1e30)
    model.discriminator.body[4].weight.mul_(1e30)
    assert (proven(model, images, 0.01) == math.inf).all()
    eps, logits = torch.tensor(0.01), model.logits(images)
    assert (Graph(model)(images, logits, eps)[3] == 1).all()


def test_both_choices_of_the_slopes_count(odd):
    """Bounds by the slopes at the image and at the middle; each is the better one for some image."""
    torch.manual_seed(0)
    images = torch.rand(64, *odd.shape)
    proof = Graph(copy.deepcopy(odd.model)).proof.double()  # its layers are the model's own
    both = proven(odd.model, images, 0.03)
    proof.slopes_at = lambda x: {}
    with torch.no_grad():
        middle = proof(images, torch.tensor(0.03))
    assert (both <= middle).all()
    assert (both < middle - 1e-9).any()


@given(ANY, st.booleans())
def test_a_step_is_never_shorter_than_that_of_nextafter(x, up):
    value, towards = torch.tensor(x, dtype=torch.float64), torch.tensor(math.inf if up else -math.inf).double()
    exact = math.nextafter(x, towards.item())
    with Portable():
        moved = torch.nextafter(value, towards).item()
    assert moved >= exact if up else moved <= exact
    assert abs(moved - x) <= 2 * abs(exact - x) + 1e-37 or not math.isfinite(moved)


def test_halves_of_a_batch():
    x = torch.arange(24.0).reshape(6, 4)
    with Portable():
        one, other = x.chunk(2)
    assert torch.equal(one, x[:3])
    assert torch.equal(other, x[3:])


@given(st.lists(FLOAT32, min_size=1, max_size=20), st.floats(0, 2), st.integers(0, 2**20))
def test_the_ball_contains_what_float32_makes_of_it(pixels, eps, seed):
    """For the radius before it was rounded, in exact arithmetic and in float32; and the whole of it lies in [0, 1]."""
    x, radius = np.array(pixels, dtype=np.float32), np.float32(eps)
    box = ball(torch.tensor(x).reshape(1, -1), torch.tensor(radius))
    low, high = box.lower[0].numpy(), box.upper[0].numpy()
    sign = np.random.default_rng(seed).choice([-1.0, 1.0], len(x))
    for point in (
        np.clip(x + sign.astype(np.float32) * radius, 0, 1),
        np.clip(x.astype(np.float64) + sign * eps, 0, 1),
        x,
    ):
        assert (low <= point).all()
        assert (point <= high).all()
    assert (low >= -1e-15).all()
    assert (high <= 1 + 1e-15).all()
    assert (high - low <= 2.01 * eps + 3e-7).all()


class Half(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(2),  # merged into the convolution before it
        Residual(nn.Conv2d(2, 2, 1)),  # merged into its last convolution
        nn.LeakyReLU(),
        nn.MaxPool2d(1),
        nn.AvgPool2d(3, stride=1, padding=1),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Conv2d(2, 2, 1, groups=2),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(2, 2, 3, padding="same"),
        Half(),
    ],
    ids=str,
)
def test_layers_that_are_not_covered_are_refused(layer):
    network = nn.Sequential(nn.Conv2d(1, 2, 1), layer, nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), NegativeLinear(4))
    with pytest.raises(Unsupported):
        layers_of(Discriminator(network))
