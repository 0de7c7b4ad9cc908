import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from prood.data import ImageSet
from prood.errors import BadValue
from prood.methods import CCU, Batch, Step
from prood.methods.ccu import fit_mixtures
from prood.models.mixture_classifier import MixtureClassifier
from prood.models.mixtures import MixtureRatio
from prood.training import TrainOptions

STEP = Step(torch.tensor(0.0))
CLASSES, PIXELS = 3, 16


def network() -> MixtureClassifier:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)]
    ratio = MixtureRatio(PIXELS, 2)
    with torch.no_grad():
        for part in (ratio.inside, ratio.outside):
            part.centres.normal_()
            part.log_weights.normal_()
            part.spread.normal_()
        ratio.matrix += 0.3 * torch.randn(PIXELS, PIXELS)
    return MixtureClassifier(nn.Sequential(*layers), ratio).double()


def batches() -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, 6, 1, 4, 4, dtype=torch.float64)
    return Batch(x, torch.arange(6) % CLASSES), Batch(z * 0.3)


def densities(ratio: MixtureRatio, image: Tensor) -> list[float]:
    """p(x|in) and p(x|out) in the metric's coordinates, by torch's own Gaussians."""
    z = ratio.matrix @ (image.flatten() - ratio.mean)
    found = []
    for part, log_sigma in zip((ratio.inside, ratio.outside), ratio.log_sigmas(), strict=True):
        total = 0.0
        for weight, centre, log in zip(part.log_weights.softmax(0), part.centres, log_sigma, strict=True):
            gaussian = torch.distributions.Normal(centre, log.exp())
            total += (weight * gaussian.log_prob(z).sum().exp()).item()
        found.append(total)
    return found


@pytest.mark.parametrize(("weight", "likelihood"), [(1.0, 1.0), (0.5, 0.0), (0.5, 2.0), (0.0, 1.0)])
def test_the_loss_is_the_formula(weight: float, likelihood: float) -> None:
    model, (inside, outside) = network(), batches()
    images = torch.cat([inside.images, outside.images])
    p_f = model.classifier(images).softmax(1).tolist()
    expected = 0.0
    for row, (image, p) in enumerate(zip(images, p_f, strict=True)):
        d_in, d_out = densities(model.ratio, image)
        joint = [(p[y] * d_in + d_out / CLASSES) / (d_in + d_out) for y in range(CLASSES)]
        likely = likelihood / PIXELS * math.log(0.5 * d_in + 0.5 * d_out)
        if row < 6:
            expected += (-math.log(joint[row % CLASSES]) - likely) / 6
        else:
            expected += weight * (-sum(map(math.log, joint)) / CLASSES - likely) / 6
    loss, logs = CCU(weight=weight, likelihood=likelihood)(model, inside, outside, STEP)
    assert math.isclose(loss.item(), expected, rel_tol=1e-9)
    assert logs["accuracy"] <= 1


def test_the_gradient_is_that_of_finite_differences() -> None:
    model, (inside, outside) = network(), batches()
    objective = CCU(weight=0.7)
    objective(model, inside, outside, STEP)[0].backward()
    torch.manual_seed(2)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        direction, step = torch.randn_like(parameter), 1e-6
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
                ends.append(objective(model, inside, outside, STEP)[0].item())
                parameter -= sign * step * direction
        slope = (ends[0] - ends[1]) / (2 * step)
        assert math.isclose(slope, (parameter.grad * direction).sum().item(), rel_tol=1e-4, abs_tol=1e-7), name


