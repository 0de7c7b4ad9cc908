"""The gate of a joint model: what float64 makes of it lies in the verifier's range, and its confidence is checked."""

import json
import math
from bisect import bisect_left
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from prood import models
from prood.certification import file_sha256
from prood.certification.certify import stated
from prood.certification.verify import Verifier
from prood.certification.verify.exact import Undecided
from prood.certification.verify.gate import Gate
from prood.certification.verify.network import read_model
from prood.data import load as load_images
from prood.detector import Detector, confidence_bound

GATE = ((-1.0, 2.0, 2.25), (-4.0, -3.5, 1.75))
EPS = 0.05


@st.composite
def gates(draw):
    """Numbers that rise: the caps in between the knots, or all of them below."""
    values = sorted(draw(st.sets(st.floats(-1e6, 1e6, width=32), max_size=10)))
    half = len(values) // 2
    if draw(st.booleans()):
        return tuple(values[1::2]), tuple(values[: 2 * half : 2])
    return tuple(values[half : 2 * half]), tuple(values[:half])


def exact(knots, caps, x):
    """λ(x) as a rational."""
    if not knots:
        return Fraction(x)
    if x <= knots[0] or x > knots[-1]:
        end = 0 if x <= knots[0] else -1
        return Fraction(x) - Fraction(knots[end]) + Fraction(caps[end])
    piece = bisect_left(knots, x)
    left, right, low, high = map(Fraction, (*knots[piece - 1 : piece + 1], *caps[piece - 1 : piece + 1]))
    return low + (high - low) / (right - left) * (Fraction(x) - left)


@given(gate=gates(), x=st.one_of(st.floats(-1e6, 1e6, width=32), st.floats(width=32, allow_nan=False)))
def test_what_is_deployed_lies_in_the_range(gate, x):
    for point in (x, *gate[0]):
        low, high = Gate(*gate)(point)
        assert low <= models.Gate(*gate)(torch.tensor([point], dtype=torch.float64)).item() <= high
        assert high <= point
        if math.isfinite(point):
            size = sum(map(abs, (point, *gate[0], *gate[1])))
            assert abs(Fraction(low) - exact(*gate, point)) <= size * 2.0**-49
            assert abs(Fraction(high) - exact(*gate, point)) <= size * 2.0**-49


@given(gate=gates(), points=st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)))
def test_both_ends_of_the_range_rise(gate, points):
    (first, second), (third, fourth) = (Gate(*gate)(point) for point in sorted(points))
    assert first <= third
    assert second <= fourth


@pytest.mark.parametrize(
    "wrong",
    [
        ((0.0,), ()),
        ((math.nan,), (0.0,)),
        ((0.0, math.inf), (-2.0, -1.0)),
        ((0.0, 1.0), (0.0, -1.0)),
        ((0.0, 1.0), (-1.0, -1.0)),
        ((1.0, 1.0), (-2.0, -1.0)),
        ((0.0,), (0.25,)),
    ],
)
def test_what_is_no_gate_is_not_decided(wrong):
    with pytest.raises(Undecided, match="gate"):
        Gate(*wrong)


@pytest.fixture
def case(make_model, make_images, certificate_of):
    """A model whose gate limits what its bound allows, and the certificate that follows."""
    path, name = make_model(shift=1.5, gate=GATE, image=(1, 8, 8), scale=3.0), make_images(shape=(8, 8))
    images = load_images(name).floats()
    bound = models.load(path)[0].discriminator.upper_bound(images[1:2], EPS).item() + 1e-3
    return path, certificate_of(path, name, 1, images[1].numpy(), bound, shift=1.5, classes=4, eps=EPS)


def outcome(certificate) -> str:
    return Verifier().verify(certificate).outcome


def rewritten(path, certificate, **tensors):
    """The model's file with other numbers for its gate, and the certificate with the hash of that."""
    with safe_open(path, "numpy") as opened:
        about = opened.metadata()
    save_file({**load_file(path), **{name: np.float32(value) for name, value in tensors.items()}}, path, about)
    return replace(certificate, model=replace(certificate.model, sha256=file_sha256(path)))


def test_a_file_s_gate_is_read(case):
    found = read_model(case[0])
    assert (found.gate, found.shift, found.classes) == (Gate(*GATE), 1.5, 4)


