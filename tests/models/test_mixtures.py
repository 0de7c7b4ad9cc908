"""The classifier with mixtures: densities, their ratio far away, and its bounds in two metrics."""

import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from prood.errors import BadValue, UnknownName
from prood.models import build, load, save, score_of, small
from prood.models.joint import confidence_logit
from prood.models.mixture_classifier import MixtureClassifier, MixtureConfidence
from prood.models.mixtures import GAP, MixtureRatio, _ball_bound, ball_bound, doubled, metric_bound, slack

SIDE, PIXELS, COMPONENTS = 3, 9, 4


def mixtures(seed: int = 0, sharp: float = 1.0) -> MixtureRatio:
    torch.manual_seed(seed)
    ratio = MixtureRatio(PIXELS, COMPONENTS)
    with torch.no_grad():
        ratio.mean.copy_(torch.rand(PIXELS))
        ratio.matrix.copy_(torch.linalg.qr(torch.randn(PIXELS, PIXELS)).Q * torch.logspace(0, 1, PIXELS)[:, None])
        ratio.log_scale.fill_(0.5)
        for part in (ratio.inside, ratio.outside):
            part.centres.copy_(torch.randn(COMPONENTS, PIXELS) * 3)
            part.log_weights.copy_(torch.randn(COMPONENTS))
            part.spread.copy_(torch.randn(COMPONENTS) - 1 + sharp)
    return ratio


def model(seed: int = 0) -> MixtureClassifier:
    torch.manual_seed(seed)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 3))
    return MixtureClassifier(classifier, mixtures(seed)).eval()


def images(count: int = 6) -> Tensor:
    torch.manual_seed(7)
    return torch.rand(count, 1, SIDE, SIDE)


def density(ratio: MixtureRatio, image: Tensor, which: int) -> float:
    """Σ_k α_k (2πσ²)^(−d/2) exp(−‖z − c_k‖²/2σ²), in plain Python."""
    part = (ratio.inside, ratio.outside)[which]
    log_sigma = ratio.log_sigmas()[which].tolist()
    x = [a - b for a, b in zip(image.double().flatten().tolist(), ratio.mean.double().tolist(), strict=True)]
    z = [sum(a * b for a, b in zip(row, x, strict=True)) for row in ratio.matrix.double().tolist()]
    weights = [math.exp(w) for w in part.log_weights.tolist()]
    total = 0.0
    for weight, centre, log in zip(weights, part.centres.double().tolist(), log_sigma, strict=True):
        square = sum((a - b) ** 2 for a, b in zip(z, centre, strict=True))
        sigma = math.exp(log)
        total += weight / sum(weights) * (2 * math.pi * sigma**2) ** (-PIXELS / 2) * math.exp(-square / (2 * sigma**2))
    return total


def test_the_ratio_is_that_of_the_densities() -> None:
    ratio = mixtures(sharp=0.0)
    found = doubled(ratio)(images().double())
    for image, g in zip(images(), found.tolist(), strict=True):
        assert math.isclose(g, math.log(density(ratio, image, 0)) - math.log(density(ratio, image, 1)), rel_tol=1e-5)


def test_the_joint_distribution_is_bayes_rule() -> None:
    """p(y|x) = (p_f·p(x|in) + p(x|out)/K)/(p(x|in) + p(x|out)) with equal priors."""
    net = model()
    p_f = net.classifier(images()).double().softmax(1)
    logits = net(images()).double()
    for image, p, row in zip(images(), p_f.tolist(), logits.softmax(1).tolist(), strict=True):
        inside, outside = (density(net.ratio, image, which) for which in (0, 1))
        for a, b in zip(p, row, strict=True):
            assert math.isclose(b, (a * inside + outside / 3) / (inside + outside), rel_tol=1e-4)


@pytest.mark.parametrize("spread", [-200.0, 0.0, 5.0])
def test_every_gaussian_inside_is_narrower_than_every_one_outside(spread: float) -> None:
    ratio = mixtures()
    with torch.no_grad():
        ratio.inside.spread.fill_(spread)
        ratio.outside.spread.fill_(spread)
    inside, outside = ratio.log_sigmas()
    assert outside.min() - inside.max() > 0.99 * GAP > 0


def test_far_away_the_confidence_is_uniform_in_every_direction_and_a_classifiers_is_not() -> None:
    net = model()
    torch.manual_seed(3)
    directions = torch.randn(200, 1, SIDE, SIDE)
    far = 1e4 * directions / directions.flatten(1).norm(dim=1)[:, None, None, None]
    with torch.no_grad():
        joint = net(far).softmax(1).amax(1)
        alone = net.classifier(far).softmax(1).amax(1)
    assert (joint < 1 / 3 + 1e-6).all()
    assert alone.mean() > 0.99
    score = score_of(net)
    assert (score(far) < score(images()).min()).all()


