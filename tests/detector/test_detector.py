"""Predictions and proofs agree with the model, with each other and with the threshold."""

import math
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

import prood
from prood.bounds import Normalise
from prood.detector import Detector
from prood.errors import BadValue, Diverged, Mismatch, ProodWarning, UnknownName, Unsupported
from prood.models import Discriminator, Gate, Gated, Metadata, ProoD, discriminator, small


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(7, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def test_it_is_at_the_top_level():
    assert prood.Detector is Detector


@pytest.mark.slow
def test_a_prediction_says_what_the_model_says(model, images):
    found = Detector(model, threshold=0.3).predict(images)
    assert len(found) == 7
    assert found.label.tolist() == model.predict(images).tolist()
    assert found.name == tuple(str(label) for label in found.label)
    torch.testing.assert_close(torch.from_numpy(found.confidence), model.confidence(images), rtol=1e-14, atol=0)
    p_in = model.in_logit(images).double().sigmoid().detach()
    torch.testing.assert_close(torch.from_numpy(found.p_in), p_in, rtol=1e-14, atol=0)
    assert found.p_value is None
    assert found.confidence.dtype == found.p_in.dtype == np.float64
    for place, answer in enumerate(found):
        assert answer == found[place]
        assert answer.label == found.label[place]
        assert (answer.name, answer.confidence) == (found.name[place], found.confidence[place])
        assert (answer.p_in, answer.accepted) == (found.p_in[place], bool(found.accepted[place]))
        assert answer.p_value is None
    assert len(list(found)) == 7


def test_the_size_of_a_batch_does_not_matter(model, images):
    detector = Detector(model, threshold=0.2)
    whole, parts = detector.predict(images), detector.predict(images, batch=3)
    assert whole.label.tolist() == parts.label.tolist()
    np.testing.assert_allclose(whole.score, parts.score, rtol=1e-5)
    bounds, others = detector.certify(images, 0.02), detector.certify(images, 0.02, batch=2)
    np.testing.assert_allclose(bounds.upper_bound, others.upper_bound, rtol=1e-6)


def test_no_images_no_answers(model):
    detector = Detector(model, threshold=0.3)
    assert len(detector.predict([])) == 0
    assert detector.predict(torch.zeros(0, 1, 28, 28)).accepted.tolist() == []
    proof = detector.certify([], 0.1)
    assert (len(proof), proof.rejected.tolist(), proof.radius.tolist()) == (0, [], [])


def test_defaults_come_from_the_model(model, images):
    model.about = Metadata({}, classes=list("abcdefgh"), threshold=0.25)
    detector = Detector(model)
    assert (detector.threshold, detector.classes) == (0.25, tuple("abcdefgh"))
    found = detector.predict(images)
    assert found.name == tuple("abcdefgh"[label] for label in found.label)
    other = Detector(model, threshold=0.5, classes=list("ABCDEFGH"))
    assert (other.threshold, other.classes[0]) == (0.5, "A")


def test_a_classifier_and_a_discriminator_make_a_joint_model(model, images):
    detector = Detector(model.classifier, model.discriminator, shift=1.5)
    assert detector.predict(images).score.tolist() == Detector(model).predict(images).score.tolist()
    assert Detector(model.classifier, model.discriminator).model.shift == 0


@pytest.mark.slow
def test_accepted_is_confidence_at_least_threshold(model, images):
    free = Detector(model).predict(images)
    for threshold in [*free.confidence, 0.0, 1 / 8, 1.0]:
        found = Detector(model, threshold=threshold).predict(images)
        assert (found.accepted == (free.confidence >= threshold)).all()
        assert not (found.accepted & Detector(model, threshold=threshold).certify(images, 0.0).rejected).any()
    middle = float(np.sort(free.confidence)[3])
    found = Detector(model, threshold=middle).predict(images)
    assert found.accepted.sum() == 4  # the one that equals it is accepted
    assert [answer.accepted for answer in found] == found.accepted.tolist()


@pytest.fixture
def sure() -> ProoD:
    """Confidences of its own between 1/2 and numbers that round to 1, by the brightness of the image."""
    f = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    g = discriminator("digits", image=(1, 8, 8))
    with torch.no_grad():
        f[1].weight[0], f[1].weight[1] = 200 / 64, 0.0
        f[1].bias.zero_()
        g.last.log_weight.fill_(-90.0)
        g.last.bias.fill_(0.0)
    return ProoD(f, g, 200.0).eval()


def test_confidences_that_round_to_one(sure):
    # Scores grow with brightness up to 200 while confidences are 1.0 from a score of 38 on.
    grey = torch.linspace(0.3, 0.9, 100)[:, None, None, None].expand(-1, 1, 8, 8)
    detector = Detector(sure)
    found = detector.calibrate(grey, accept=0.9, level=0.9)
    assert len(set(found.scores.tolist())) == 100
    assert found.threshold == 1.0  # rounded, so it accepts more than it must
    dim = torch.linspace(0.0, 1.0, 50)[:, None, None, None].expand(-1, 1, 8, 8)
    answer = detector.predict(dim)
    assert (answer.accepted == (answer.confidence >= found.threshold)).all()
    assert (np.diff(answer.score) > 0).all()
    assert 0 < answer.accepted.sum() < 50
    assert (answer.accepted | (answer.p_value <= found.index / 101)).all()
    assert len(set(answer.p_value.tolist())) > 20  # p-values tell apart what the confidence does not
    assert not (detector.certify(dim, 0.0).rejected & answer.accepted).any()
    assert detector.predict(grey).accepted.mean() >= 0.9


def test_calibration_sets_the_threshold(detector, digits):
    assert detector.threshold is None
    found = detector.calibrate(digits[:200])
    assert detector.calibration is found
    assert detector.threshold == found.threshold
    answer = detector.predict(digits[:200])
    assert (answer.accepted == (answer.confidence >= found.threshold)).all()
    assert (~answer.accepted).sum() == found.index - 1 == 4
    assert (answer.accepted == (answer.p_value > found.index / 201)).all()
    assert found.threshold == np.sort(answer.confidence)[found.index - 1]
    assert found.score == np.sort(answer.score)[found.index - 1]
    assert (found.accept, found.level, len(found)) == (0.95, 0.95, 200)
    # An image ties with itself in whatever batch it comes.
    assert answer.p_value.min() == 2 / 201
    looser = detector.calibrate(digits[:200], accept=0.8, level=0.9)
    assert looser.index > found.index
    detector.threshold = 0.5
    assert (detector.threshold, detector.calibration) == (0.5, None)
    assert detector.predict(digits[:2]).p_value is None


def test_p_values_of_held_out_digits_are_super_uniform(detector, digits):
    detector.calibrate(digits[:500])
    p = detector.predict(digits[500:]).p_value
    for alpha in (0.02, 0.05, 0.1, 0.3, 0.6):
        spread = math.sqrt(alpha * (1 - alpha) * (1 / 500 + 1 / 500))  # of both halves
        assert (p <= alpha).mean() <= alpha + 3 * spread
    assert (detector.predict(torch.ones(2, 1, 28, 28)).p_value >= 1 / 501).all()


def test_without_a_threshold_there_is_no_verdict(detector, images):
    found, proof = detector.predict(images), detector.certify(images, 0.1)
    for ask in (lambda: found.accepted, lambda: proof.rejected, lambda: proof.radius):
        with pytest.raises(BadValue):
            ask()
    assert found[0].accepted is None
    assert (proof[0].rejected, proof[0].radius) == (None, None)
    assert proof[0].upper_bound == proof.upper_bound[0]


@pytest.fixture
def tiny() -> ProoD:
    torch.manual_seed(0)
    g = discriminator("digits", image=(1, 8, 8))
    return ProoD(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4)), g, 1.5).eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "method", "eps", "largest"),
    [("linf", "best", 0.02, 1.0), ("linf", "ibp", 0.002, 1.0), ("l2", "best", 0.1, 8.0), ("l1", "best", 0.3, 64.0)],
)
def test_a_proof_is_the_models(tiny, norm, eps, largest, method):
    images = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    bound = tiny.upper_bound(images, eps, method=method, norm=norm).numpy()
    low, high = np.sort(bound)[2:4]
    threshold = float((low + high) / 2)
    proof = Detector(tiny, threshold=threshold).certify(images, eps, method=method, norm=norm, radius=True)
    assert (proof.upper_bound == bound).all()
    assert (proof.rejected == (bound < threshold)).all()
    assert proof.rejected.sum() == 3
    radius = tiny.certified_radius(images, threshold, largest=largest, method=method, norm=norm).numpy()
    assert (np.isnan(proof.radius) == np.isnan(radius)).all()
    assert (proof.radius[proof.rejected] >= eps).all()
    assert not (proof.radius[~proof.rejected] >= eps).any()
    np.testing.assert_allclose(proof.radius, radius, rtol=0, atol=2e-6 * largest)
    for one, reach in zip(images, proof.radius, strict=True):  # found to within a millionth, in every norm
        if 0 < reach < largest:
            assert tiny.upper_bound(one[None], reach, method=method, norm=norm) < threshold
            assert tiny.upper_bound(one[None], reach + 2e-6, method=method, norm=norm) >= threshold
    assert (proof.eps, proof.method, proof.norm) == (eps, method, norm)
    for place, found in enumerate(proof):
        assert (found.upper_bound, found.rejected) == (bound[place], bound[place] < threshold)
        assert found.radius == proof.radius[place] or math.isnan(proof.radius[place])


