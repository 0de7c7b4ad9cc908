"""A score whose search is compiled is the same score, and needs few sizes."""

import threading

import pytest
import torch
from torch import nn

from prood.attacks import APGD, PGD, Compiled, Ensemble, Square
from prood.attacks import passes as module
from prood.attacks.passes import Passes
from prood.errors import Unsupported
from prood.models import Score, score_of


class Weighted(nn.Module):
    """Of one layer without kinks, so that slopes do not hang on rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 1)


class Smooth(Score):
    model: Weighted

    def __call__(self, images):
        return self.model.layer(images.flatten(1)).squeeze(1).double().tanh()

    def upper_bound(self, images, eps, **options):
        return torch.ones(len(images), dtype=torch.float64)


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
def test_what_is_compiled_has_the_same_values_and_slopes_at_any_number_of_points(monkeypatch):
    monkeypatch.setattr(module, "SIZES", (4, 8))
    torch.manual_seed(0)
    score = Smooth(Weighted())
    compiled, plain = Passes(Compiled(score, backend="aot_eager"), rows=100), Passes(score, rows=100)
    for count in (1, 4, 7, 8, 21):
        points = torch.rand(count, 3, 2, 2)
        values, slopes = compiled.values_and_gradients(points)
        expected = plain.values_and_gradients(points)
        assert torch.allclose(values, expected[0])
        assert torch.allclose(slopes, expected[1], atol=1e-6)
        assert torch.allclose(compiled.values(points), expected[0])


def test_few_sizes_are_compiled(monkeypatch):
    monkeypatch.setattr(module, "SIZES", (4, 8))
    seen = []

    def backend(graph, inputs):
        seen.append(max(len(one) for one in inputs if one.ndim == 4))
        return graph.forward

    score = Compiled(Smooth(Weighted()), backend=backend)
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 20):
        with torch.no_grad():
            assert score.quick(torch.rand(count, 3, 2, 2)).shape == (count,)
    assert sorted(seen) == [4, 8]


@pytest.mark.slow
def test_all_but_the_search_is_the_score_itself(joint):
    score = score_of(joint())
    compiled, images = Compiled(score, backend="eager"), torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(compiled(images), score(images))
        assert torch.equal(compiled.logits(images), score.logits(images))
        assert torch.equal(compiled.upper_bound(images, 0.01), score.upper_bound(images, 0.01))
        bound = compiled.part().upper_bound(images, 0.01)
        assert torch.equal(compiled.bound_from(bound), score.bound_from(bound))
    assert compiled.model is score.model
    assert all(parameter.requires_grad for parameter in score.model.classifier.parameters())


def test_what_cannot_be_compiled_is_said():
    def backend(graph, inputs):
        raise ValueError("no compiler here")

    with pytest.raises(Unsupported, match="--compile"):
        Compiled(Smooth(Weighted()), backend=backend).quick(torch.rand(2, 3, 2, 2))
    score = Smooth(Weighted())
    score.session = threading.Lock()
    with pytest.raises(Unsupported, match="--compile"):
        Compiled(score)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="attacks are compiled on a GPU only")
def test_a_compiled_attack_finds_as_much_and_only_scores_that_the_model_has(joint):
    score, images = score_of(joint().cuda()), torch.rand(12, 3, 32, 32, device="cuda")
    attack = Ensemble((PGD(steps=20), APGD(iterations=20, restarts=2), Square(queries=40)))
    plain, compiled = attack(score, images, 0.05), attack(Compiled(score), images, 0.05)
    with torch.no_grad():
        assert torch.allclose(compiled.scores, score(compiled.images), atol=1e-4)
        assert (compiled.scores <= score.upper_bound(images, 0.05)).all()
    assert (compiled.scores - plain.scores).abs().mean() < 0.1 * (plain.scores - plain.clean).abs().mean()