def test_the_score_is_the_confidence_of_the_joint_model() -> None:
    net = model()
    score = score_of(net)
    assert type(score) is MixtureConfidence
    confidence = net(images()).double().softmax(1).amax(1)
    expected = ((confidence - 1 / 3) / (1 - confidence)).log()
    torch.testing.assert_close(score(images()), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(score.quick(images()), score(images()), rtol=1e-3, atol=1e-3)
    logits = score.logits(images())
    assert logits is not None
    assert torch.equal(logits, net.classifier(images()))


def points(given: Tensor, eps: float, count: int = 500) -> Tensor:
    place = torch.rand(count, *given.shape) * 2 - 1
    place[: count // 2] = place[: count // 2].sign()
    place[0] = 0
    return (given + eps * place).clamp(0, 1)


@pytest.mark.parametrize("eps", [0.0, 0.01, 0.1, 0.5])
def test_no_point_of_the_ball_exceeds_the_bound(eps: float) -> None:
    for seed in range(4):
        net = model(seed)
        bound = score_of(net).upper_bound(images(), eps)
        rows = points(images(), eps).flatten(0, 1)
        found = net.in_logit(rows).detach().reshape(-1, len(images()))
        assert (found <= bound).all()
        scores = score_of(net)(rows).detach().reshape(-1, len(images()))
        assert (scores <= bound).all()
        if eps == 0:
            torch.testing.assert_close(bound, found.amax(0), rtol=0, atol=1e-4)


@pytest.mark.parametrize("eps", [-0.1, math.nan])
def test_a_radius_that_is_none_is_refused(eps: float) -> None:
    for bound in (model(0).in_logit_bound, model(0).metric_bound):
        with pytest.raises(BadValue):
            bound(images(), eps)


@pytest.mark.parametrize("option", [{"norm": "l7"}, {"method": "magic"}, {"arithmetic": "none"}])
def test_a_bound_that_there_is_not_is_refused(option: dict[str, str]) -> None:
    with pytest.raises(UnknownName):
        score_of(model(0)).upper_bound(images(), 0.1, **option)


def test_the_bound_of_two_gaussians_is_the_maximum_over_the_box() -> None:
    """With one Gaussian each and a diagonal metric g is a sum over pixels: its maximum is found pixel by pixel."""
    ratio = mixtures(sharp=0.3)
    ratio.inside, ratio.outside = (type(ratio.inside)(1, PIXELS) for _ in range(2))
    torch.manual_seed(4)
    with torch.no_grad():
        ratio.matrix.copy_(torch.diag(torch.rand(PIXELS) + 0.5))
        ratio.inside.centres.copy_(torch.rand(1, PIXELS) - 0.5)
        ratio.outside.centres.copy_(torch.rand(1, PIXELS) - 0.5)
    exact = doubled(ratio)
    grid = torch.linspace(0, 1, 4001, dtype=torch.float64)
    for image in images(3):
        low, high = ((image.double().flatten() + sign * 0.2).clamp(0, 1) for sign in (-1, 1))
        values = low + (high - low) * grid[:, None]
        z = (values - exact.mean) * exact.matrix.diagonal()
        (narrow,), (wide,) = exact.log_sigmas()
        squares = [(z - part.centres[0]).square() for part in (exact.inside, exact.outside)]
        terms = -0.5 * squares[0] * math.exp(-2 * narrow) + 0.5 * squares[1] * math.exp(-2 * wide)
        largest = terms.amax(0).sum() + PIXELS * (wide - narrow)
        bound = ball_bound(exact, image[None], 0.2)
        assert bound >= largest - 1e-9
        torch.testing.assert_close(bound[0], largest, rtol=1e-4, atol=1e-4)


def test_steps_of_ascent_make_the_bound_tight_and_none_are_needed_to_make_it_hold() -> None:
    ratio = doubled(mixtures(2))
    loose, tight = (ball_bound(ratio, images(), 0.2, steps=steps) for steps in (0, 200))
    assert (tight <= loose + 1e-9).all()
    assert (tight < loose - 0.1).any()
    found = ratio(points(images(), 0.2).flatten(0, 1).double()).reshape(-1, len(images())).amax(0)
    assert (found <= tight).all()


def test_the_metric_ball_is_bounded_as_in_the_paper() -> None:
    """b = Σ α exp(−max(d − R, 0)²/2σ²) / Σ β exp(−(d + R)²/2θ²); confidence ≤ (1 + K·b)/(K·(1 + b))."""
    net, radius = model(), 0.7
    confidences = net.metric_bound(images(), radius).tolist()
    for image, g, confidence in zip(
        images(), metric_bound(doubled(net.ratio), images(), radius).tolist(), confidences, strict=True
    ):
        ends = []
        for part, log_sigma, sign in zip(
            (net.ratio.inside, net.ratio.outside), net.ratio.log_sigmas(), (-1, 1), strict=True
        ):
            sigma = log_sigma.double().exp()
            z = (image.flatten() - net.ratio.mean).double() @ net.ratio.matrix.double().T
            d = ((z - part.centres.double()).norm(dim=1) + sign * radius).clamp_min(0)
            terms = part.log_weights.double().softmax(0) * sigma**-PIXELS * torch.exp(-(d**2) / (2 * sigma**2))
            ends.append(terms.sum().item())
        b = ends[0] / ends[1]
        assert math.isclose(g, math.log(b), rel_tol=1e-5)
        assert math.isclose(confidence, (1 + 3 * b) / (3 * (1 + b)), rel_tol=1e-5)


@pytest.mark.parametrize("radius", [0.0, 0.5, 3.0])
def test_no_point_of_the_metric_ball_exceeds_its_bound(radius: float) -> None:
    net = model(1)
    bound, confidence = metric_bound(doubled(net.ratio), images(), radius), net.metric_bound(images(), radius)
    inverse = torch.linalg.inv(net.ratio.matrix)
    for seed in range(50):
        torch.manual_seed(seed)
        step = torch.randn(len(images()), PIXELS)
        step = radius * 0.999 * step / step.norm(dim=1, keepdim=True)
        moved = images() + (step @ inverse.T).reshape(images().shape)
        with torch.no_grad():
            assert (net.in_logit(moved) <= bound).all()
            score = confidence_logit(net.logits(moved), net.in_logit(moved))
        assert (2 / 3 * torch.sigmoid(score) + 1 / 3 <= confidence).all()
    assert (confidence <= 1).all()


def test_the_room_for_rounding_covers_exact_arithmetic() -> None:
    """g in float64 against its exponents in rationals: the difference is far below the slack, and that is small."""
    ratio = doubled(mixtures(0))
    image = images(1)
    a, b = ratio.terms(image.double())
    room = slack(ratio, torch.full((1,), math.sqrt(PIXELS), dtype=torch.float64)).item()
    x = [Fraction(p) - Fraction(m) for p, m in zip(image.double().flatten().tolist(), ratio.mean.tolist(), strict=True)]
    z = [sum(Fraction(w) * v for w, v in zip(row, x, strict=True)) for row in ratio.matrix.tolist()]
    for part, log_sigma, terms in ((ratio.inside, ratio.log_sigmas()[0], a), (ratio.outside, ratio.log_sigmas()[1], b)):
        factor = torch.exp(-2 * log_sigma)
        constant = part.log_weights.log_softmax(0) - PIXELS * log_sigma
        for k in range(COMPONENTS):
            square = sum((p - Fraction(c)) ** 2 for p, c in zip(z, part.centres[k].tolist(), strict=True))
            exact = Fraction(constant[k].item()) - Fraction(1, 2) * square * Fraction(factor[k].item())
            assert abs(Fraction(terms[0, k].item()) - exact) < room / 4
    assert room < 1e-8
    # Higham's bound of a sum of as many products, of the largest square there can be, once for each of four exponents.
    largest = (ratio.matrix.norm() * math.sqrt(PIXELS)) ** 2 * torch.exp(-2 * ratio.log_sigmas()[0].min())
    assert room > 4 * PIXELS * 2.0**-53 * largest


def test_the_room_for_rounding_is_part_of_the_bound() -> None:
    """Of a ball without any radius it is all that there is between g and its bound."""
    ratio = doubled(mixtures(0))
    points = images().double().flatten(1)
    found = _ball_bound(ratio, points, points, 3) - ratio(points)
    torch.testing.assert_close(found, slack(ratio, (points - ratio.mean).norm(dim=1)), rtol=1e-3, atol=0)


def test_half_precision_is_kept_away_from_the_distances() -> None:
    ratio = mixtures()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = ratio(images())
    torch.testing.assert_close(mixed, ratio(images()), rtol=0, atol=0)


def test_it_survives_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = MixtureClassifier(small(3, width=2), MixtureRatio(784, 2)).eval()
    with torch.no_grad():
        net.ratio.inside.centres.normal_()
    save(net, tmp_path / "model.safetensors")
    again, about = load(tmp_path)
    some = torch.rand(2, 1, 28, 28)
    assert isinstance(again, MixtureClassifier)
    assert about.architecture["components"] == 2
    assert torch.equal(score_of(again)(some), score_of(net)(some))
    assert isinstance(build(about.architecture), MixtureClassifier)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_a_distance_to_a_centre_close_by_is_not_lost_in_rounding(scale: float) -> None:
    """‖z‖² − 2·z·c + ‖c‖² is off by a rounding of ‖z‖², and its root by much more."""
    for seed in range(50):
        torch.manual_seed(seed)
        ratio, x = MixtureRatio(1, 1), torch.rand(1, 1, 1, 1)
        with torch.no_grad():
            ratio.matrix.fill_(scale)
            z = x.item() * scale
            ratio.outside.centres.fill_(z * (1 - 2**-23))
            ratio.inside.centres.fill_(z + 0.5 * scale)
            ratio.inside.spread.fill_(-20.0)
            ratio.outside.spread.fill_(-20.0)
            exact = doubled(ratio)
            assert exact(x.double() + 0.3 * (1 - 1e-9)) <= metric_bound(exact, x, 0.3 * scale)
