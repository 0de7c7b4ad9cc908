"""A gate: λ grows, never exceeds its input, and bounds carry over; the joint model with one."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.errors import BadValue, Damaged
from prood.models import Gate, Gated, ProoD, fingerprint, load, save, score_of

GATES = [Gate(), Gate((0.5,), (-2.0,)), Gate((-1.0, 0.5, 3.0), (-4.0, -3.5, 2.5)), Gate((0.0, 1e-6), (-9.0, 0.0))]
numbers = st.floats(-60, 60, width=32)


@st.composite
def gates(draw):
    knots = sorted(set(draw(st.lists(numbers, max_size=6))))
    caps, least = [], -100.0
    for knot in knots:
        least = draw(st.floats(least, min(knot, 50.0), exclude_min=True, width=32)) if least < min(knot, 50.0) else None
        if least is None:
            return Gate()
        caps.append(least)
    return Gate(tuple(knots), tuple(caps))


def value(gate, x):
    return gate(torch.tensor([x], dtype=torch.float64)).item()


@pytest.fixture(scope="module")
def images():
    return torch.rand(40, 1, 28, 28, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def gate(parts, images):
    """One that bites: caps well below half of the values of g + Δ."""
    with torch.no_grad():
        low, middle, high = (parts[1].covered(images) + 1.5).double().quantile(torch.tensor([0.1, 0.5, 0.9]).double())
    return Gate((low.item(), middle.item(), high.item()), (low.item() - 6, middle.item() - 3, high.item() - 0.5))


@given(x=numbers, more=numbers, gate=gates())
def test_a_gate_grows_and_never_exceeds_its_input(x, more, gate):
    low, high = sorted((x, more))
    assert value(gate, low) <= value(gate, high)  # without tolerance: the certificate rests on this
    assert value(gate, low) <= low


@given(x=st.floats(-60, 60), gate=gates(), steps=st.integers(1, 4))
def test_neighbouring_numbers_keep_their_order(x, gate, steps):
    for start in (x, *gate.knots):
        above = start
        for _ in range(steps):
            above = math.nextafter(above, math.inf)
            assert value(gate, start) <= value(gate, above)


@given(score=st.floats(-80, 80), gate=gates())
def test_the_inverse_undoes_it(score, gate):
    x = gate.inverse(score)
    steepest = max([1.0, *(abs(b - a) / (d - c) for a, b, c, d in _pieces(gate))])
    assert value(gate, x) == pytest.approx(score, abs=1e-11 * steepest * (1 + abs(x) + abs(score)))


def _pieces(gate):
    return list(zip(gate.caps, gate.caps[1:], gate.knots, gate.knots[1:], strict=False))


@pytest.mark.parametrize("gate", GATES)
def test_infinities_and_knots(gate):
    assert value(gate, math.inf) == math.inf
    assert value(gate, -math.inf) == -math.inf
    assert math.isnan(value(gate, math.nan))
    assert [value(gate, knot) for knot in gate.knots] == list(gate.caps)
    assert gate.inverse(-math.inf) == -math.inf
    if gate.knots:  # parallel to x outside
        first, last = gate.knots[0] - gate.caps[0], gate.knots[-1] - gate.caps[-1]
        assert value(gate, gate.knots[0] - 8) == pytest.approx(gate.knots[0] - 8 - first)
        assert value(gate, gate.knots[-1] + 8) == pytest.approx(gate.knots[-1] + 8 - last)


@pytest.mark.parametrize(
    ("knots", "caps"),
    [((0.0,), ()), ((0.0, 1.0), (0.0, -1.0)), ((1.0, 1.0), (0.0, 0.5)), ((0.0,), (0.1,)), ((math.nan,), (0.0,))],
)
def test_what_is_no_gate_is_refused(knots, caps):
    with pytest.raises(BadValue):
        Gate(knots, caps)


@torch.no_grad()
def test_without_knots_it_is_the_joint_model(parts, images):
    gated, joint = Gated(*parts, Gate(), 1.5).eval(), ProoD(*parts, 1.5).eval()
    assert torch.equal(score_of(gated)(images), score_of(joint)(images))
    assert torch.equal(gated.confidence(images), joint.confidence(images))
    torch.testing.assert_close(gated(images), joint(images), rtol=1e-4, atol=1e-5)
    for method in ("ibp", "best"):
        options = {"method": method}
        assert torch.equal(gated.upper_bound(images, 0.01, **options), joint.upper_bound(images, 0.01, **options))


@torch.no_grad()
def test_an_image_is_accepted_if_both_gates_let_it_pass(parts, images, gate):
    gated, joint = Gated(*parts, gate, 1.5).eval(), ProoD(*parts, 1.5).eval()
    score, confidence, of_g = score_of(gated)(images), score_of(joint)(images), joint.in_logit(images).double()
    assert (score < confidence).any()
    assert (score == confidence).any()
    for threshold in np.linspace(score.min().item() - 1, score.max().item() + 1, 40):
        either = (confidence >= threshold) & (of_g >= gated.gate.inverse(threshold))
        near = (of_g - gated.gate.inverse(threshold)).abs() < 1e-9
        assert torch.equal((score >= threshold)[~near], either[~near])


@torch.no_grad()
def test_probabilities_are_those_of_the_score(parts, images, gate):
    gated = Gated(*parts, gate, 1.5).eval()
    found = gated.log_probabilities(images).double().exp()
    torch.testing.assert_close(found.sum(1), torch.ones(len(images)).double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.amax(1), gated.confidence(images), rtol=1e-4, atol=1e-5)
    assert (gated(images).argmax(1) == parts[0](images).argmax(1)).all()


@torch.no_grad()
@pytest.mark.parametrize("method", ["ibp", "best"])
def test_the_bound_holds_and_is_below_that_of_the_joint_model(parts, images, gate, method):
    gated, joint = Gated(*parts, gate, 1.5).eval(), ProoD(*parts, 1.5).eval()
    score, eps = score_of(gated), 0.05
    bound = score.upper_bound(images, eps, method=method)
    assert (bound <= score_of(joint).upper_bound(images, eps, method=method)).all()
    assert (bound < score_of(joint).upper_bound(images, eps, method=method)).any()
    for seed in range(20):
        noise = torch.empty_like(images).uniform_(-eps, eps, generator=torch.Generator().manual_seed(seed))
        assert (score((images + noise).clamp(0, 1)) <= bound).all()
        assert (gated.confidence((images + noise).clamp(0, 1)) <= gated.upper_bound(images, eps, method=method)).all()
    part = score.part()
    assert part is not None
    assert torch.equal(score.bound_from(part.upper_bound(images, eps, method=method)), bound)


@torch.no_grad()
def test_no_input_exceeds_the_ceiling(parts, images, gate):
    gated = Gated(*parts, gate, 1.5).eval()
    assert gated.ceiling(6) < ProoD(*parts, 1.5).ceiling(6)
    assert (gated.confidence(images * 1e4) <= gated.ceiling(6) * (1 + 1e-12)).all()


def test_it_survives_its_file(parts, images, gate, tmp_path):
    gated = Gated(*parts, gate, 1.5).eval()
    save(gated, tmp_path / "model.safetensors", half=False)
    again, about = load(tmp_path)
    assert isinstance(again, Gated)
    assert (again.gate, fingerprint(again)) == (gated.gate, fingerprint(gated))
    assert about.architecture["name"] == "gated"
    assert torch.equal(score_of(again)(images), score_of(gated)(images))


def test_a_file_with_a_gate_that_falls_is_damaged(parts, gate, tmp_path):
    gated = Gated(*parts, gate, 1.5).eval()
    gated.caps.copy_(gated.caps.flip(0))
    save(gated, tmp_path / "model.safetensors")
    with pytest.raises(Damaged):
        load(tmp_path)
