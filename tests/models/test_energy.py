import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from prood.errors import BadValue
from prood.models import load, save, score_of, small
from prood.models.baselines import Energy, EnergyClassifier


class Pixels(nn.Module):
    """Logits that are the first three pixels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :3]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_score_is_the_negative_energy(temperature: float) -> None:
    images = torch.tensor([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [300.0, 1.0, 2.0]])[:, None, None]
    score = score_of(EnergyClassifier(Pixels(), temperature))
    assert type(score) is Energy
    expected = [
        temperature * math.log(sum(math.exp(f / temperature) for f in row.flatten().tolist())) for row in images
    ]
    assert score(images).dtype == torch.float64
    torch.testing.assert_close(score(images), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
    torch.testing.assert_close(score.quick(images), score(images))
    logits = score.logits(images)
    assert logits is not None
    assert torch.equal(logits, images.flatten(1))
    assert score.upper_bound(images, 0.1).tolist() == [math.inf] * 3


def test_it_tells_apart_what_confidences_that_are_one_cannot() -> None:
    score = score_of(EnergyClassifier(Pixels()))
    images = torch.tensor([[500.0, 0.0, 0.0], [501.0, 0.0, 0.0]])[:, None, None]
    assert score(images)[1] > score(images)[0]


def test_it_is_a_classifier_and_survives_its_file(tmp_path: Path) -> None:
    model = EnergyClassifier(small(4, width=3), 1.5).eval()
    images = torch.rand(2, 1, 28, 28)
    save(model, tmp_path / "model.safetensors")
    again, about = load(tmp_path)
    assert about.architecture["name"] == "energy-classifier"
    assert isinstance(again, EnergyClassifier)
    assert again.temperature == 1.5
    assert torch.equal(again(images), model.classifier(images))
    assert torch.equal(score_of(again)(images), score_of(model)(images))


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_a_temperature_must_be_positive(wrong: float) -> None:
    with pytest.raises(BadValue):
        EnergyClassifier(Pixels(), wrong)
