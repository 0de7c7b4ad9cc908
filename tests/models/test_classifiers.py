from pathlib import Path

import pytest
import torch
from torch import nn

from prood.bounds import Box, interval
from prood.models import load, save, small
from prood.models.classifiers import compact, resnet18, resnet50


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_resnet18_is_the_cifar_one() -> None:
    with torch.device("meta"):
        model = resnet18()
        assert model(torch.empty(2, 3, 32, 32)).shape == (2, 10)
        features = model[:-3](torch.empty(2, 3, 32, 32))
        assert resnet18(100)(torch.empty(1, 3, 32, 32)).shape == (1, 100)
    assert parameters(model) == 11_173_962
    assert features.shape == (2, 512, 4, 4)  # the stem neither strides nor pools


def test_compact_is_resnet18_cut_short() -> None:
    with torch.device("meta"):
        model, whole = compact(), resnet18()
        assert model(torch.empty(2, 3, 32, 32)).shape == (2, 10)
        features = model[:-3](torch.empty(2, 3, 32, 32))
        hundred = compact(100)
    assert features.shape == (2, 256, 8, 8)
    assert parameters(model) == 3_147_082
    assert parameters(hundred) == 3_147_082 + 90 * 257
    assert repr(model[1:6]) == repr(whole[1:6])
    assert len(model) == 4 + 3 + 3 + 2 + 3


def test_compact_can_be_saved(tmp_path: Path) -> None:
    model = compact(7, mean=[0.5], std=[0.2]).eval()
    save(model, tmp_path / "model.safetensors")
    images = torch.rand(1, 1, 8, 8)
    assert torch.equal(load(tmp_path)[0](images), model(images))


@pytest.mark.slow
def test_resnet50_is_the_standard_one() -> None:
    with torch.device("meta"):
        model = resnet50()
        assert model(torch.empty(1, 3, 224, 224)).shape == (1, 1000)
        features = model[:-3](torch.empty(1, 3, 224, 224))
        assert parameters(resnet50(10)) == 25_557_032 - 990 * 2049
    assert parameters(model) == 25_557_032
    assert features.shape == (1, 2048, 7, 7)


@pytest.mark.parametrize(("classes", "mean", "shape"), [(10, (0.5,), (1, 28, 28)), (3, (0.5, 0.5, 0.5), (3, 32, 20))])
def test_small(classes: int, mean: tuple[float, ...], shape: tuple[int, ...]) -> None:
    model = small(classes, width=4, mean=mean, std=[0.25] * len(mean)).eval()
    logits = model(torch.rand(2, *shape))
    assert logits.shape == (2, classes)
    assert logits.isfinite().all()


def test_grey_images_need_only_another_mean() -> None:
    with torch.device("meta"):
        assert resnet18(mean=[0.5], std=[0.25])(torch.empty(2, 1, 28, 28)).shape == (2, 10)


def test_a_fresh_resnet_keeps_the_scale_of_its_input() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        logits = resnet18().train()(torch.rand(8, 3, 32, 32))
    assert logits.isfinite().all()
    assert 0.01 < logits.std() < 10


def test_classifiers_are_made_of_layers_that_have_bounds() -> None:
    torch.manual_seed(0)
    model = small(width=2).eval()
    images = torch.rand(2, 1, 28, 28)
    box = interval(model, Box.ball(images, 0.01))
    logits = model(images)
    assert (box.lower <= logits).all()
    assert (logits <= box.upper).all()
    with torch.device("meta"):
        box = interval(resnet18().eval(), Box(torch.empty(2, 3, 32, 32), torch.empty(2, 3, 32, 32)))
    assert box.radius.shape == (2, 10)