def test_the_metric_is_that_of_the_covariance_with_a_floor() -> None:
    torch.manual_seed(0)
    factor = torch.randn(5, 5, dtype=torch.float64) * torch.tensor([1.0, 1, 1, 1, 0], dtype=torch.float64)[:, None]
    inside = torch.randn(4000, 5, dtype=torch.float64) @ factor.T + 2
    ratio = MixtureRatio(5, 3).double()
    with torch.no_grad():
        fit_mixtures(ratio, inside, torch.rand(500, 5, dtype=torch.float64), 1e-3)
    covariance = torch.cov(inside.T, correction=0)
    values, vectors = torch.linalg.eigh(covariance)
    raised = vectors @ torch.diag(values.clamp_min(1e-3 * values.max())) @ vectors.T
    torch.testing.assert_close(ratio.matrix.T @ ratio.matrix, torch.linalg.inv(raised), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ratio.mean, inside.mean(0))


def test_the_mixtures_start_at_clusters_of_the_data() -> None:
    """Three far clusters: Lloyd's centres are their means, whatever they start from, if each has one of the first."""
    torch.manual_seed(0)
    places = torch.tensor([[0.0, 0], [5, 0], [0, 5]], dtype=torch.float64)
    inside = places.repeat(200, 1) + 0.1 * torch.randn(600, 2, dtype=torch.float64)
    ratio = MixtureRatio(2, 3).double()
    with torch.no_grad():
        fit_mixtures(ratio, inside, 20 * torch.rand(400, 2, dtype=torch.float64), 1e-6)
    back = ratio.inside.centres @ torch.linalg.inv(ratio.matrix).T + ratio.mean
    means = torch.stack([inside[i::3].mean(0) for i in range(3)])
    torch.testing.assert_close(back, means, rtol=0, atol=1e-6)
    torch.testing.assert_close(ratio.inside.log_weights.softmax(0), torch.full((3,), 1 / 3).double(), rtol=1e-3, atol=0)
    z = ratio.coordinates(inside)
    nearest = (z[:, None] - ratio.inside.centres).square().sum(2).amin(1)
    sigma = ratio.log_sigmas()[0].exp()
    torch.testing.assert_close(sigma.mean(), (nearest.mean() / 2).sqrt(), rtol=0.1, atol=0)
    with torch.no_grad():
        assert ratio(inside).mean() > 1  # and so the ratio knows its own
        assert ratio(20 * torch.rand(100, 2, dtype=torch.float64) + 6).max() < 0


def test_preparation_takes_what_training_will_see() -> None:
    torch.manual_seed(0)
    asked: list[int] = []

    def given(step: int) -> tuple[Batch, Batch]:
        asked.append(step)
        return Batch(torch.rand(8, 1, 4, 4), torch.zeros(8)), Batch(torch.rand(8, 1, 4, 4) * 0.2)

    model = network().float()
    before = model.classifier.state_dict()["0.weight"].clone()
    CCU(components=2, fit_images=30).prepare(model, given)
    assert asked == [0, 1, 2, 3]
    assert abs(model.ratio.mean.mean() - 0.5) < 0.05
    assert torch.equal(model.classifier.state_dict()["0.weight"], before)
    inside, outside = given(9)
    with torch.no_grad():
        assert model.ratio(inside.images).mean() > model.ratio(outside.images).mean()


def test_the_network_is_the_recipes_with_mixtures_of_the_images() -> None:
    images = ImageSet("some", torch.zeros(4, 3, 5, 5, dtype=torch.uint8), torch.arange(4))
    model: Any = CCU(components=7).network({"name": "resnet18", "classes": 4}, images, images)
    assert model.ratio.inside.centres.shape == model.ratio.outside.centres.shape == (7, 75)
    assert model.architecture["classifier"] == {"name": "resnet18", "classes": 4}


def test_weight_decay_leaves_the_mixtures_alone() -> None:
    model = network()
    groups = TrainOptions(weight_decay=0.1).make_optimizer(model).param_groups
    free = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
    assert free == {id(p) for p in model.ratio.parameters()}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"components": 0}, "components must be"),
        ({"components": 9, "fit_images": 8}, "components = 9"),
        ({"floor": 0.0}, "floor must be"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        CCU(**wrong)