def test_the_confidence_that_follows_is_confirmed(case, make_model):
    path, one = case
    assert outcome(one) == "confirmed"
    alone = stated(Detector(models.ProoD(*parts(path), 1.5), image=(1, 8, 8)), one.bound)
    assert one.confidence < alone  # without the gate
    assert outcome(replace(one, confidence=alone)) == "confirmed"  # it may be larger
    assert outcome(replace(one, shift=0.0, classes=None, confidence=None)) == "confirmed"  # of g alone


def parts(path):
    model = models.load(path)[0]
    return model.classifier, model.discriminator


@pytest.mark.parametrize("lower", [0.0, 0.2, 0.2500001, 1 - 2.0**-46])
def test_a_lower_confidence_is_refuted(case, lower):
    one = case[1]
    forged = replace(one, confidence=one.confidence * lower if lower > 0.9 else lower)
    found = Verifier().verify(forged)
    assert found.outcome == "refuted"
    assert str(forged.confidence) in found.reason


def test_the_confidence_of_another_gate_is_refuted(case):
    path, one = case
    lower = Detector(models.Gated(*parts(path), models.Gate(GATE[0], (-4.5, -4.0, -3.75)), 1.5), image=(1, 8, 8))
    assert outcome(replace(one, confidence=stated(lower, one.bound))) == "refuted"
    assert outcome(rewritten(path, one, caps=GATE[1])) == "confirmed"
    assert outcome(rewritten(path, one, caps=GATE[0])) == "refuted"  # the model has a higher gate than it says


def test_where_rounding_decides_it_is_not_decided(make_model, make_images, certificate_of):
    """A slope so steep that a fused product gives another confidence."""
    path, name = make_model(shift=0.0, gate=((-0.3, 1.1), (-1e6, 0.5))), make_images()
    gate = read_model(path).gate
    x = gate.knots[1]
    assert gate(x)[1] - gate(x)[0] > 1e-11
    one = certificate_of(path, name, 0, load_images(name).floats([0])[0].numpy(), x, shift=0.0, classes=4)
    low, high = (confidence_bound(score, 4) for score in gate(x))
    found = [outcome(replace(one, confidence=said)) for said in (low * (1 - 2.0**-46), low, high)]
    assert found[:2] == ["refuted", "not decided"]
    assert "rounding" not in Verifier().verify(replace(one, confidence=high)).reason


@pytest.mark.parametrize(
    "tensors",
    [
        {"caps": [-4.0, 1.75, -3.5]},
        {"caps": [-4.0, -3.5, -3.5]},
        {"knots": [-1.0, -1.0, 2.25]},
        {"caps": [-4.0, -3.5, 2.5]},
        {"caps": [-4.0, -3.5, math.nan]},
        {"knots": [-1.0, 2.0, math.inf]},
        {"knots": [-1.0, 2.0], "caps": [-4.0, -3.5]},
        {"knots": [[-1.0, 2.0, 2.25]]},
        {"caps": []},
    ],
)
def test_a_damaged_gate_is_not_decided(case, tensors):
    path, one = case
    found = Verifier().verify(rewritten(path, one, **tensors))
    assert found.outcome == "not decided"
    assert "knots" in found.reason or "cap" in found.reason


def test_a_gate_that_is_missing_is_not_decided(case):
    path, one = case
    with safe_open(path, "numpy") as opened:
        about = opened.metadata()
    save_file({name: value for name, value in load_file(path).items() if name != "caps"}, path, about)
    assert outcome(replace(one, model=replace(one.model, sha256=file_sha256(path)))) == "not decided"


def test_a_gated_model_without_knots_has_the_confidence_of_the_joint_model(make_model, make_images, certificate_of):
    images = make_images()
    image = load_images(images).floats([0])[0].numpy()
    made = [
        certificate_of(make_model(name, shift=1.5, gate=gate), images, 0, image, 3.0, shift=1.5, classes=4)
        for name, gate in (("joint", None), ("gated", ((), ())))
    ]
    assert made[0].confidence == made[1].confidence
    assert [outcome(one) for one in made] == ["confirmed", "confirmed"]


def test_the_description_counts_the_knots(case):
    path, one = case
    with safe_open(path, "numpy") as opened:
        facts = json.loads(opened.metadata()["prood"])
    for knots in (2, "3", None, [3]):
        facts["architecture"]["knots"] = knots
        save_file(load_file(path), path, {"prood": json.dumps(facts)})
        assert outcome(replace(one, model=replace(one.model, sha256=file_sha256(path)))) == "not decided"
