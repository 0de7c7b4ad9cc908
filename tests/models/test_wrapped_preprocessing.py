"""What a classifier is shown is what its own pipeline would show it."""

import numpy as np
import pytest
import torch
from PIL import Image

from prood.errors import BadValue, Damaged, Mismatch, ProodError, UnknownName
from prood.models.wrapped import INTERPOLATIONS, Preprocessing
from prood.models.wrapped.packages import hf_preprocessing

PILLOW = {name: Image.Resampling[name.upper()] for name in INTERPOLATIONS}


def photograph(height: int, width: int, channels: int = 3) -> np.ndarray:
    """Bytes with edges and ramps, (H, W, C)."""
    y, x = np.mgrid[:height, :width]
    planes = [(x * 255 // width), (y * 255 // height), ((x // 5 + y // 7) % 2) * 255]
    return np.stack(planes[:channels], -1).astype(np.uint8)


def floats(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.copy()).permute(2, 0, 1)[None].float() / 255


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("height", "width"), [(64, 64), (20, 20), (48, 80)])
def test_resizing_and_cutting_are_pillows(interpolation, height, width):
    array = photograph(height, width)
    prepares = Preprocessing((3, 28, 28), resize=32, interpolation=interpolation)
    short = min(height, width)
    size = (32 * width // short, 32 * height // short)
    resized = np.asarray(Image.fromarray(array).resize(size, PILLOW[interpolation]))
    top, left = round((resized.shape[0] - 28) / 2), round((resized.shape[1] - 28) / 2)
    expected = floats(resized[top : top + 28, left : left + 28].copy())
    found = prepares.fitted(floats(array))
    assert found.shape == (1, 3, 28, 28)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found - expected).abs().max() <= 1.5 / 255  # Pillow rounds to bytes, after each of the two directions


def test_without_a_resize_the_image_is_stretched():
    array = photograph(40, 60)
    expected = floats(np.asarray(Image.fromarray(array).resize((28, 20), Image.Resampling.BILINEAR)))
    assert (Preprocessing((3, 20, 28)).fitted(floats(array)) - expected).abs().max() <= 1.5 / 255
    assert Preprocessing((3, 20, 28), resize=(30, 30)).fitted(floats(array)).shape == (1, 3, 20, 28)


def test_an_image_of_the_right_size_is_left_alone():
    images = torch.rand(2, 3, 28, 28)
    assert torch.equal(Preprocessing((3, 28, 28), resize=28).fitted(images), images)
    assert torch.equal(Preprocessing((3, 28, 28)).fitted(images), images)


def test_grey_and_colour():
    array = photograph(28, 28)
    grey = np.asarray(Image.fromarray(array).convert("L"))[..., None]
    found = Preprocessing((1, 28, 28)).fitted(floats(array))
    assert (found - floats(grey.copy())).abs().max() <= 1 / 255
    coloured = Preprocessing((3, 28, 28)).fitted(floats(grey.copy()))
    assert torch.equal(coloured, floats(grey.copy()).repeat(1, 3, 1, 1))
    with pytest.raises(Mismatch):
        Preprocessing((3, 28, 28)).fitted(torch.rand(1, 4, 28, 28))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": (4, 8, 8)}, "grey or colour"),
        ({"image": (3, 0, 8)}, "grey or colour"),
        ({"image": (3, 8, 8), "interpolation": "lanczos"}, "bilinear, bicubic, nearest"),
        ({"image": (3, 8, 8), "mean": (0.1, 0.2)}, "mean has 2 numbers"),
        ({"image": (3, 8, 8), "std": (0.0,)}, "every std is positive"),
        ({"image": (3, 8, 8), "std": (float("nan"),)}, "every std is positive"),
        ({"image": (3, 8, 8), "std": (float("inf"),)}, "every std is a finite number"),
        ({"image": (3, 8, 8), "std": (1e39,)}, "every std is a finite number"),  # infinite in float32
        ({"image": (3, 8, 8), "mean": (float("nan"), 0.5, 0.5)}, "every mean is a finite number"),
        ({"image": (3, 8, 8), "mean": (-float("inf"),)}, "every mean is a finite number"),
        ({"image": (3, 8, 8), "resize": 0}, "one pixel at least"),
    ],
)
def test_nonsense_is_refused(values, said):
    with pytest.raises(ProodError, match=said):
        Preprocessing(**values)


