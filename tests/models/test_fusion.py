"""The fused model: its curve, its guarantee in floating point, and that everything else takes it for a joint model."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.detector import Detector
from prood.errors import BadValue, Unsupported
from prood.models import Fusion, InLogit, ProoD, fingerprint, load, read_metadata, save, score_of
from prood.models.files import rounded
from prood.models.fusion import Curve
from prood.models.gated import with_confidence_logit
from prood.models.joint import confidence_logit, product_logit

CURVES = [Curve.shifted(1.5), Curve(2.0, 3.0, -0.5), Curve(-4.0, 50.0, 1.0), Curve(0.5, 0.2, 3.0)]
numbers = st.floats(-50, 50, width=32) | st.floats(allow_nan=False, width=32)
curves = st.builds(Curve, st.floats(-10, 10), st.floats(0.02, 60), st.floats(-10, 10))


def value(function, *arguments: float) -> float:
    (found,) = function(*(torch.tensor([one], dtype=torch.float64) for one in arguments)).tolist()
    return found


@pytest.fixture(scope="module")
def images():
    return torch.rand(12, 1, 28, 28, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def test_the_product_is_the_joint_model():
    torch.manual_seed(0)
    logits, g = torch.randn(200, 7) * torch.logspace(-3, 2, 200)[:, None], 8 * torch.randn(200)
    torch.testing.assert_close(
        product_logit(confidence_logit(logits), g), confidence_logit(logits, g), rtol=1e-9, atol=1e-9
    )


@given(s=numbers, more_s=numbers, g=numbers, more_g=numbers, curve=curves)
def test_a_curve_grows_with_both_and_never_exceeds_g(s, more_s, g, more_g, curve):
    (s, more_s), (g, more_g) = sorted((s, more_s)), sorted((g, more_g))
    found = value(curve, s, g)
    assert not math.isnan(found)
    assert found <= g  # without tolerance: the certificate rests on this
    room = 1e-9 * (1 + abs(found)) if math.isfinite(found) else 0.0
    assert value(curve, more_s, g) >= found - room
    assert value(curve, s, more_g) >= found - room


@given(g=st.floats(-50, 50, width=32), curve=curves)
def test_a_classifier_that_is_sure_leaves_the_word_to_g(g, curve):
    assert value(curve, math.inf, g) == pytest.approx(g, abs=1e-9 * (1 + abs(curve.level)) + 1e-6)
    assert value(curve, -math.inf, g) == -math.inf


@pytest.mark.parametrize("curve", CURVES)
def test_rounding_and_infinities(curve):
    g = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 3
    for s in (math.inf, 700.0, 40.0):
        assert (curve(torch.full_like(g, s), g) <= g).all()  # where F and g are the same number up to rounding
    for s in (-math.inf, 0.0, math.inf):
        for least in (-math.inf, -1e38):
            assert value(curve, s, least) <= least
        assert value(curve, s, math.inf) >= value(curve, s, 1.0) or s == -math.inf


def test_a_sharp_curve_is_a_minimum_above_its_level_and_a_sum_below():
    s, g = torch.randn(2, 500, generator=torch.Generator().manual_seed(0)).double() * 5
    least = torch.stack([s - 1.0, g, s - 1.0 + g - 0.3]).amin(0)
    torch.testing.assert_close(Curve(1.0, 1e4, 0.3)(s, g), least, atol=1e-3, rtol=0)


@pytest.mark.parametrize("wrong", [(math.nan, 1.0, 0.0), (0.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 1.0, math.inf)])
def test_a_curve_that_does_not_grow_is_refused(wrong):
    with pytest.raises(BadValue):
        Curve(*wrong)


@pytest.mark.parametrize("target", [-700.0, -40.0, -3.0, 0.0, 2.0, 30.0, 500.0])
def test_logits_with_a_confidence(target):
    torch.manual_seed(1)
    logits = torch.randn(50, 5) * torch.logspace(-2, 2, 50)[:, None]
    found = with_confidence_logit(logits, torch.full((50,), target).double())
    torch.testing.assert_close(confidence_logit(found), torch.full((50,), target).double(), rtol=1e-6, atol=1e-6)
    assert (found.gather(1, logits.argsort(1)).diff(dim=1) >= -1e-15).all()
    assert (found.argmax(1) == logits.argmax(1)).all() or target < -30  # there all are the same up to rounding


@torch.no_grad()
def test_one_shift_is_a_special_case(parts, images):
    fused, joint = Fusion(*parts, Curve.shifted(1.5), 1.5).eval(), ProoD(*parts, 1.5).eval()
    torch.testing.assert_close(score_of(fused)(images), score_of(joint)(images), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fused.confidence(images), joint.confidence(images), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fused(images), joint(images), rtol=1e-4, atol=1e-5)
    assert score_of(fused).upper_bound(images, 0.01).equal(score_of(joint).upper_bound(images, 0.01))


@torch.no_grad()
@pytest.mark.parametrize("curve", CURVES)
def test_detector_and_score_agree(parts, images, curve):
    model = Fusion(*parts, curve, 2.0).eval()
    scores, answer = score_of(model)(images), Detector(model).predict(images)
    torch.testing.assert_close(torch.tensor(answer.score), scores, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(torch.tensor(answer.confidence), model.confidence(images), rtol=1e-9, atol=1e-9)
    assert answer.label.tolist() == parts[0](images).argmax(1).tolist() == model.predict(images).tolist()
    assert answer.probabilities.sum(1) == pytest.approx(1)
    assert (answer.probabilities.argmax(1) == answer.label).all()
    assert (torch.tensor(answer.probabilities) >= 0).all()
    assert model(images).dtype == torch.float32
    torch.testing.assert_close(model(images).softmax(1).double(), torch.tensor(answer.probabilities), atol=1e-5, rtol=0)
    assert score_of(model).logits(images).equal(parts[0](images))
    torch.testing.assert_close(score_of(model).quick(images), scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("curve", CURVES)
def test_no_image_of_the_ball_exceeds_the_bound(parts, images, curve):
    model, eps = Fusion(*parts, curve, 1.0).eval(), 0.02
    score = score_of(model)
    bound, cap = score.upper_bound(images, eps), model.upper_bound(images, eps)
    point = images.clone()
    highest = torch.full((len(images),), -torch.inf, dtype=torch.float64)
    for step in range(30):
        point.requires_grad_()
        scores = score(point)
        (slope,) = torch.autograd.grad(scores.sum(), point)
        assert slope.isfinite().all()
        highest = torch.maximum(highest, scores.detach())
        assert (scores <= bound).all()
        assert (model.confidence(point.detach()) <= cap).all()
        move = torch.randn_like(slope) if step % 10 == 9 else slope
        point = (point + 0.3 * eps * move.sign()).detach()
        point = torch.maximum(torch.minimum(point, images + eps), images - eps).clamp(0, 1)
    assert (highest > score(images)).any()  # else this was no attack


@torch.no_grad()
def test_far_away_the_score_goes_where_g_goes(parts, images):
    model = Fusion(*parts, CURVES[1], 2.0).eval()
    far = images[:4] * 1e6
    assert (score_of(model)(far) <= InLogit(parts[1])(far) + 2.0 + 1e-3).all()
    assert (score_of(model)(far) < -1000).all()
    assert model.confidence(far).tolist() == pytest.approx([1 / 6] * 4)
    torch.testing.assert_close(model(far).softmax(1), torch.full((4, 6), 1 / 6))


@torch.no_grad()
def test_saved_is_loaded(parts, images, tmp_path):
    model = Fusion(*parts, CURVES[1], 2.0).eval()
    save(model, tmp_path / "model.safetensors", classes=list("abcdef"), eps=0.01, threshold=0.4)
    again, about = load(tmp_path)
    assert isinstance(again, Fusion)
    assert again.curve == CURVES[1]
    assert fingerprint(again) == fingerprint(model)
    assert score_of(again)(images).equal(score_of(model)(images))
    assert (about.shift, about.classes, about.threshold) == (2.0, list("abcdef"), 0.4)
    assert read_metadata(tmp_path).architecture["name"] == "fusion"
    other = Fusion(*parts, CURVES[0], 2.0)
    assert fingerprint(other) != fingerprint(model)


@torch.no_grad()
def test_half_precision_is_what_is_loaded(parts, images, tmp_path):
    model = Fusion(*parts, Curve(1 / 3, 3.3, -0.7), 2.0).eval()
    save(model, tmp_path / "model.safetensors", half=True)
    again, expected = load(tmp_path)[0], rounded(model)
    assert fingerprint(again) == fingerprint(expected)
    assert score_of(again)(images).equal(score_of(expected)(images))
    assert again.curve.offset == pytest.approx(1 / 3)


def test_what_it_is_made_of(parts):
    with pytest.raises(BadValue, match=r"prood\.Discriminator"):
        Fusion(parts[0], parts[0], CURVES[0])  # type: ignore[arg-type]


def test_it_is_not_exported_as_something_else(parts, tmp_path):
    pytest.importorskip("onnx")
    from prood.export import export

    with pytest.raises(Unsupported):
        export(Fusion(*parts, CURVES[1]).eval(), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