def test_auto_knows_the_threshold(tiny, monkeypatch):
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    asked = []
    bound = Discriminator.upper_bound

    def seen(self, *images, threshold=None, **options):
        asked.append(threshold)
        return bound(self, *images, **options | {"method": "best"})  # what is asked for matters here, not the minute

    monkeypatch.setattr(Discriminator, "upper_bound", seen)
    Detector(tiny, threshold=0.6).certify(images, 0.01, method="auto")
    share = (0.6 - 1 / 4) / (1 - 1 / 4)
    assert asked[0] == pytest.approx(math.log(share / (1 - share)) - 1.5, abs=1e-5)
    asked.clear()
    Detector(tiny).certify(images, 0.01, method="auto")
    assert asked == [None]


def test_a_radius_is_at_least_what_was_proven(tiny):
    image = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    eps = 0.0213  # no fraction that bisection meets
    bound = tiny.upper_bound(image, eps).item()
    proof = Detector(tiny, threshold=bound * (1 + 1e-14)).certify(image, eps, radius=True)
    assert proof.rejected.all()
    assert proof.radius[0] >= eps


def test_a_radius_costs_nothing_unless_it_is_asked_for(tiny, monkeypatch):
    images = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    low, high = np.sort(tiny.upper_bound(images, 0.02).numpy())[2:4]
    detector, asked = Detector(tiny, threshold=float(low + high) / 2), []
    bound = Discriminator.upper_bound

    def counted(self, images, *args, **options):
        asked.append(len(images))
        return bound(self, images, *args, **options)

    monkeypatch.setattr(Discriminator, "upper_bound", counted)
    proof = detector.certify(images, 0.02)
    assert sum(asked) == 5
    assert np.isnan(proof.radius).tolist() == (~proof.rejected).tolist()
    assert (proof.radius[proof.rejected] == 0.02).all()  # all that is known is true
    searched = detector.certify(images, 0.02, radius=True)
    assert sum(asked) > 20
    assert (searched.radius[proof.rejected] >= 0.02).all()


