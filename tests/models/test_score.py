import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prood.bounds import NegativeLinear, Normalise
from prood.models import Confidence, Discriminator, InLogit, ProoD, Score, score_of
from prood.models.score import JointConfidence

SEEDS = st.integers(0, 2**20)


class Linear(nn.Module):
    """Logits that are the first pixels of the image."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, : self.classes]


def joint(seed: int = 0, classifier: nn.Module | None = None) -> ProoD:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 16), nn.ReLU()]
    g = Discriminator(nn.Sequential(Normalise([0.5], [0.25]), *layers, NegativeLinear(16)))
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
    return ProoD(classifier or plain, g, 1.0).double().eval()


def test_every_model_has_its_score() -> None:
    model = joint()
    for part, kind in ((model, JointConfidence), (model.discriminator, InLogit), (model.classifier, Confidence)):
        score = score_of(part)
        assert type(score) is kind
        assert score.model is part
        values = score(torch.rand(3, 1, 8, 8, dtype=torch.float64))
        assert values.shape == (3,)
        assert values.dtype == torch.float64


@pytest.mark.parametrize("eps", [0.0, 0.1, torch.tensor([0.1, 0.2, 0.3])])
def test_a_plain_classifier_certifies_nothing(eps: float | Tensor) -> None:
    bound = Confidence(Linear(3)).upper_bound(torch.rand(3, 1, 8, 8), eps)
    assert bound.tolist() == [math.inf] * 3
    assert bound.dtype == torch.float64


def test_a_score_of_ones_own_certifies_nothing_unless_it_says_so() -> None:
    class Energy(Score):
        def __call__(self, images: Tensor) -> Tensor:
            return self.model(images).double().logsumexp(1)

    energy = Energy(Linear(3))
    assert energy(torch.zeros(1, 1, 2, 2)).item() == pytest.approx(math.log(3))
    assert energy.upper_bound(torch.zeros(1, 1, 2, 2), 0.1).tolist() == [math.inf]
    with pytest.raises(TypeError):
        Score(Linear(3))  # type: ignore[abstract]


@settings(max_examples=20)
@given(SEEDS, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from(["ibp", "crown-ibp", "best"]))
def test_scores_in_the_ball_stay_below_their_bound(seed: int, eps: float, method: str) -> None:
    model = joint(seed)
    model.classifier[-1].weight.data *= 100
    x = torch.rand(4, 1, 8, 8, dtype=torch.float64)
    for score in (score_of(model), score_of(model.discriminator)):
        bound = score.upper_bound(x, eps, method=method, arithmetic="plain").detach()  # type: ignore[arg-type]
        assert bound.shape == (4,)
        assert bound.dtype == torch.float64
        point = x
        for _ in range(6):
            point = point.detach().requires_grad_()
            value = score(point)
            assert (value <= bound + 1e-9).all()
            (gradient,) = torch.autograd.grad(value.sum(), point)
            point = (point + eps * gradient.sign()).clamp(x - eps, x + eps).clamp(0, 1)


def test_the_certificate_of_the_confidence_is_that_of_g() -> None:
    model, x = joint(), torch.rand(3, 1, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(
        score_of(model).upper_bound(x, 0.1, arithmetic="plain"),
        model.discriminator.upper_bound(x, 0.1, arithmetic="plain") + 1,
    )


@settings(max_examples=30)
@given(SEEDS, st.sampled_from([0.1, 1.0, 5.0]))
def test_ranks_are_those_of_the_confidence(seed: int, spread: float) -> None:
    """Wherever the confidence has digits left, for the plain classifier as for the joint model."""
    model = joint(seed, Linear(6))
    x = torch.randn(40, 1, 8, 8, dtype=torch.float64) * spread
    for score, confidence in (
        (score_of(model), model.confidence(x)),
        (score_of(model.classifier), model.classifier(x).softmax(1).amax(1)),
    ):
        values = score(x)
        for i, j in pairwise(confidence.argsort().tolist()):
            if confidence[j] - confidence[i] > 1e-12:
                assert values[j] > values[i]


def test_no_ties_near_certainty() -> None:
    """Confidences of 1 − 1e-20 and less uncertain still: equal in float64, but not as scores."""
    x = torch.zeros(5, 1, 8, 8, dtype=torch.float64)
    x[:, 0, 0, 0] = torch.tensor([40.0, 46.0, 46.0001, 100.0, 5000.0])
    model = joint(0, Linear(4))
    with torch.no_grad():
        model.discriminator.last.bias.fill_(6000.0)
        model.discriminator.last.log_weight.fill_(-50.0)
    assert model.confidence(x)[1:].tolist() == [1.0] * 4
    for score in (score_of(model.classifier), score_of(model)):
        values = score(x).tolist()
        assert values == sorted(set(values))


def test_no_ties_near_uniformity() -> None:
    """Far from the data the excess over 1/K is below the digits of the confidence."""
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64) * torch.tensor([1e3, 2e3, 4e3, 8e3, 1e4]).reshape(-1, 1, 1, 1)
    model = joint()
    assert set(model.confidence(x).tolist()) == {0.25}
    values = score_of(model)(x)
    assert len(set(values.tolist())) == 5
    assert values.isfinite().all()
