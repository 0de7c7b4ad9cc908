"""The far penalty of a discriminator: nothing on images, and everything outside of them."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.certification.verify.network import read_model
from prood.errors import BadValue
from prood.models import Discriminator, ProoD, build, discriminator, fingerprint, load, save, small, spec_of
from prood.models.discriminators import beyond_images

SHAPE = (1, 8, 8)


def make(seed: int = 0) -> Discriminator:
    torch.manual_seed(seed)
    return discriminator("digits", image=SHAPE).eval()


def images(count: int = 200, seed: int = 1) -> torch.Tensor:
    """With the ends of the range among them."""
    torch.manual_seed(seed)
    found = torch.rand(count, *SHAPE)
    found[: count // 2] = found[: count // 2].round()
    return found


@torch.no_grad()
def test_on_images_every_bit_stays() -> None:
    g = make()
    guarded = g.with_far_penalty(3.0)
    assert torch.equal(g(images()), guarded(images()))
    assert torch.equal(g.covered(images()), guarded.covered(images()))
    assert (beyond_images(images()) == 0).all()
    some = images(6)
    for method in ("ibp", "crown-ibp", "best"):
        assert torch.equal(g.upper_bound(some, 0.05, method=method), guarded.upper_bound(some, 0.05, method=method))
    f = small(4, width=4).eval()
    joint, safer = ProoD(f, g, 1.0).eval(), ProoD(f, guarded, 1.0).eval()
    assert torch.equal(joint(images()), safer(images()))
    assert torch.equal(joint.confidence(images()), safer.confidence(images()))
    assert torch.equal(joint.upper_bound(images(6), 0.05), safer.upper_bound(images(6), 0.05))


@pytest.mark.slow
@given(st.integers(0, 10**6), st.floats(1e-3, 1e8), st.floats(1e-3, 100))
def test_outside_g_is_below_its_bias_by_the_distance(seed: int, scale: float, weight: float) -> None:
    g = make().with_far_penalty(weight)
    torch.manual_seed(seed)
    points = scale * torch.randn(4, *SHAPE)
    with torch.no_grad():
        found = g(points).double()
    exact = points.double()
    distance = (exact - exact.clamp(0, 1)).abs().flatten(1).sum(1)
    assert (found <= g.ceiling - weight * distance * (1 - 1e-5) + 1e-5).all()


def test_distance() -> None:
    point = torch.full((1, *SHAPE), 0.5)
    point[0, 0, 0, :3] = torch.tensor([-2.0, 1.5, 1.0])
    assert beyond_images(point).tolist() == [2.5]


def test_the_joint_model_goes_to_uniform_where_it_did_not() -> None:
    """A direction that switches every last unit off: g stays at its cap, and with a far penalty it falls."""
    g = make()
    with torch.no_grad():
        g.body[-1].weight.fill_(-0.1)  # conv outputs are not negative, so no last unit ever grows
    f = small(4, width=4).eval()
    point = 1e4 * torch.randn(3, *SHAPE, generator=torch.Generator().manual_seed(0))
    assert ProoD(f, g).eval().confidence(point).min() > 0.9
    safe = ProoD(f, g.with_far_penalty()).eval()
    assert safe.confidence(point).tolist() == [0.25] * 3
    assert safe(1e30 * point.sign()).softmax(1).tolist() == [[0.25] * 4] * 3
    assert safe.in_logit(point).max() < -1e4


def test_it_shares_the_weights_and_can_be_taken_off() -> None:
    g = make()
    guarded = g.with_far_penalty(2.0)
    assert (g.far_penalty, guarded.far_penalty, guarded.with_far_penalty(0).far_penalty) == (0.0, 2.0, 0.0)
    assert guarded.last is g.last
    assert fingerprint(guarded) == fingerprint(g)
    assert not guarded.training
    assert make().train().with_far_penalty().training


def test_files_remember_it(tmp_path: Path) -> None:
    g = make()
    before = dict(spec_of(g))
    guarded = g.with_far_penalty(2.0)
    assert spec_of(g) == before
    assert "far_penalty" not in before
    assert spec_of(guarded) == before | {"far_penalty": 2.0}
    assert spec_of(guarded.with_far_penalty(0)) == before
    save(ProoD(small(4, width=4), guarded, 1.0), tmp_path / "m.safetensors")
    again, _ = load(tmp_path / "m.safetensors")
    assert isinstance(again, ProoD)
    assert again.discriminator.far_penalty == 2.0
    assert build(before).far_penalty == 0.0
    assert read_model(tmp_path / "m.safetensors").network is not None  # certificates are about [0, 1]^d, and stay valid


def test_bounds_hold_beyond_the_range_as_well() -> None:
    """An upper bound without clipping to [0, 1] is still one: a far penalty only lowers g."""
    from prood import bounds

    g = make().with_far_penalty(1.0)
    some = 3 * images(5) - 1
    bound = bounds.upper_bound(g, some, 0.1, clip=None)
    torch.manual_seed(0)
    for _ in range(20):
        assert (g(some + 0.1 * (2 * torch.rand_like(some) - 1)) <= bound).all()


@pytest.mark.parametrize("weight", [-1.0, float("inf"), float("nan"), 1e39, 10**400])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(BadValue):
        make().with_far_penalty(weight)
