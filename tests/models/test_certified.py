"""A classifier with bounds of its own confidence: against brute force, simulated hardware and its own values."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Box, Normalise, NotCovered, interval
from prood.errors import ProodError, UnknownName, Unsupported
from prood.models import load, save, score_of
from prood.models.certified import (
    CertifiedClassifier,
    CertifiedConfidence,
    certified_classifier,
    confidence_logit_bound,
)
from prood.models.joint import confidence_logit

METHODS = ("ibp", "crown-ibp", "best")


def network(seed: int = 0, classes: int = 4) -> CertifiedClassifier:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 10), nn.ReLU()]
    model = CertifiedClassifier(nn.Sequential(Normalise([0.5], [0.25]), *layers, nn.Linear(10, classes)))
    with torch.no_grad():
        model.last.weight.mul_(4)
    return model.eval()


def in_ball(images: Tensor, eps: float, count: int = 400) -> Tensor:
    """Corners and random points of each ball, shape (count·N, …), those of one point after the other."""
    place = torch.rand(count, *images.shape) * 2 - 1
    place[: count // 2] = place[: count // 2].sign()
    place[0] = 0
    return (images + eps * place).clamp(0, 1)


def linear(classes: int = 3, pixels: int = 4) -> CertifiedClassifier:
    torch.manual_seed(5)
    return CertifiedClassifier(nn.Sequential(nn.Flatten(), nn.Linear(pixels, classes))).eval()


@pytest.mark.parametrize("method", METHODS)
def test_differences_of_a_linear_classifier_are_exact(method: Any) -> None:
    """(w_k − w_l)·x over a box is largest at a corner; merged with the last layer, nothing is lost."""
    model, eps = linear(), 0.2
    images = torch.tensor([0.1, 0.5, 0.95, 0.3]).reshape(1, 1, 2, 2)
    corners = torch.tensor([[bool(n & 1 << i) for i in range(4)] for n in range(16)])
    ends = [(images.flatten() + sign * eps).clamp(0, 1) for sign in (-1, 1)]
    logits = model(torch.where(corners, ends[1], ends[0]).reshape(16, 1, 2, 2)).double()
    largest = (logits[:, :, None] - logits[:, None]).amax(0)
    found, size = model.difference_bounds(images, eps, method=method)
    torch.testing.assert_close(found[0], largest, rtol=0, atol=2e-6)
    assert (found[0] >= largest).all()
    assert size >= logits.abs().max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("eps", [0.0, 0.02, 0.1])
def test_no_point_of_the_ball_exceeds_the_bounds(method: Any, eps: float) -> None:
    for seed in range(4):
        model, images = network(seed), torch.rand(5, 1, 4, 4)
        points = in_ball(images, eps)
        logits = model(points.flatten(0, 1)).double().reshape(400, 5, -1)
        differences = (logits[..., :, None] - logits[..., None, :]).amax(0)
        found, _ = model.difference_bounds(images, eps, method=method)
        assert (differences <= found).all()
        score = score_of(model)
        assert type(score) is CertifiedConfidence
        scores = score(points.flatten(0, 1)).reshape(400, 5).amax(0)
        bound = score.upper_bound(images, eps, method=method)
        assert (scores <= bound).all()
        confidences = logits.softmax(2).amax(2).amax(0)
        assert (confidences <= model.upper_bound(images, eps, method=method)).all()
        if eps == 0:  # what is left is rounding
            torch.testing.assert_close(bound, scores, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(model.upper_bound(images, eps, method=method), confidences, rtol=1e-4, atol=0)


def test_the_bound_is_the_formula_of_the_paper() -> None:
    """max_k 1/(1 + Σ_{l≠k} exp(−D_kl)), written out, and on the logit's scale."""
    torch.manual_seed(2)
    differences = torch.rand(6, 4, 4, dtype=torch.float64) * 5 - 1
    differences.diagonal(dim1=1, dim2=2).zero_()
    differences = torch.maximum(differences, -differences.transpose(1, 2) + 0.1)  # as bounds of some f are
    differences.diagonal(dim1=1, dim2=2).zero_()
    for row, found in zip(differences.tolist(), confidence_logit_bound(differences, torch.ones(6)), strict=True):
        sums = [sum(math.exp(-row[k][m]) for m in range(4) if m != k) for k in range(4)]
        confidence = max(1 / (1 + total) for total in sums)
        assert math.isclose(found.item(), math.log((confidence - 1 / 4) / (1 - confidence)), rel_tol=1e-9)


def test_the_bound_of_exact_differences_is_the_score() -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 5) * torch.logspace(-6, 3, 50)[:, None]
    exact = logits.double()[:, :, None] - logits.double()[:, None]
    bound = confidence_logit_bound(exact, logits.double().abs().amax(1))
    assert (bound >= confidence_logit(logits)).all()
    torch.testing.assert_close(bound, confidence_logit(logits), rtol=1e-9, atol=1e-9)


def test_equal_logits_and_endless_differences() -> None:
    same = torch.zeros(1, 3, 3, dtype=torch.float64)
    assert confidence_logit_bound(same, torch.ones(1)) >= confidence_logit(torch.ones(1, 3))
    endless = torch.where(torch.eye(3, dtype=torch.bool), 0, torch.inf).double()[None]
    assert confidence_logit_bound(endless, torch.ones(1)) == math.inf
    assert confidence_logit_bound(endless, torch.full((1,), math.nan)) == math.inf