@pytest.mark.parametrize(("norm", "largest"), [("linf", 1.0), ("l2", 8.0), ("l1", 64.0)])
def test_a_radius_may_be_that_of_everything(tiny, norm, largest):
    proof = Detector(tiny, threshold=1.0).certify(torch.rand(2, 1, 8, 8), 0.1, norm=norm, radius=True)
    assert proof.radius.tolist() == [largest, largest]


def test_an_image_that_is_not_rejected_has_no_radius(model, images):
    proof = Detector(model, threshold=0.125).certify(images, 0.01, radius=True)
    assert not proof.rejected.any()
    assert np.isnan(proof.radius).all()


def test_no_image_in_the_ball_is_accepted_where_it_is_proven(model, images):
    eps = 0.02
    detector = Detector(model, threshold=float(model.upper_bound(images, eps).max()) + 1e-9)
    proof = detector.certify(images, eps)
    assert proof.rejected.all()
    for seed in range(20):
        noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        near = detector.predict((images + eps * noise.sign()).clamp(0, 1))
        assert (near.confidence <= proof.upper_bound).all()
        assert not near.accepted.any()


def test_kinds_of_input_give_the_same_prediction(model, digits, tmp_path):
    detector = Detector(model, threshold=0.3)
    picture = Image.fromarray(digits[0, 0].numpy())
    picture.save(tmp_path / "digit.png")
    expected = detector.predict(digits[0])[0]
    bound = detector.certify(digits[0], 0.1).upper_bound
    for one in (digits[0].float() / 255, digits[:1].numpy(), picture, tmp_path / "digit.png", [picture]):
        assert detector.predict(one)[0] == expected
        assert detector.certify(one, 0.1).upper_bound == bound


def test_the_model_is_put_into_eval_mode(model, images):
    detector = Detector(model)
    expected = detector.predict(images).score
    model.train()
    assert (detector.predict(images).score == expected).all()
    model.train()
    detector.certify(images, 0.1)
    assert not model.training


@pytest.mark.parametrize("eps", [-0.1, math.nan, math.inf, "x", [0.1, 0.2], None, torch.tensor([0.1, 0.2])])
def test_a_radius_is_one_finite_number(detector, images, eps):
    with pytest.raises(BadValue):
        detector.certify(images, eps)


def test_other_real_numbers_are_radii(detector, images):
    bound = detector.certify(images, 0.25).upper_bound
    for eps in (np.float32(0.25), torch.tensor(0.25)):
        assert (detector.certify(images, eps).upper_bound == bound).all()


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, math.inf])
def test_a_threshold_is_a_confidence(model, threshold):
    with pytest.raises(BadValue):
        Detector(model, threshold=threshold)
    detector = Detector(model)
    with pytest.raises(BadValue):
        detector.threshold = threshold


