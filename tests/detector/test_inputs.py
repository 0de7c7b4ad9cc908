"""Images in all their forms give the same pixels, and what has no clear meaning is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import ImageSet
from prood.data.formats.pictures import decode, fit
from prood.detector.inputs import read
from prood.errors import BadValue, Damaged, Mismatch, ProodError, Unsupported

GREY, COLOUR = (1, 6, 8), (3, 6, 8)


def all_of(images, shape, batch=4) -> torch.Tensor:
    return torch.cat(list(read(images, shape, batch=batch)))


@pytest.fixture(params=[GREY, COLOUR], ids=["grey", "colour"])
def bytes_(request) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, *request.param), dtype=np.uint8))


def pictures(images: torch.Tensor) -> list[Image.Image]:
    arrays = images.permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(array[..., 0] if array.shape[2] == 1 else array) for array in arrays]


def test_every_form_gives_the_same_pixels(bytes_, tmp_path):
    shape = tuple(bytes_.shape[1:])
    floats = bytes_.float() / 255
    files = []
    for place, picture in enumerate(pictures(bytes_)):
        files.append(tmp_path / f"{place}.png")
        picture.save(files[-1])
    forms = {
        "bytes": bytes_,
        "floats": floats,
        "double": bytes_.double() / 255,
        "array of bytes": bytes_.numpy(),
        "array of floats": floats.numpy(),
        "channels last": bytes_.permute(0, 2, 3, 1).contiguous().numpy(),
        "turned": np.flip(np.flip(bytes_.numpy(), 3).copy(), 3),  # negative strides
        "pictures": pictures(bytes_),
        "paths": files,
        "names": [str(file) for file in files],
        "a set": ImageSet("mine", bytes_),
        "mixed": [bytes_[0], floats[1].numpy(), pictures(bytes_)[2], files[3], bytes_[4].permute(1, 2, 0).numpy()],
        "batches": (bytes_[:2], floats[2:].numpy()),
    }
    for name, form in forms.items():
        found = all_of(form, shape)
        assert found.dtype == torch.float32, name
        assert torch.equal(found, floats), name
    for one in (bytes_[1], floats[1], bytes_[1].numpy(), bytes_[1].permute(1, 2, 0).numpy(), pictures(bytes_)[1]):
        assert torch.equal(all_of(one, shape), floats[1:2])


def test_batches_are_as_large_as_asked():
    assert [len(part) for part in read(torch.zeros(5, *GREY), GREY, batch=2)] == [2, 2, 1]
    assert list(read([], GREY, batch=2)) == []
    assert list(read(torch.zeros(0, *GREY), GREY, batch=2)) == []
    with pytest.raises(BadValue):
        list(read(torch.zeros(5, *GREY), GREY, batch=0))


def test_pictures_are_read_when_their_turn_comes(tmp_path):
    Image.new("L", (8, 6)).save(tmp_path / "a.png")
    parts = read([tmp_path / "a.png", tmp_path / "missing.png"], GREY, batch=1)
    assert len(next(parts)) == 1
    with pytest.raises(Damaged, match=r"missing.png"):
        next(parts)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16"])
def test_a_picture_of_another_size_and_mode_is_fitted_as_certify_does(mode, tmp_path):
    noise = np.random.default_rng(1).integers(0, 256, (31, 20, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    picture = Image.fromarray(noise[..., 0].astype(np.uint16) << 8) if mode == "I;16" else picture.convert(mode)
    assert picture.mode == mode
    file = tmp_path / f"picture.{'tiff' if mode in ('CMYK', 'YCbCr') else 'png'}"
    picture.save(file)
    for shape in (GREY, COLOUR):
        expected = fit(decode(file), shape).float()[None] / 255  # what `prood certify` reads
        assert torch.equal(all_of(file, shape), expected)
        assert torch.equal(all_of(picture, shape), expected)


def test_half_precision_is_exact_and_double_is_rounded():
    values = torch.rand(2, *GREY)
    assert torch.equal(all_of(values.half(), GREY), values.half().float())
    fine = values.double() + 1e-12
    assert torch.equal(all_of(fine, GREY), fine.float())


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (torch.zeros(2, 1, 6, 7), r"\(2, 1, 6, 7\) do not fit .* \(N, 1, 6, 8\)"),
        (torch.zeros(2, 3, 6, 8), "do not fit"),
        (torch.zeros(6, 8), "do not fit"),
        (torch.zeros(1, 2, 1, 6, 8), "do not fit"),
        (np.zeros((6, 8), np.uint8), "do not fit"),
        (np.zeros((2, 6, 8, 1), np.float32), "do not fit"),  # channels last is for bytes
        (torch.zeros(2, 6, 8, 1, dtype=torch.uint8), "do not fit"),  # and for arrays
        (np.zeros((2, 6, 8, 3), np.uint8), "do not fit"),
        (np.zeros((2, 12, 16, 1), np.uint8), "Pillow images or paths"),
        (torch.zeros(2, 1, 6, 8, dtype=torch.int64), "not torch.int64"),
        (torch.zeros(2, 1, 6, 8, dtype=torch.bool), "not torch.bool"),
        (np.zeros((2, 1, 6, 8), np.int32), "not torch.int32"),
        (np.zeros((2, 1, 6, 8), object), "not object"),
        (np.zeros((2, 1, 6, 8), complex), "not torch.complex128"),
        (torch.full((2, 1, 6, 8), 255.0), "image 0 has pixels from 255 to 255: .* divide bytes by 255"),
        (torch.cat([torch.zeros(5, 1, 6, 8), torch.full((1, 1, 6, 8), -0.01)]), "image 5 has pixels from -0.01"),
        (torch.full((1, 1, 6, 8), float("nan")), "image 0 has a pixel that is NaN"),
        (np.full((1, 1, 6, 8), np.inf), "from inf to inf"),
        (Image.new("F", (8, 6)), "Pillow image of mode F: its pixels are 32-bit numbers"),
        (Path("nowhere.png"), "cannot read the image nowhere.png"),
        (7, "not as <class 'int'>"),
        ([None], "NoneType"),
        ({"a": 1}, "has a, but none of image"),
    ],
)
def test_what_is_refused(images, said):
    with pytest.raises(ProodError, match=said):
        all_of(images, GREY)


def test_an_array_that_may_be_read_in_two_ways_is_refused():
    with pytest.raises(BadValue):
        all_of(np.zeros((2, 3, 3, 3), np.uint8), (3, 3, 3))
    assert all_of(torch.zeros(2, 3, 3, 3, dtype=torch.uint8), (3, 3, 3)).shape == (2, 3, 3, 3)
    assert all_of(np.zeros((2, 3, 3, 3), np.float32), (3, 3, 3)).shape == (2, 3, 3, 3)


def test_a_damaged_pillow_image_is_refused(tmp_path):
    file = tmp_path / "cut.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60), dtype=np.uint8)).save(file)
    file.write_bytes(file.read_bytes()[:900])
    with Image.open(file) as picture, pytest.raises(Unsupported, match="Pillow"):
        all_of(picture, GREY)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((5, 32, 30, 3), "moveaxis"),
        ((32, 30, 3), "moveaxis"),
        ((5, 1, 32, 30), "1 channels and not 3"),
        ((5, 32, 30, 1), "1 channels, last"),
        ((5, 3, 8, 8), "Pillow"),
    ],
)
def test_images_of_another_shape_get_a_hint(given, said):
    with pytest.raises(Mismatch, match=said):
        list(read(torch.rand(given), (3, 32, 30), batch=8))


def test_grey_images_without_channels_get_a_hint():
    for given in ((28, 28), (5, 28, 28)):
        with pytest.raises(Mismatch, match=r"\.\.\., None"):
            list(read(torch.rand(given), (1, 28, 28), batch=8))
