"""A committee: the least of its members on one scale, its bound from theirs, and its file."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood import bounds
from prood.attacks import PGD
from prood.bounds import Budget
from prood.errors import BadValue, Damaged, Diverged, Unsupported
from prood.models import Gate, Gated, ProoD, discriminator, fingerprint, load, save, score_of
from prood.models.committee import LEAST, LEVELS, Committee, Scale, committee_of
from prood.models.rising import Rising

EPS = 0.03
numbers = st.floats(-60, 60, width=32)


def member(seed, size="digits", image=(1, 28, 28), steep=2.0):
    torch.manual_seed(seed)
    g = discriminator(size, image=image).eval()
    with torch.no_grad():
        g.last.log_weight.sub_(steep)
    return g


@pytest.fixture(scope="module")
def members():
    return [member(3), member(4, "digits-S", steep=1.5), member(5, "digits-XS", steep=1.0)]


@pytest.fixture(scope="module")
def images():
    return torch.rand(300, 1, 28, 28, generator=torch.Generator().manual_seed(5)) ** 2


@pytest.fixture(scope="module")
def seen(members, images):
    with torch.no_grad():
        return [one.covered(images).double().numpy() for one in members]


@pytest.fixture(scope="module")
def committee(members, seen):
    return committee_of(members, seen, (0.5, 0.3, 0.2)).eval()


@st.composite
def functions(draw):
    ends = [sorted(set(draw(st.lists(numbers, min_size=1, max_size=6)))) for _ in range(2)]
    count = min(map(len, ends))
    return Rising(*(tuple(some[:count]) for some in ends))


@given(x=st.floats(-80, 80), function=functions(), steps=st.integers(1, 4))
def test_neighbouring_numbers_keep_their_order(x, function, steps):
    scale = Scale(function)
    for start in (x, *function.knots):
        above = start
        for _ in range(steps):
            above = math.nextafter(above, math.inf)
            low, high = scale(torch.tensor([start, above], dtype=torch.float64))
            assert low <= high
            assert low.float() <= high.float()


@given(x=numbers, function=functions())
def test_a_scale_can_be_undone(x, function):
    scale, place = Scale(function), torch.tensor([x], dtype=torch.float64)
    ends = zip(function.knots, function.knots[1:], function.values, function.values[1:], strict=False)
    slope = max([1.0, *((b - a) / (d - c) for a, b, c, d in ends)])
    size = 1 + max(map(abs, (x, *function.knots, *function.values)))
    torch.testing.assert_close(scale.before(scale(place)), place, rtol=0, atol=1e-12 * slope * size)


@torch.no_grad()
def test_it_is_the_least_of_its_members(committee, images):
    each = torch.stack([scale(one(images)) for one, scale in committee.pairs()])
    assert torch.equal(committee(images), each.amin(0).float())
    assert set(each.argmin(0).tolist()) == {0, 1, 2}  # all have a say


@torch.no_grad()
@pytest.mark.parametrize("shares", [(0.5, 0.3, 0.2), (0.1, 0.1, 0.8), None])
def test_each_member_spends_its_share_and_all_together_no_more_than_there_is(members, seen, shares):
    found = committee_of(members, seen, shares)
    for q in (level for level in LEVELS if level >= 0.05):
        at = [np.interp(q * len(seen[0]) * w, np.arange(300), np.sort(one)) for w, one in zip(
            shares or [1 / 3] * 3, seen, strict=True
        )]  # fmt: skip
        levels = [scale(torch.tensor([one], dtype=torch.float64)).item() for one, (_, scale) in zip(
            at, found.pairs(), strict=True
        )]  # fmt: skip
        assert max(levels) - min(levels) < 1e-5 * (1 + max(map(abs, levels)))  # one threshold on the common scale
        rejected = [(values < knot).mean() for values, knot in zip(seen, at, strict=True)]
        assert rejected == pytest.approx([q * w for w in shares or [1 / 3] * 3], abs=1 / 300)
        together = np.any([values < knot for values, knot in zip(seen, at, strict=True)], 0).mean()
        assert max(rejected) <= together <= q + 1 / 100


@torch.no_grad()
@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "best"])
def test_one_member_that_is_bounded_bounds_all(committee, images, method):
    bound = committee.upper_bound(images[:40], EPS, method=method)
    each = [scale(one.upper_bound(images[:40], EPS, method=method)) for one, scale in committee.pairs()]
    assert bound.dtype == torch.float32
    assert torch.equal(bound, torch.stack(each).amin(0).float())
    assert (bound < committee.ceiling).any() or method == "ibp"


def test_clean_attacked_certified(committee, parts, images):
    """Without tolerance, for the committee alone, in a joint model and behind a gate."""
    f = parts[0]
    with torch.no_grad():
        x = ProoD(f, committee, 1.0).in_logit(images).double().quantile(torch.tensor([0.1, 0.9]).double()).tolist()
    gate = Gate(tuple(np.float32(x).tolist()), tuple(np.float32([x[0] - 2, x[1] - 0.5]).tolist()))
    some = images[:12]
    for model in (committee, ProoD(f, committee, 1.0).eval(), Gated(f, committee, gate, 1.0).eval()):
        score = score_of(model)
        with torch.no_grad():
            clean, bound = score(some), score.upper_bound(some, EPS)
        found = PGD(steps=20)(score, some, EPS)
        assert (clean <= found.scores).all()
        assert (found.scores <= bound).all()
        assert (found.scores > clean).any()


@torch.no_grad()
def test_no_input_exceeds_the_ceiling(committee, images):
    assert committee.ceiling == min(
        scale(torch.tensor([one.ceiling], dtype=torch.float64)).float().item() for one, scale in committee.pairs()
    )
    assert (committee(images * 1e4) <= committee.ceiling).all()
    assert (committee.with_far_penalty()(images * 1e4 - 5e3) < committee(images).min()).all()
    assert torch.equal(committee.with_far_penalty()(images), committee(images))


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("many", [False, True])
def test_methods_that_stop_agree_about_the_verdict(committee, images, many):
    some, budget = images[:8], Budget(steps=2, splits=4)
    eps = torch.full((8,), EPS) if many else EPS
    plain = committee.upper_bound(some, eps)
    threshold = plain.median().item()
    found = committee.upper_bound(some, eps, threshold=threshold, method="auto", budget=budget)
    assert (found[plain < threshold] < threshold).all()
    assert (committee(some) <= found).all()


def test_it_survives_its_file_alone_and_in_a_joint_model(committee, parts, images, tmp_path):
    for name, model in (("g", committee), ("joint", Gated(parts[0], committee, Gate((0.5,), (-2.0,)), 1.5).eval())):
        for half in (False, True):
            save(model, tmp_path / f"{name}.safetensors", half=half)
            again, about = load(tmp_path / f"{name}.safetensors")
            assert type(again) is type(model)
            if not half:
                assert fingerprint(again) == fingerprint(model)
                with torch.no_grad():
                    assert torch.equal(score_of(again)(images), score_of(model)(images))
    assert about.architecture["discriminator"]["name"] == "committee"


def test_a_file_whose_scale_falls_is_damaged(members, seen, tmp_path):
    found = committee_of(members, seen)
    values = found.pairs()[1][1].values
    values.copy_(values.flip(0))
    save(found, tmp_path / "model.safetensors")
    with pytest.raises(Damaged):
        load(tmp_path)


def test_what_makes_no_committee(members, seen):
    for wrong, value in [
        ((0.5, 0.5), "2"),
        ((0.5, 0.5, 0.5), "1.5"),
        ((0.5, 0.5, 0.0), "0"),
        ((1.2, -0.1, -0.1), "1.2"),
        ((0.5, 0.25, math.nan), "nan"),
    ]:
        with pytest.raises(BadValue, match=value):
            committee_of(members, seen, wrong)
    with pytest.raises(BadValue, match=str(LEAST)):
        committee_of(members, [one[: LEAST - 1] for one in seen])
    with pytest.raises(BadValue, match="same images"):
        committee_of(members, [seen[0], seen[1], seen[2][:200]])
    with pytest.raises(Unsupported, match="2"):
        committee_of(members, [seen[0], np.full(300, 1.5), seen[2]])
    with pytest.raises(Diverged, match="3"):
        committee_of(members, [seen[0], seen[1], np.where(seen[2] > 0, math.nan, math.inf)])
    with pytest.raises(BadValue, match="two"):
        Committee(members[:1])
    with pytest.raises(BadValue, match="32"):
        Committee([members[0], member(0, "XS", (3, 32, 32))])
    with pytest.raises(Unsupported):
        Committee([members[0], Committee(members[:2])])
    with pytest.raises(BadValue):
        Committee(members, [Rising()])


def test_ties_make_fewer_levels(members, seen):
    found = committee_of(members, [np.round(one * 2) for one in seen])
    assert 1 <= len(found.pairs()[0][1].knots) < len(LEVELS)


def test_what_asks_for_one_network_is_told(committee):
    for ask in (lambda: committee.network, lambda: committee.last, lambda: bounds.upper_bound(committee, 0, 0)):
        with pytest.raises((Unsupported, AttributeError)):
            ask()
