"""The gate in the file: confidences that both gates allow, and a bound that holds however its sums are rounded."""

import functools
import json
import math
from fractions import Fraction

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from prood.attacks import PGD
from prood.data import load, smooth_noise
from prood.detector import Detector
from prood.errors import Refuted, Unsupported
from prood.export import check, export, open_session, run
from prood.export.gating import OFF, Gating
from prood.export.graph import Graph
from prood.models import Curve, Fusion, Gate, Gated

from .conftest import digits_model, gated_model

LEVELS = ("disabled", "basic", "extended", "all")
MODEL = gated_model()
numbers = st.floats(-1e6, 1e6, width=32)
opened = functools.cache(open_session)


@pytest.fixture(scope="module")
def images() -> Tensor:
    digits, source = load("digits:test"), torch.Generator().manual_seed(0)
    parts = [digits.floats()[::80], load("faces", like=digits).floats()[:8], smooth_noise(8, (1, 28, 28), 0).floats()]
    return torch.cat([*parts, torch.rand(6, 1, 28, 28, generator=source), torch.zeros(1, 1, 28, 28)])


@st.composite
def gates(draw) -> Gate:
    values = sorted(draw(st.sets(numbers, min_size=2, max_size=10)))
    return Gate(tuple(values[1::2]), tuple(values[: len(values) // 2 * 2 : 2]))


def gating(gate: Gate) -> Gating:
    return Gating(Gated(MODEL.classifier, MODEL.discriminator, gate))


def fused(gate: Gate, x: float) -> float:
    """λ(x) with one rounding for the product and the sum, clamped as the file does."""
    piece = sum(knot < x for knot in gate.knots)
    start, end = max(piece - 1, 0), min(piece, len(gate.knots) - 1)
    rise, width = gate.caps[end] - gate.caps[start], gate.knots[end] - gate.knots[start]
    slope = rise / width if width else 1.0
    value = float(Fraction(gate.caps[start]) + Fraction(slope) * Fraction(x - gate.knots[start]))
    value = max(value, gate.caps[start]) if piece else value
    return min(value, x, gate.caps[end] if piece < len(gate.knots) else x)


@given(gate=gates(), pairs=st.lists(st.tuples(numbers, st.floats(0, 1)), min_size=1, max_size=8))
def test_the_bound_covers_a_gate_whose_products_are_fused(gate: Gate, pairs: list[tuple[float, float]]) -> None:
    ends = [*((x, x - more) for x, more in pairs), *((knot, math.nextafter(knot, -math.inf)) for knot in gate.knots)]
    above, below = torch.tensor(ends, dtype=torch.float64).T.contiguous()
    with torch.no_grad():
        bound, value = gating(gate).bound(above), gating(gate)(below)
    assert torch.equal(value, gate(below))  # the model's own, to the last digit
    assert (value <= bound).all()
    for one, most in zip(below.tolist(), bound.tolist(), strict=True):
        assert fused(gate, one) <= most
    assert (bound <= above).all()
    size = max(map(abs, gate.knots)) + max(map(abs, gate.caps))
    assert (bound - gate(above) <= 2 * OFF * (size + above.abs())).all()


def test_a_steep_gate_needs_the_room_for_fused_products() -> None:
    gate = Gate((-0.3125, 1.1875), (-1e6, 0.5))
    x = torch.linspace(-0.3125, 1.1875, 500, dtype=torch.float64)
    value, bound = torch.tensor([fused(gate, one) for one in x.tolist()], dtype=torch.float64), gating(gate).bound(x)
    assert (value > gate(x)).any()
    assert (value <= bound).all()


def test_infinite_and_missing_bounds() -> None:
    gate = gating(Gate((0.5, 2.0), (-2.0, 1.0)))
    bound = gate.bound(torch.tensor([-math.inf, math.inf, math.nan], dtype=torch.float64))
    assert bound[:2].tolist() == [-math.inf, math.inf]
    assert bound[2].isnan()


@torch.no_grad()
@pytest.mark.parametrize("scale", [1.0, 30.0, 0.0])
def test_what_it_says_is_what_the_model_says(images: Tensor, scale: float) -> None:
    """Also of a classifier that is sure of everything, and of one that is sure of nothing."""
    model = gated_model()
    model.classifier[-1].weight.mul_(scale)
    model.classifier[-1].bias.mul_(scale)
    joint = digits_model()
    joint.classifier.load_state_dict(model.classifier.state_dict())
    graph, eps = Graph(model), torch.tensor(0.01)
    probabilities, p_in, confidence, bound = graph(images, model.logits(images), eps)
    torch.testing.assert_close(confidence, model.confidence(images), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(probabilities, model.log_probabilities(images).exp(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(p_in, model.in_logit(images).double().sigmoid(), rtol=1e-5, atol=0)
    torch.testing.assert_close(bound, model.upper_bound(images, eps.item()), rtol=1e-5, atol=1e-6)
    assert (confidence <= joint.confidence(images) * (1 + 1e-6)).all()
    assert (confidence < joint.confidence(images) - 1e-3).any() == (scale > 0)
    assert (bound < joint.upper_bound(images, 0.01) - 1e-3).any()


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_the_runtime_agrees_with_torch(level: str, gated_file, gated: Detector, images: Tensor) -> None:
    session, said = opened(gated_file, level), gated.predict(images)
    with torch.no_grad():
        probabilities = gated.model.log_probabilities(images).exp().numpy()
    for eps in (0.0, 0.01, 1.0):
        got = run(session, images, eps)
        assert (got["probabilities"].argmax(1) == said.label).all()
        np.testing.assert_allclose(got["probabilities"], probabilities, atol=1e-5, rtol=0)
        np.testing.assert_allclose(got["probabilities"].sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(got["probabilities"].max(1), got["confidence"], atol=2e-7)
        np.testing.assert_allclose(got["confidence"], said.confidence, atol=1e-5, rtol=0)
        np.testing.assert_allclose(got["upper_bound"], gated.upper_bound(images, float(np.float32(eps))), atol=1e-5)


@pytest.mark.slow
def test_no_attack_exceeds_the_bound(gated_file, gated: Detector, images: Tensor) -> None:
    attack, informative = PGD(steps=15, uniform=1, gaussian=0), 0
    sessions = [opened(gated_file, level) for level in LEVELS]
    for eps in (0.003, 0.03):
        outcome = attack(gated.score, images, eps, goal=math.inf)
        bounds = np.min([run(session, images, eps)["upper_bound"] for session in sessions], 0)
        assert (gated.predict(outcome.images).confidence <= bounds).all()
        for session in sessions:
            assert (run(session, outcome.images, 0.0)["confidence"] <= bounds).all()
        informative += int((bounds < digits_model().upper_bound(images, eps).numpy() - 1e-3).sum())
    assert informative > 20  # the gate lowers them


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_ball_of_one_image_leaves_nothing_to_spare(level: str, gated_file, gated: Detector, images: Tensor) -> None:
    session = opened(gated_file, level)
    got = run(session, images, 0.0)
    assert (got["confidence"] <= got["upper_bound"]).all()
    assert (gated.predict(images).confidence <= got["upper_bound"]).all()
    everywhere = run(session, images, math.inf)["upper_bound"]
    assert (everywhere >= gated.joint().ceiling(8)).all()
    assert (everywhere <= gated.joint().ceiling(8) * (1 + 1e-11)).all()
    for eps in (-0.1, math.nan):
        assert (run(session, images, eps)["upper_bound"] == 1).all()


@pytest.mark.slow
def test_without_knots_the_file_is_that_of_the_joint_model(file, detector: Detector, tmp_path) -> None:
    model = detector.joint()
    empty = Gated(model.classifier, model.discriminator, Gate(), model.shift.item()).eval()
    export(Detector(empty, threshold=0.5, classes=detector.classes), tmp_path / "empty.onnx")
    plain, found = onnx.load(file), onnx.load(tmp_path / "empty.onnx")
    assert found.graph == plain.graph
    facts = [{entry.key: entry.value for entry in one.metadata_props} for one in (plain, found)]
    assert facts[0].keys() == facts[1].keys()


@pytest.mark.slow
def test_the_file_states_its_gate(gated_file, gated: Detector) -> None:
    facts = {entry.key: entry.value for entry in onnx.load(gated_file).metadata_props}
    found = json.loads(facts["gate"])
    assert Gate(tuple(found["knots"]), tuple(found["caps"])) == gated.joint().gate


@pytest.mark.slow
def test_the_check_finds_a_file_without_the_gate(file, gated_file, gated: Detector, images: Tensor) -> None:
    assert check(gated_file, gated, images).images == len(images)
    with pytest.raises(Refuted):
        check(file, gated, images)
    lower = Gated(gated.model.classifier, gated.model.discriminator, Gate((2.0,), (-3.0,)), 1.5)
    with pytest.raises(Refuted):
        check(gated_file, Detector(lower), images)


def test_a_fused_model_is_refused(tmp_path) -> None:
    model = digits_model()
    fusion = Fusion(model.classifier, model.discriminator, Curve.shifted(0.0))
    with pytest.raises(Unsupported):
        export(fusion, tmp_path / "model.onnx")
