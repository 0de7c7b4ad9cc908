import pickle

import pytest
import torch

from prood.data import ImageSet, load, made_outliers, open_set
from prood.data.made import KINDS, PATTERNS
from prood.errors import BadValue, UnknownName


@pytest.fixture(scope="module")
def inside() -> ImageSet:
    """Smooth images with an object: a bright square on a ramp."""
    ramp = torch.linspace(0, 120, 24).expand(30, 3, 20, 24).clone()
    for number, image in enumerate(ramp):
        image[:, 4 : 10 + number % 5, 5:12] = 250 - number
    return ImageSet("squares", ramp.to(torch.uint8))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 15, 22), (1, 4, 5)])
def test_a_small_set_is_the_beginning_of_a_bigger_one_at_any_shape(shape: tuple[int, int, int]) -> None:
    small, big = made_outliers(shape, 12, seed=3).load(), made_outliers(shape, 30, seed=3)
    assert small.shape == shape
    assert torch.equal(small.images, big.take(range(12)))
    assert torch.equal(big.load().images, pickle.loads(pickle.dumps(big)).take(range(30)))
    assert not torch.equal(small.images, made_outliers(shape, 12, seed=4).load().images)
    assert len(torch.unique(big.load().images.flatten(1), dim=0)) == 30


def test_each_kind_comes_in_turn_and_patterns_have_contrast(inside: ImageSet) -> None:
    for kind in KINDS:
        images = made_outliers(inside, 20, 0, [kind]).load().images
        assert images.shape == (20, 3, 20, 24)
        spread = images.flatten(1).float().std(1)
        assert (spread > 2).float().mean() > 0.9, kind
    together = made_outliers(inside, 14, 0)
    rescaled = made_outliers(inside, 14, 0, ["rescaled"])
    assert together.reader.kinds == KINDS
    assert rescaled.fingerprint() != together.fingerprint() != made_outliers(inside.select([0]), 14, 0).fingerprint()


def test_shuffled_pieces_are_the_pixels_of_an_image_in_other_places(inside: ImageSet) -> None:
    images = made_outliers(inside, 25, 0, ["shuffled"]).load().images
    known = {tuple(image.flatten(1).sort(1).values.flatten().tolist()) for image in inside.images}
    for image in images:
        assert tuple(image.flatten(1).sort(1).values.flatten().tolist()) in known
        assert not (inside.images == image).flatten(1).all(1).any()


def test_without_images_nothing_is_made_of_them() -> None:
    assert made_outliers((3, 8, 8), 4, 0).reader.kinds == (*PATTERNS, "noise")
    with pytest.raises(BadValue, match="at least 1"):
        made_outliers((3, 8, 8), 4, 0, ["shuffled"])


def test_the_name_says_how_many(inside: ImageSet) -> None:
    images = open_set("made:17", like=inside, seed=5)
    assert (len(images), images.shape) == (17, inside.shape)
    assert torch.equal(images.load().images, made_outliers(inside, 17, 5).load().images)
    assert len(load("smooth:6", shape=(1, 8, 8))) == 6
    assert len(load("made", shape=(1, 8, 8), count=11)) == 11
    for name in ("made:", "made:train", "uniform:-3"):
        with pytest.raises(UnknownName, match="COUNT"):
            load(name, like=inside)
    with pytest.raises(BadValue, match="like="):
        load("made:5")


def test_what_cannot_be_made_is_refused() -> None:
    wrong = ((3, 8, 8), 0, KINDS), ((2, 8, 8), 5, KINDS), ((3, 2, 8), 5, KINDS), ((3, 8, 8), 5, ())
    for shape, count, kinds in wrong:
        with pytest.raises(BadValue):
            made_outliers(shape, count, 0, kinds)
    with pytest.raises(BadValue, match=r"'cats'.*gratings"):
        made_outliers((3, 8, 8), 5, 0, ["cats"])
