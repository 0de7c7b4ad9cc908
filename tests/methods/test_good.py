import math

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Normalise
from prood.errors import BadValue, Unsupported
from prood.methods import GOOD, Batch, Step
from prood.models.certified import CertifiedClassifier

EPS = 0.0625
CLASSES = 3


def at(epoch: float) -> Step:
    return Step(torch.tensor(epoch, dtype=torch.float64))


def network() -> CertifiedClassifier:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, CLASSES)]
    model = CertifiedClassifier(nn.Sequential(Normalise([0.5], [0.25]), *layers)).double()
    with torch.no_grad():
        model.last.weight.mul_(3)
    return model


def batches() -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, 10, 1, 4, 4, dtype=torch.float64)
    z[0] = z[0].round()
    z[1:] *= torch.linspace(0.1, 1, 9, dtype=torch.float64)[:, None, None, None]
    return Batch(x, torch.arange(10) % CLASSES), Batch(z)


def naive_range(model: CertifiedClassifier, image: Tensor, eps: float) -> float:
    """max over k, l of the interval bound of f_k − f_l: ends, positive and negative weights apart, a pair at a time."""
    low, high = (image - eps).clamp(0, 1)[None], (image + eps).clamp(0, 1)[None]
    for layer in model.body:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            plus, minus = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            product = nn.functional.conv2d if isinstance(layer, nn.Conv2d) else nn.functional.linear
            low, high = (
                product(low, plus, layer.bias) + product(high, minus),
                product(high, plus, layer.bias) + product(low, minus),
            )
        else:
            low, high = layer(low), layer(high)
    ranges = []
    for k in range(CLASSES):
        for other in range(CLASSES):
            row = model.last.weight[k] - model.last.weight[other]
            shift = model.last.bias[k] - model.last.bias[other]
            ranges.append((row.clamp(min=0) @ high[0] + row.clamp(max=0) @ low[0] + shift).item())
    return max(ranges)


def direct(
    model: CertifiedClassifier, inside: Batch, outside: Batch, eps: float, quantile: float
) -> tuple[float, float]:
    """The paper's loss, image by image: cross-entropy, and the term of the out-distribution."""
    logits = model(inside.images)
    entropy = [-math.log(row.softmax(0)[y].item()) for row, y in zip(logits, inside.targets, strict=True)]
    bounds = [naive_range(model, image, eps) for image in outside.images]
    clean = [naive_range(model, image, 0.0) for image in outside.images]
    order = sorted(range(len(bounds)), key=bounds.__getitem__)
    chosen = set(order[: math.floor(quantile * len(bounds))])
    used = [bounds[i] if i in chosen else clean[i] for i in range(len(bounds))]
    return sum(entropy) / len(entropy), sum(math.log(r * r / 2 + 1) for r in used) / len(used)


@pytest.mark.parametrize("quantile", [1.0, 0.8, 0.35, 0.0])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_the_loss_is_the_formula(quantile: float, weight: float) -> None:
    model, (inside, outside) = network(), batches()
    loss, logs = GOOD(eps=EPS, quantile=quantile, weight=weight)(model, inside, outside, at(0))
    loss_in, loss_out = direct(model, inside, outside, EPS, quantile)
    assert math.isclose(loss.item(), loss_in + weight * loss_out, rel_tol=1e-10)
    assert math.isclose(logs["loss_out"].item(), loss_out, rel_tol=1e-10)
    bounds = [naive_range(model, image, EPS) for image in outside.images]
    assert math.isclose(logs["range_out_bound"].item(), sum(bounds) / len(bounds), rel_tol=1e-10)


@pytest.mark.parametrize(("epoch", "eps", "kappa"), [(0.0, 0.0, 0.0), (1.0, EPS / 4, 0.5), (8.0, EPS, 1.0)])
def test_both_ramps(epoch: float, eps: float, kappa: float) -> None:
    model, (inside, outside) = network(), batches()
    objective = GOOD(eps=EPS, quantile=0.8, eps_ramp=4, kappa_ramp=2)
    loss, logs = objective(model, inside, outside, at(epoch))
    loss_in, loss_out = direct(model, inside, outside, eps, 0.8)
    assert logs["eps"].item() == eps
    assert math.isclose(loss.item(), loss_in + kappa * loss_out, rel_tol=1e-10)


def test_the_gradient_is_that_of_finite_differences(check_gradient) -> None:
    model, (inside, outside) = network(), batches()
    objective = GOOD(eps=EPS, quantile=0.7)
    torch.manual_seed(3)
    check_gradient(model, lambda: objective(model, inside, outside, at(0))[0], step=1e-7, rel_tol=1e-4, abs_tol=1e-7)


def test_a_constant_classifier_is_diagnosed() -> None:
    model, (inside, outside) = network(), batches()
    nn.init.zeros_(model.last.weight)
    nn.init.zeros_(model.last.bias)
    _, logs = GOOD(eps=EPS)(model, inside, outside, at(0))
    complaint = GOOD().diagnose({name: value.item() for name, value in logs.items()})
    assert complaint is not None
    assert "gone constant" in complaint
    _, logs = GOOD(eps=EPS)(network(), inside, outside, at(0))
    assert GOOD().diagnose({name: value.item() for name, value in logs.items()}) is None


def test_options_and_networks_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadValue, match=r"1.2"):
        GOOD(quantile=1.2)
    with pytest.raises(BadValue, match=r"-0.1"):
        GOOD(eps=-0.1)
    with pytest.raises(Unsupported, match=r"'small'.*'certified-classifier'.*\[networks.good\]"):
        GOOD().network({"name": "small", "classes": 3}, None, None)  # type: ignore[arg-type]