def test_what_is_cut_must_be_there():
    with pytest.raises(BadValue, match="28×28"):
        Preprocessing((3, 28, 28), resize=20).fitted(torch.rand(1, 3, 40, 40))


def test_it_survives_json():
    import json

    prepares = Preprocessing((3, 224, 200), (256, 230), "bicubic", (0.485, 0.456, 0.406), (0.1, 0.2, 0.3))
    assert Preprocessing.of(json.loads(json.dumps(prepares.spec()))) == prepares
    for wrong in ({"image": [3, 8]}, {"image": [3, 8, 8], "colour": 1}, {}):
        with pytest.raises(Damaged):
            Preprocessing.of(wrong)


def test_it_says_what_it_does():
    assert str(Preprocessing((3, 8, 8))) == "3×8×8, bilinear, pixels in [0, 1]"
    assert str(Preprocessing((1, 8, 8), 9, "bicubic", (0.5,), (0.25,))) == (
        "1×8×8, cut from 9, bicubic, mean 0.5, std 0.25"
    )


# preprocessor_config.json as transformers' processors read it

NORMAL = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}


@pytest.mark.parametrize(
    ("facts", "image", "resize"),
    [
        ({"size": {"height": 32, "width": 48}}, (3, 32, 48), (32, 48)),  # ViT
        ({"size": 32}, (3, 32, 32), 32),  # as older files have it
        ({"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32}, (3, 32, 32), 40),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (3, 224, 224), 256),  # ConvNeXT
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, (3, 384, 384), (384, 384)),
        ({"size": {"shortest_edge": 90}, "crop_pct": 0.9, "do_center_crop": True, "crop_size": 80}, (3, 80, 80), 100),
        ({"do_resize": False, "size": 64}, (3, 16, 16), None),
        ({"do_resize": False, "do_center_crop": True, "crop_size": [8, 9]}, (3, 8, 9), None),
    ],
)
def test_sizes_of_hugging_face(facts, image, resize):
    found = hf_preprocessing(facts | NORMAL, 3, 16)
    assert (found.image, found.resize) == (image, resize)
    assert (found.mean, found.std) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))


def test_numbers_of_hugging_face():
    images = torch.rand(1, 3, 8, 8)

    def shown(**facts) -> torch.Tensor:
        found = hf_preprocessing({"size": 8, **NORMAL, **facts}, 3, 8)
        mean, std = torch.tensor(found.mean).view(-1, 1, 1), torch.tensor(found.std).view(-1, 1, 1)
        return (found.fitted(images) - mean) / std

    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(-1, 1, 1), torch.tensor([0.2, 0.2, 0.1]).view(-1, 1, 1)
    assert torch.allclose(shown(), (images - mean) / std, atol=1e-6)
    assert torch.allclose(shown(do_normalize=False), images)
    # EfficientNet's: bytes become −1 … 1 first.
    moved = shown(rescale_factor=1 / 127.5, rescale_offset=True)
    assert torch.allclose(moved, (images * 255 / 127.5 - 1 - mean) / std, atol=1e-5)
    assert torch.allclose(shown(do_rescale=False), (images * 255 - mean) / std, rtol=1e-5)
    assert hf_preprocessing({"size": 8, "resample": 3}, 3, 8).interpolation == "bicubic"
    with pytest.raises(UnknownName):
        hf_preprocessing({"size": 8, "resample": 1}, 3, 8)
