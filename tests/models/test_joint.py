"""The joint model against arithmetic of 60 digits, and its certificate against points of the ball."""

import math
from itertools import pairwise

import mpmath
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prood.bounds import Box, NegativeLinear, Normalise
from prood.errors import BadValue, Diverged, Unsupported
from prood.models import Discriminator, ProoD, discriminator, fuse, small
from prood.models.confidence import confidence_of
from prood.models.joint import confidence_logit

SEEDS = st.integers(0, 2**20)
SCALES = st.sampled_from([1e-7, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4])
CLASSES = st.sampled_from([2, 3, 10, 100])


def random_logits(seed: int, classes: int, spread: float, g_spread: float, count: int = 16) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    logits = (torch.randn(count, classes) * spread).clamp(-1e4, 1e4)
    return logits, (torch.randn(count) * g_spread).clamp(-1e4, 1e4)


def reference(logits: Tensor, g: float) -> tuple[list[mpmath.mpf], mpmath.mpf]:
    """log(K·p(y|x)) of Eq. 3, and log((c − 1/K)/(1 − c)) for its maximum: 60 digits, no cancellation."""
    with mpmath.workdps(60):
        values = [mpmath.mpf(v) for v in logits.tolist()]
        weights = [mpmath.exp(v) for v in values]
        total, classes = mpmath.fsum(weights), len(values)
        inside, outside = 1 / (1 + mpmath.exp(-mpmath.mpf(g))), 1 / (1 + mpmath.exp(mpmath.mpf(g)))
        excesses = [inside * (classes * w / total - 1) for w in weights]
        relative = [
            mpmath.log1p(excess) if abs(excess) < 0.5 else mpmath.log(classes * w / total * inside + outside)
            for excess, w in zip(excesses, weights, strict=True)
        ]
        top = values.index(max(values))
        rest = mpmath.fsum(w for k, w in enumerate(weights) if k != top) / total
        missing = inside * rest + outside * (1 - mpmath.mpf(1) / classes)
        excess = excesses[top] / classes
        return relative, mpmath.log(excess / missing) if excess > 0 else mpmath.mpf("-inf")


def tiny(seed: int = 0) -> Discriminator:
    torch.manual_seed(seed)
    layers = [Normalise([0.5], [0.25]), nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()]
    model = Discriminator(nn.Sequential(*layers, nn.Linear(64, 16), nn.ReLU(), NegativeLinear(16)))
    with torch.no_grad():
        model.last.log_weight += 1  # so that g takes values of both signs in the cube
    return model


def joint(seed: int = 0, classes: int = 4, shift: float = 0.0) -> ProoD:
    g = tiny(seed)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))
    return ProoD(classifier, g, shift).double().eval()


def images(count: int = 5) -> Tensor:
    return torch.rand(count, 1, 8, 8, dtype=torch.float64)


class Fixed(nn.Module):
    """A classifier that always gives the same answer."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images: Tensor) -> object:
        return self.answer


# fuse


@settings(max_examples=60)
@given(SEEDS, CLASSES, SCALES, SCALES)
def test_probabilities_sum_to_one(seed: int, classes: int, spread: float, g_spread: float) -> None:
    logits, g = random_logits(seed, classes, spread, g_spread)
    relative = fuse(logits, g)
    assert relative.shape == logits.shape
    assert relative.isfinite().all()
    total = (relative.double() - math.log(classes)).exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
    exact = (fuse(logits.double(), g.double()) - math.log(classes)).exp().sum(1)
    torch.testing.assert_close(exact, torch.ones_like(exact), rtol=0, atol=1e-11)
    # logits again: a softmax gives the same probabilities back
    torch.testing.assert_close(relative.softmax(1), relative.exp() / classes, rtol=1e-4, atol=1e-6)


@settings(max_examples=60)
@given(SEEDS, CLASSES, SCALES, SCALES)
def test_fusion_keeps_the_order_of_the_classes(seed: int, classes: int, spread: float, g_spread: float) -> None:
    """A higher logit never gets a lower probability, but for noise in the last place of values that are equal."""
    logits, g = random_logits(seed, classes, spread, g_spread)
    order = logits.argsort(1)
    ranked = fuse(logits, g).gather(1, order)
    step = ranked[:, 1:] - ranked[:, :-1]
    size = torch.maximum(ranked[:, 1:].abs(), torch.minimum(torch.ones(()), (g.double().sigmoid()[:, None]).float()))
    assert (step >= -4 * torch.finfo(torch.float32).eps * size - 1e-44).all()


@settings(max_examples=60)
@given(SEEDS, st.sampled_from([2, 3, 10]), SCALES, SCALES)
def test_classes_tie_only_where_float32_ends(seed: int, classes: int, spread: float, g_spread: float) -> None:
    """Neighbours in the order are told apart wherever their exact values differ by more than the inputs' rounding."""
    logits, g = random_logits(seed, classes, spread, g_spread, count=4)
    fused = fuse(logits, g)
    for row in range(len(g)):
        exact, _ = reference(logits[row], g[row].item())
        ranked = sorted(range(classes), key=lambda k: exact[k])
        for low, high in pairwise(ranked):
            one, other = exact[low], exact[high]
            size = max(abs(float(one)), abs(float(other)), math.exp(min(0, g[row].item())))
            noise = 4e-7 * size * (1 + abs(g[row].item()) + logits[row].abs().max().item())
            if float(other - one) > noise + 1e-44:
                assert fused[row, low] < fused[row, high]


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([2, 3, 10]), SCALES, SCALES)
def test_fuse_against_the_reference(seed: int, classes: int, spread: float, g_spread: float) -> None:
    logits, g = random_logits(seed, classes, spread, g_spread, count=3)
    fused = fuse(logits.double(), g.double())
    for row in range(3):
        exact, _ = reference(logits[row], g[row].item())
        # The excess over the uniform is of the size of σ(g), and keeps its digits there.
        scale = min(1.0, math.exp(min(0.0, g[row].item()))) * (1 + abs(g[row].item()) + spread * 5)
        for value, want in zip(fused[row].tolist(), map(float, exact), strict=True):
            assert value == pytest.approx(want, rel=1e-12, abs=1e-14 * scale + 1e-320)


