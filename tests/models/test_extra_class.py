"""A classifier with a class more: outputs, score, files."""

import math
from pathlib import Path

import pytest
import torch

from prood.errors import NotFound
from prood.models import Metadata, load, save, score_of
from prood.models.baselines import ExtraClass, NotExtra, with_extra_class

CLASSES = 3


def model() -> ExtraClass:
    torch.manual_seed(0)
    return with_extra_class({"name": "small", "width": 4, "classes": CLASSES}).eval()


def test_it_classifies_by_the_first_logits() -> None:
    net, images = model(), torch.rand(5, 1, 8, 8)
    assert net.extended(images).shape == (5, CLASSES + 1)
    assert torch.equal(net(images), net.extended(images)[:, :CLASSES])
    assert torch.equal(score_of(net).logits(images), net(images))  # type: ignore[arg-type]


def test_its_score_is_the_extra_class() -> None:
    net, images = model(), torch.rand(5, 1, 8, 8)
    score = score_of(net)
    assert isinstance(score, NotExtra)
    for row, value in zip(net.extended(images).tolist(), score(images).tolist(), strict=True):
        p = math.exp(row[-1]) / sum(map(math.exp, row))
        assert math.isclose(value, math.log((1 - p) / p), rel_tol=1e-5, abs_tol=1e-6)
    torch.testing.assert_close(score.quick(images), score(images))
    assert score(images).dtype == torch.float64
    assert score.upper_bound(images, 0.1).tolist() == [math.inf] * 5


def test_the_score_has_no_ties_where_the_probability_rounds() -> None:
    net, images = model(), torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        net.network[-1].bias[-1] -= 60  # type: ignore[index, union-attr]
    assert len(set(score_of(net)(images).tolist())) == 5
    assert net.extended(images).softmax(1)[:, -1].max() < 1e-20


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    net, images = model(), torch.rand(2, 1, 8, 8)
    about = save(net, tmp_path / "model.safetensors", classes=list("abc"))
    assert isinstance(about, Metadata)
    again, metadata = load(tmp_path)
    assert isinstance(again, ExtraClass)
    assert metadata.classes == ["a", "b", "c"]
    assert torch.equal(again.extended(images), net.extended(images))


def test_a_network_of_unknown_width_is_refused() -> None:
    with pytest.raises(NotFound):
        with_extra_class({"name": "small"})