def test_what_is_no_detector(model, images):
    f, g = model.classifier, model.discriminator
    with pytest.raises(BadValue):
        Detector(f)
    with pytest.raises(BadValue):
        Detector(model, g)
    with pytest.raises(BadValue):
        Detector(model, shift=1.0)
    with pytest.raises(BadValue, match=r"prood.load\(…\)"):
        Detector("runs/prood")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=r"prood.Discriminator"):
        Detector(f, f)
    with pytest.raises(Mismatch):
        Detector(model, classes=["a", "b", "c"])
    with pytest.raises(UnknownName, match="'nonsense'"):
        Detector(model, device="nonsense")
    with pytest.raises(Mismatch):
        Detector(model, image=(1, 6, 6))
    with pytest.raises(BadValue):
        Detector(model, image=(28, 28))


def test_a_discriminator_of_ones_own(model, images):
    own = Discriminator(
        torch.nn.Sequential(
            Normalise([0.5], [0.25]), *list(model.discriminator.network[0])[1:], *model.discriminator.tail
        )
    )
    with pytest.raises(BadValue, match=r"image=\(channels"):
        Detector(model.classifier, own)
    detector = Detector(model.classifier, own, shift=1.5, image=(1, 28, 28))
    np.testing.assert_allclose(detector.predict(images).score, Detector(model).predict(images).score, rtol=1e-5)


def test_a_model_that_returns_nan_is_refused(images):
    f = small(4, width=4).eval()
    detector = Detector(f, discriminator("digits", image=(1, 28, 28)))
    with torch.no_grad():
        next(f.parameters()).fill_(math.nan)
    for use in (detector.predict, detector.calibrate):
        with pytest.raises(Diverged, match="NaN"):
            use(images)


def test_too_few_images_leave_the_threshold_as_it_was(model, digits):
    detector = Detector(model, threshold=0.3)
    with pytest.raises(BadValue, match=r"58.*59"):
        detector.calibrate(digits[:58])
    assert (detector.threshold, detector.calibration) == (0.3, None)
    with pytest.raises(BadValue):
        detector.calibrate([])


def test_it_moves_with_its_model(detector, images):
    expected = detector.predict(images).label.tolist()
    assert detector.to("cpu") is detector
    assert detector.predict(images).label.tolist() == expected


def test_probabilities_are_those_of_the_joint_model(detector, digits):
    found = detector.predict(digits[:50])
    images = digits[:50].float() / 255
    expected = detector.model.log_probabilities(images).double().exp().detach().numpy()
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
    np.testing.assert_allclose(found.probabilities.sum(1), 1, atol=1e-12)
    # The label's is the confidence itself, bit by bit, for that is what is certified.
    assert (found.probabilities[np.arange(50), found.label] == found.confidence).all()
    assert (found.probabilities.argmax(1) == found.label).all()
    assert detector.predict(digits[:0]).probabilities.shape == (0, 8)


@pytest.mark.parametrize("gate", [(), ((-1.0, 2.0), (-3.0, 1.0))])
def test_answers_about_many_classes_keep_four_bytes_each(gate):
    torch.manual_seed(0)
    classifier = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1000))
    detector = Detector(Gated(classifier, discriminator("digits-XS", image=(1, 8, 8)), Gate(*gate)))
    images = torch.rand(4000, 1, 8, 8)
    detector.predict(images[:2])
    tracemalloc.start()
    found = detector.predict(images)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * 4 * 4000 * 1000
    expected = detector.model.log_probabilities(images).double().exp().detach().numpy()
    np.testing.assert_allclose(found.probabilities, expected, rtol=1e-5)
    assert (found.probabilities.argmax(1) == found.label).all()


def test_probabilities_are_not_taken_for_logits(model):
    softmax = torch.nn.Sequential(model.classifier, torch.nn.Softmax(1))
    with pytest.raises(Unsupported, match="softmax"):
        Detector(softmax, model.discriminator, shift=1.0)
    joint = ProoD(softmax, model.discriminator, 1.0)
    images = torch.rand(4, 1, 28, 28)
    for call in (joint.confidence, joint.predict):
        with pytest.raises(Unsupported, match="softmax"):
            call(images)
    logarithms = torch.nn.Sequential(model.classifier, torch.nn.LogSoftmax(1))
    ours = Detector(ProoD(logarithms, model.discriminator, model.shift.item())).predict(images)
    assert np.allclose(ours.confidence, Detector(model).predict(images).confidence)


def test_a_constant_discriminator_is_named_when_it_is_opened(model, tmp_path):
    torch.nn.init.constant_(model.discriminator.body[-1].bias, -1e3)
    Detector(model).save(tmp_path / "dead")
    with pytest.warns(ProodWarning, match="constant"):
        Detector.load(tmp_path / "dead")
