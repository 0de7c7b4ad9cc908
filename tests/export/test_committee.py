"""A committee in the file: the least of its members, and a bound that covers its rounding."""

import json
import math

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from prood.attacks import PGD
from prood.data import load
from prood.detector import Detector
from prood.errors import Refuted
from prood.export import check, open_session, run
from prood.export.gating import LeastBound, Scaling
from prood.export.graph import Graph
from prood.models import Gated, ProoD
from prood.models.committee import Committee
from prood.models.rising import Rising

from .conftest import committee_model

numbers = st.floats(-1e4, 1e4, width=32)


@pytest.fixture(scope="module")
def images() -> Tensor:
    digits, source = load("digits:test"), torch.Generator().manual_seed(0)
    noise = torch.rand(12, 1, 28, 28, generator=source)
    return torch.cat([digits.floats()[::80], load("faces", like=digits).floats()[:8], noise, noise**2])


class Given(nn.Module):
    """A member whose bounds are known."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values = torch.tensor(values, dtype=torch.float64)

    def forward(self, *_: Tensor) -> Tensor:
        return self.values


def scaling(function: Rising) -> Scaling:
    return Scaling(*(torch.tensor(one, dtype=torch.float32) for one in (function.knots, function.values)))


@given(ends=st.sets(numbers, min_size=2, max_size=10), pairs=st.lists(st.tuples(numbers, numbers), min_size=1))
def test_the_bound_covers_both_members_and_their_rounding(ends: set[float], pairs: list[tuple[float, float]]) -> None:
    rows = sorted(ends)
    function = Rising(tuple(rows[: len(rows) // 2]), tuple(rows[-(len(rows) // 2) :]))
    one, other = map(list, zip(*pairs, strict=True))
    scales = [scaling(function), scaling(Rising())]
    found = LeastBound([Given(one), Given(other)], scales)(torch.zeros(()), torch.zeros(()))
    exact = torch.minimum(function(torch.tensor(one)), torch.tensor(other).double())
    assert (exact <= found).all()
    assert (exact.float() <= found).all()
    assert (found - exact <= 1e-6 * (1 + exact.abs() + max(map(abs, rows)))).all()


def test_a_member_without_a_bound_leaves_none() -> None:
    members = [Given([1.0, math.inf, 2.0]), Given([math.inf, 0.0, 1.0])]
    bound = LeastBound(members, [scaling(Rising((0.0, 1.0), (-3.0, 2.0))), scaling(Rising())])(*[torch.zeros(())] * 2)
    assert bound[:2].tolist() == [math.inf, math.inf]
    assert bound[2].item() == pytest.approx(1.0)


@torch.no_grad()
def test_what_it_says_is_what_the_model_says(images: Tensor) -> None:
    model = committee_model()
    committee = model.discriminator
    assert isinstance(committee, Committee)
    least = torch.stack([scale(one(images)) for one, scale in committee.pairs()]).argmin(0)
    assert set(least.tolist()) == {0, 1}
    for joint in (model, ProoD(model.classifier, committee, 1.5).eval()):
        probabilities, p_in, confidence, bound = Graph(joint)(images, joint.logits(images), torch.tensor(0.01))
        torch.testing.assert_close(confidence, joint.confidence(images), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(probabilities, joint.log_probabilities(images).exp(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(p_in, joint.in_logit(images).double().sigmoid(), rtol=1e-5, atol=0)
        torch.testing.assert_close(bound, joint.upper_bound(images, 0.01), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["disabled", "all"])
def test_no_attack_exceeds_the_bound(level: str, committee_file, committee: Detector, images: Tensor) -> None:
    session, attack = open_session(committee_file, level), PGD(steps=15, uniform=1, gaussian=0)
    said, informative = committee.predict(images), 0
    np.testing.assert_allclose(run(session, images, 0.01)["confidence"], said.confidence, atol=1e-5, rtol=0)
    for eps in (0.003, 0.03):
        found = attack(committee.score, images, eps, goal=math.inf).images
        bounds = run(session, images, eps)["upper_bound"]
        assert (committee.predict(found).confidence <= bounds).all()
        assert (run(session, found, 0.0)["confidence"] <= bounds).all()
        informative += int((bounds < committee.joint().ceiling(8) - 1e-3).sum())
    assert informative > 10


@pytest.mark.slow
def test_the_file_states_its_scales_and_the_check_finds_others(committee_file, committee: Detector) -> None:
    facts = {entry.key: entry.value for entry in onnx.load(committee_file).metadata_props}
    model = committee.joint()
    assert isinstance(model, Gated)
    assert isinstance(model.discriminator, Committee)
    pairs = model.discriminator.pairs()
    stated = [Rising(*map(tuple, one.values())) for one in json.loads(facts["committee"])]
    assert stated == [scale.function for _, scale in pairs]
    alone = Gated(model.classifier, pairs[1][0], model.gate, 1.5)
    with pytest.raises(Refuted):
        check(committee_file, Detector(alone))