@pytest.mark.parametrize("g", [-1e4, -700.0, -30.0, 0.0, 30.0, 700.0, 1e4])
@pytest.mark.parametrize("spread", [0.0, 1.0, 1e4])
def test_gradients_of_the_fusion_are_finite(g: float, spread: float) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(4, 5) * spread).requires_grad_()
    level = torch.full((4,), g, requires_grad=True)
    for gradient in torch.autograd.grad(fuse(logits, level).sum(), (logits, level)):
        assert gradient.isfinite().all()


# confidence_logit


@pytest.mark.slow
@settings(max_examples=80)
@given(SEEDS, CLASSES, SCALES, SCALES, st.booleans())
@example(0, 10, 1e4, 1e4, True)
@example(0, 2, 1e-7, 1e4, True)
def test_confidence_logit_against_the_reference(
    seed: int, classes: int, spread: float, g_spread: float, extreme: bool
) -> None:
    logits, g = random_logits(seed, classes, spread, g_spread, count=3)
    if extreme:
        g = g.sign() * g_spread
        logits[:, 0] += 5 * spread
    values = confidence_logit(logits, g)
    assert values.dtype == torch.float64
    assert not values.isnan().any()
    assert (values <= g.double()).all()
    for row in range(3):
        expected = float(reference(logits[row], g[row].item())[1])
        if expected == -math.inf:  # equal logits: finite instead, but below whatever else float64 can tell apart
            assert values[row] < min(0.0, g[row].item()) - 700
        else:
            assert values[row].item() == pytest.approx(expected, rel=1e-12, abs=1e-9)


@settings(max_examples=40)
@given(SEEDS, CLASSES, SCALES)
def test_confidence_logit_of_the_bare_classifier(seed: int, classes: int, spread: float) -> None:
    """It is the limit of a discriminator that is sure: g → ∞."""
    logits, _ = random_logits(seed, classes, spread, 1.0)
    bare = confidence_logit(logits)
    assert not bare.isnan().any()
    torch.testing.assert_close(bare, confidence_logit(logits, torch.full((16,), 1e6)), rtol=1e-12, atol=1e-9)
    c = logits.double().softmax(1).amax(1)
    digits = (c - 1 / classes > 1e-3) & (1 - c > 1e-3)
    torch.testing.assert_close(bare[digits], ((c - 1 / classes) / (1 - c)).log()[digits], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=40)
@given(SEEDS, CLASSES, SCALES, SCALES)
def test_confidence_logit_grows_with_the_confidence(seed: int, classes: int, spread: float, g_spread: float) -> None:
    logits, g = random_logits(seed, classes, spread, g_spread, count=8)
    exact = [max(reference(logits[row], g[row].item())[0]) for row in range(8)]
    values = confidence_logit(logits, g)
    for i, j in pairwise(sorted(range(8), key=lambda row: exact[row])):
        if float(exact[j] - exact[i]) > 1e-12 * float(abs(exact[j])):
            assert values[i] <= values[j]


