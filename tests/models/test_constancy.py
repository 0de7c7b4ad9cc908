import pytest
import torch
from torch import nn

from prood.models import Discriminator, ProoD, discriminator, small
from prood.models.constancy import constant, patterns


def dead(size: str = "digits", image: tuple[int, int, int] = (1, 8, 8)) -> Discriminator:
    g = discriminator(size, image=image)
    nn.init.constant_(g.body[-1].bias, -1e3)
    return g


@pytest.mark.parametrize(("size", "image"), [("digits", (1, 28, 28)), ("digits", (1, 8, 8)), ("XS", (3, 32, 32))])
@pytest.mark.parametrize("seed", range(3))
def test_an_untrained_discriminator_is_not_constant(size: str, image: tuple[int, int, int], seed: int) -> None:
    torch.manual_seed(seed)
    assert constant(discriminator(size, image=image)) is None


def test_one_whose_hidden_units_sleep_is_alone_and_in_a_joint_model() -> None:
    for model in (dead(), ProoD(small(4), dead()), dead().with_far_penalty()):
        found = constant(model)
        assert found is not None
        assert "constant" in found
        assert "eps_ramp" in found


def test_one_that_is_alive_and_says_the_same_about_every_image_is() -> None:
    g = discriminator("digits", image=(1, 8, 8))
    with torch.no_grad():
        g.body[-1].weight.zero_()
        g.body[-1].bias.fill_(3.0)
    assert constant(g) is not None


def test_a_classifier_is_none_and_a_discriminator_of_unknown_images_is_not_asked() -> None:
    assert constant(small(4)) is None
    assert constant(Discriminator(nn.Sequential(*dead().body, *dead().tail))) is None


def test_the_patterns_are_images_and_the_same_each_time() -> None:
    images = patterns((3, 20, 30))
    assert images.shape == (28, 3, 20, 30)
    assert 0 <= images.min() <= images.max() <= 1
    assert torch.equal(images, patterns((3, 20, 30)))
