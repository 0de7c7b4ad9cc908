import math

import pytest
import torch
from torch import Tensor, nn

from prood.errors import NotFound, ProodError
from prood.methods import ATOM, Batch, Step
from prood.models.baselines import ExtraClass, with_extra_class

STEP = Step(torch.tensor(0.0))
CLASSES = 3
COUNT = 8


def model() -> ExtraClass:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES + 1)]
    return ExtraClass(nn.Sequential(*layers).double())


def batches() -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, COUNT, 1, 4, 4, dtype=torch.float64)
    return Batch(x, torch.arange(COUNT) % CLASSES), Batch(z, noise=torch.rand_like(z) * 2 - 1)


def p(row: list[float], y: int) -> float:
    return math.exp(row[y]) / sum(map(math.exp, row))


def direct(logits_in: Tensor, labels: Tensor, logits_out: Tensor, weight: float) -> float:
    """The formula with probabilities: −log p(y|x) − weight · log p(K+1|z̃)."""
    inside = [-math.log(p(row, y)) for row, y in zip(logits_in.tolist(), labels.tolist(), strict=True)]
    outside = [-math.log(p(row, CLASSES)) for row in logits_out.tolist()]
    return sum(inside) / len(inside) + weight * sum(outside) / len(outside)


def hardest_first(net: ExtraClass, images: Tensor) -> list[int]:
    """By the probability of the extra class as the deployed network gives it."""
    was = net.training
    rows = net.eval().extended(images).tolist()
    net.train(was)
    return sorted(range(len(rows)), key=lambda number: p(rows[number], CLASSES))


@pytest.mark.parametrize(
    ("quantile", "mined", "kept"), [(0.0, 0.25, (0, 2)), (0.125, 0.25, (1, 3)), (0.5, 0.5, (4, 8))]
)
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_the_loss_is_the_formula_on_the_mined_outliers(
    quantile: float, mined: float, kept: tuple[int, int], weight: float
) -> None:
    net, (inside, outside) = model(), batches()
    assert outside.noise is not None
    chosen = hardest_first(net, outside.images)[slice(*kept)]
    start = (outside.images + torch.tensor(0.1) * outside.noise).clamp(0, 1)[chosen]
    logits = net.extended(torch.cat([inside.images, start]))
    expected = direct(logits[:COUNT], inside.targets, logits[COUNT:], weight)
    objective = ATOM(eps=0.1, attack_steps=0, quantile=quantile, mined=mined, weight=weight)
    loss, logs = objective(net, inside, outside, STEP)
    assert math.isclose(loss.item(), expected, rel_tol=1e-12)
    accuracy = (logits[:COUNT, :CLASSES].argmax(1) == inside.targets).double().mean().item()
    assert logs["accuracy"].item() == pytest.approx(accuracy)


def test_mining_keeps_images_and_noise_together_and_leaves_the_network_alone() -> None:
    net, (_, outside) = model(), batches()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = ATOM(quantile=0.25, mined=0.5).mine(net, outside)
    rows = hardest_first(net, outside.images)[2:6]
    assert outside.noise is not None
    assert torch.equal(found.images, outside.images[rows])
    assert torch.equal(found.noise, outside.noise[rows])  # type: ignore[arg-type]
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_batch_too_small_for_the_fractions_still_gives_an_outlier() -> None:
    net, (_, outside) = model(), batches()
    one = Batch(outside.images[:1], noise=outside.noise[:1])  # type: ignore[index]
    assert torch.equal(ATOM(quantile=0.7, mined=0.1).mine(net, one).images, one.images)


def test_the_attack_hides_outliers_from_the_extra_class() -> None:
    net, (inside, outside) = model().eval(), batches()
    values = [ATOM(eps=0.2, attack_steps=n)(net, inside, outside, STEP)[1]["loss_out"].item() for n in (0, 1, 5)]
    assert values[0] < values[1] < values[2]


def test_the_gradient_is_that_of_finite_differences() -> None:
    net, (inside, outside) = model(), batches()
    objective = ATOM(eps=0.1, attack_steps=0, weight=0.7)
    loss, _ = objective(net, inside, outside, STEP)
    loss.backward()
    for parameter in net.parameters():
        assert parameter.grad is not None
        direction, step = torch.randn_like(parameter), 1e-6
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
                fresh = model()  # the same statistics as in the step above
                fresh.load_state_dict(dict(net.named_parameters()), strict=False)
                ends.append(objective(fresh, inside, outside, STEP)[0].item())
                parameter -= sign * step * direction
        slope = (ends[0] - ends[1]) / (2 * step)
        assert math.isclose(slope, (parameter.grad * direction).sum().item(), rel_tol=1e-5, abs_tol=1e-8)


def test_it_trains_the_recipes_classifier_with_one_class_more() -> None:
    from prood.data import ImageSet

    images = ImageSet("none", torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    net = ATOM().network({"name": "small", "width": 4, "classes": 5}, images, None)
    assert net.extended(torch.rand(3, 1, 8, 8)).shape == (3, 6)
    assert net(torch.rand(3, 1, 8, 8)).shape == (3, 5)
    with pytest.raises(NotFound):
        with_extra_class({"name": "small"})


@pytest.mark.parametrize(
    "options", [{"quantile": -0.1}, {"mined": 0.0}, {"quantile": 0.9, "mined": 0.2}, {"weight": -1.0}]
)
def test_wrong_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ProodError, match=next(iter(options))):
        ATOM(**options)  # type: ignore[arg-type]