@pytest.mark.parametrize("g", [-1e4, -40.0, 0.0, 3.0, 1e4])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_with_a_certain_classifier_it_is_g(g: float, classes: int) -> None:
    logits = torch.zeros(1, classes)
    logits[0, 1] = 1e6
    assert confidence_logit(logits, torch.tensor([g])).item() == pytest.approx(g, rel=1e-14, abs=1e-14)


def test_equal_logits_are_the_uniform_distribution() -> None:
    """c = 1/K exactly: below all others but finite, with a finite gradient, and a confidence of exactly 1/K."""
    for g in (-1e4, 0.0, 1e4):
        logits = torch.full((1, 7), 3.25, requires_grad=True)
        score = confidence_logit(logits, torch.tensor([g]))
        nearly = confidence_logit(logits + torch.tensor([0, 0, 1e-6, 0, 0, 0, 0]), torch.tensor([g]))
        assert -math.inf < score.item() < nearly.item()
        score.sum().backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
    model = ProoD(Fixed(torch.full((2, 7), 3.25)), tiny())
    assert model.confidence(torch.rand(2, 1, 8, 8)).tolist() == [1 / 7, 1 / 7]


# ProoD


@given(st.integers(2, 1000), st.integers(0, 2**31), st.floats(-120, 120), st.sampled_from([1e-6, 0.1, 10.0, 1e4]))
@settings(max_examples=60)
def test_the_order_of_the_classes_is_the_classifiers(classes: int, seed: int, g: float, scale: float) -> None:
    """No inversion, not even by a unit in the last place; ties only where the digits end."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, classes, generator=generator) * scale
    model = ProoD(Fixed(logits), tiny(), shift=g)
    values = model(torch.rand(3, 1, 8, 8)).gather(1, logits.argsort(1))
    assert (values.diff(dim=1) >= 0).all()
    assert torch.equal(model.predict(torch.rand(3, 1, 8, 8)), logits.argmax(1))


@pytest.mark.parametrize("shift", [0.0, 3.0, -2.0])
def test_the_model_is_equation_3(shift: float) -> None:
    model, x = joint(shift=shift), images()
    p_in = torch.sigmoid(model.discriminator(x) + shift)[:, None]
    expected = model.classifier(x).softmax(1) * p_in + (1 - p_in) / 4
    torch.testing.assert_close(model.log_probabilities(x).exp(), expected)
    torch.testing.assert_close(model(x).softmax(1), expected)
    torch.testing.assert_close(model.confidence(x), expected.amax(1))
    assert model.confidence(x).dtype == torch.float64


def test_shift_moves_g() -> None:
    x = images()
    plain, shifted = joint(), joint(shift=1.5)
    torch.testing.assert_close(shifted.in_logit(x), plain.in_logit(x) + 1.5)
    torch.testing.assert_close(
        shifted.in_logit_bound(x, 0.1, arithmetic="plain"), plain.in_logit_bound(x, 0.1, arithmetic="plain") + 1.5
    )
    assert (shifted.confidence(x) > plain.confidence(x)).all()
    assert (shifted.upper_bound(x, 0.1, arithmetic="plain") > plain.upper_bound(x, 0.1, arithmetic="plain")).all()
    assert shifted.ceiling(4) > plain.ceiling(4)
    assert shifted.state_dict()["shift"] == 1.5


@settings(max_examples=30)
@given(SEEDS, CLASSES, SCALES, st.sampled_from([-1e3, -30.0, 0.0, 30.0, 1e3]))
def test_confidence_and_prediction_with_any_logits(seed: int, classes: int, spread: float, shift: float) -> None:
    logits, _ = random_logits(seed, classes, spread, 1.0)
    model = ProoD(Fixed(logits), tiny(seed), shift)
    x = torch.rand(16, 1, 8, 8)
    assert torch.equal(model.predict(x), logits.argmax(1))
    confidence = model.confidence(x)
    assert (confidence >= 1 / classes).all()
    assert (confidence <= 1).all()
    assert (confidence <= model.ceiling(classes)).all()
    assert (confidence <= confidence_of(model.in_logit(x), classes)).all()
    torch.testing.assert_close(confidence, model.log_probabilities(x).double().exp().amax(1), rtol=1e-4, atol=0)


@pytest.mark.slow
@settings(max_examples=15)
@given(SEEDS, st.sampled_from([0.0, 0.01, 0.1, 0.5]), st.sampled_from(["ibp", "crown-ibp", "best"]), st.booleans())
def test_no_confidence_in_the_ball_exceeds_the_bound(seed: int, eps: float, method: str, certain: bool) -> None:
    model, x = joint(seed, shift=1.0), images()
    if certain:  # the classifier's own confidence is 1 almost everywhere, the worst case of Eq. 4
        model.classifier[-1].weight.data *= 1e4
    bound = model.upper_bound(x, eps, method=method, arithmetic="plain").detach()  # type: ignore[arg-type]
    assert bound.dtype == torch.float64
    box = Box.ball(x, eps)
    for start in range(3):
        place = torch.rand_like(x) * 2 - 1
        for _ in range(6):
            place.requires_grad_()
            point = box.middle + box.radius * place
            confidence = model.confidence(point)
            assert (confidence <= bound + 1e-12).all()
            target = confidence if start else model.discriminator(point)
            (gradient,) = torch.autograd.grad(target.sum(), place)
            place = gradient.sign().detach()  # corners
    assert (bound <= model.ceiling(4) + 1e-12).all() or method == "crown-ibp"
    assert (bound >= 1 / 4).all()


def test_the_bound_is_equation_4() -> None:
    model, x = joint(shift=0.5), images()
    g = model.discriminator.upper_bound(x, 0.05, arithmetic="plain")
    torch.testing.assert_close(model.upper_bound(x, 0.05, arithmetic="plain"), 0.75 * torch.sigmoid(g + 0.5) + 0.25)


def test_ceiling() -> None:
    model = joint(shift=2.0)
    assert model.ceiling(4) == pytest.approx(0.75 / (1 + math.exp(-5)) + 0.25)
    with torch.no_grad():
        wild = model.confidence(torch.randn(200, 1, 8, 8, dtype=torch.float64) * 1e6)
    assert (wild <= model.ceiling(4)).all()


def test_far_away_the_confidence_tends_to_uniform() -> None:
    """Theorem 1, along random directions, in float32 and with a classifier that is sure of itself out there."""
    model = joint().float()
    directions = torch.rand(50, 1, 8, 8)
    with torch.no_grad():
        previous = model.confidence(directions)
        for scale in (1e3, 1e4, 1e5, 1e6):
            x = directions * scale
            assert model.classifier(x).softmax(1).amax(1).median() > 0.99
            confidence = model.confidence(x)
            assert ((confidence - 0.25) <= 0.1 * (previous - 0.25)).all()
            previous = confidence
        assert (previous - 0.25 < 1e-9).all()


def test_any_module_that_returns_logits_will_do() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 6))

        def forward(self, images: Tensor) -> Tensor:
            return torch.sin(images.flatten(1) @ self.weight) * 3

    model, x = ProoD(Mine(), tiny()), torch.rand(5, 1, 8, 8)
    assert model(x).shape == (5, 6)
    assert torch.equal(model.predict(x), model.classifier(x).argmax(1))
    assert (model.upper_bound(x, 0.1) >= model.confidence(x)).all()
    model(x).sum().backward()
    assert model.classifier.weight.grad is not None


@pytest.mark.parametrize(
    "answer",
    [
        torch.zeros(3),
        torch.zeros(3, 1),
        torch.zeros(3, 4, 1),
        torch.zeros(1, 4),  # would broadcast
        torch.zeros(2, 4),
        (torch.zeros(3, 4), None),
        {"logits": torch.zeros(3, 4)},
        None,
    ],
)
@pytest.mark.parametrize("call", ["__call__", "confidence", "predict", "log_probabilities"])
def test_a_classifier_that_returns_something_else(answer: object, call: str) -> None:
    model = ProoD(Fixed(answer), tiny())
    with pytest.raises(Unsupported):
        getattr(model, call)(torch.rand(3, 1, 8, 8))


def test_a_discriminator_that_is_none() -> None:
    with pytest.raises(BadValue, match=r"prood\.Discriminator"):
        ProoD(nn.Linear(3, 2), nn.Linear(3, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("shift", [math.inf, -math.inf, math.nan, 1e39])
def test_a_shift_that_is_no_number(shift: float) -> None:
    with pytest.raises(BadValue):
        ProoD(nn.Linear(3, 2), tiny(), shift)


def test_no_images() -> None:
    model, x = joint(), images(0)
    assert model(x).shape == (0, 4)
    assert model.confidence(x).shape == model.upper_bound(x, 0.1, arithmetic="plain").shape == (0,)


def test_a_model_that_overflows_says_so() -> None:
    """NaN is no confidence, and comparisons with it accept or reject whatever they are asked."""
    torch.manual_seed(0)
    model = ProoD(small(3, width=2), discriminator("digits-XS", image=(1, 6, 6)), 1.0).eval()
    with torch.no_grad():
        for parameter in model.classifier.parameters():
            parameter.fill_(3e38)
    with torch.no_grad(), pytest.raises(Diverged, match="NaN"):
        model.confidence(torch.rand(2, 1, 6, 6))