def test_planes_beat_intervals_and_both_at_once_is_best() -> None:
    model = network(1)
    torch.manual_seed(9)
    images = torch.rand(6, 1, 4, 4)
    ibp, crown, best = (model.difference_bounds(images, 0.3, method=method)[0] for method in METHODS)
    assert (crown < ibp).any()
    assert (ibp < crown).any()
    torch.testing.assert_close(best, torch.minimum(ibp, crown), rtol=1e-4, atol=0)  # "ibp" alone rounds otherwise
    tighter, _ = model.difference_bounds(images, 0.3, method="alpha-crown")
    assert torch.equal(tighter, best)


def test_training_bounds_with_what_is_certified() -> None:
    model, images = network(), torch.rand(3, 1, 4, 4)
    found = model.differences(interval(model.body, Box.ball(images, 0.1)))
    certified, _ = model.difference_bounds(images, 0.1, method="ibp")
    plain, _ = model.difference_bounds(images, 0.1, method="ibp", arithmetic="plain")
    torch.testing.assert_close(found.double(), certified, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.double(), plain, rtol=1e-5, atol=1e-5)
    assert (certified >= found.double() - 1e-9)[:, ~torch.eye(4, dtype=torch.bool)].all()


@pytest.fixture(scope="module")
def simulator() -> ModuleType:
    file = Path(__file__).parents[1] / "bounds" / "simulator.py"
    spec = importlib.util.spec_from_file_location("simulator", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulator"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("eps", [0.0, 2.0**-24, 0.01])
def test_no_hardware_exceeds_the_bounds(simulator: ModuleType, eps: float) -> None:
    """f_k and f_l are rounded each by itself, in any order: with large cancelling weights that shows."""
    closest = np.inf
    for seed in range(6):
        model, rng = network(seed), np.random.default_rng(seed)
        with torch.no_grad():
            model.last.weight[:, 1::2] = -model.last.weight[:, ::2] * (1 + 2.0**-20)
            model.last.weight.mul_(1000)
        images = torch.rand(3, 1, 4, 4)
        points = np.stack([simulator.points_of(x.numpy(), eps, rng, 3) for x in images])
        rows = points.reshape(-1, 1, 4, 4)
        found, _ = model.difference_bounds(images, eps)
        net = nn.Sequential(model.body, model.last)
        for hardware in simulator.kinds(rng, 6):
            logits = np.asarray(hardware.run(net, rows), np.float64).reshape(3, -1, 4)
            gaps = found.numpy()[:, None] - (logits[..., :, None] - logits[..., None, :])
            gaps = gaps[..., ~np.eye(4, dtype=bool)]
            assert (gaps >= 0).all()
            closest = min(closest, gaps.min())
    assert closest < 0.5 if eps < 0.01 else closest < np.inf  # of logits in the thousands


def test_what_is_not_covered_is_refused() -> None:
    with pytest.raises(NotCovered, match=r"torch.float64"):
        network().double().difference_bounds(torch.rand(1, 1, 4, 4), 0.1)
    with pytest.raises(Unsupported, match=r"nn.Linear"):
        CertifiedClassifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU()))


@pytest.mark.parametrize(
    "wrong", [{"eps": -0.1}, {"eps": math.nan}, {"method": "foo"}, {"norm": "l7"}, {"arithmetic": "Sound"}]
)
def test_options_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProodError, match=r"eps is a radius|unknown"):
        network().difference_bounds(torch.rand(2, 1, 4, 4), **({"eps": 0.1} | wrong))


def test_an_overflow_leaves_no_bound() -> None:
    model = network()
    with torch.no_grad():
        model.last.weight.fill_(3e38)
    assert score_of(model).upper_bound(torch.rand(2, 1, 4, 4), 0.1).tolist() == [math.inf] * 2
    assert model.upper_bound(torch.rand(2, 1, 4, 4), 0.1).tolist() == [1.0] * 2


def test_the_sizes() -> None:
    model = certified_classifier(10)
    shapes = [tuple(layer.weight.shape) for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert shapes == [(512, 65536), (512, 512), (10, 512)]  # the notes: FC 65536→512→512→K
    assert sum(isinstance(layer, nn.Conv2d) for layer in model.modules()) == 5
    with pytest.raises(UnknownName, match="'XXL'"):
        certified_classifier(10, "XXL")


def test_it_survives_its_file(tmp_path: Path) -> None:
    model = certified_classifier(3, "digits", image=(1, 8, 8)).eval()
    save(model, tmp_path / "model.safetensors")
    again, _ = load(tmp_path)
    images = torch.rand(2, 1, 8, 8)
    assert isinstance(again, CertifiedClassifier)
    assert torch.equal(score_of(again)(images), score_of(model)(images))
    assert torch.equal(score_of(again).upper_bound(images, 0.1), score_of(model).upper_bound(images, 0.1))


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e30])
def test_logits_that_are_far_apart_have_a_confidence_of_one_and_not_nan(factor: float) -> None:
    model, x = network(), torch.rand(3, 1, 4, 4)
    with torch.no_grad():
        model.last.weight.mul_(factor)
    assert model.upper_bound(x, 0.1).tolist() == [1.0] * 3
