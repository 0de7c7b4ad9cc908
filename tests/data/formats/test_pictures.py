import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from prood.data.formats.pictures import BILINEAR, MIXED, DamagedPicture, crop, decode, fit, own_shape
from prood.errors import Damaged, Mismatch, ProodError

NOISE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
COLOUR = Image.fromarray(NOISE)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pixels(image: Image.Image) -> torch.Tensor:
    """What Pillow itself says, as (C, H, W)."""
    array = torch.from_numpy(np.array(image))
    return array[None] if array.ndim == 2 else array.permute(2, 0, 1)


@pytest.mark.parametrize(
    ("size", "shape", "box"),
    [
        ((60, 40), (3, 32, 32), (10, 0, 50, 40)),
        ((40, 60), (3, 32, 32), (0, 10, 40, 50)),
        ((60, 40), (3, 16, 32), (0, 5, 60, 35)),
        ((60, 40), (3, 32, 16), (20, 0, 40, 40)),
        ((8, 8), (3, 32, 32), (0, 0, 8, 8)),
        ((1, 50), (3, 4, 4), (0, 24, 1, 25)),
        ((41, 32), (3, 32, 32), (4, 0, 36, 32)),
    ],
)
@pytest.mark.parametrize("how", MIXED)
def test_fit_is_the_centre_resized_by_pillow(size: tuple, shape: tuple, box: tuple, how: Image.Resampling) -> None:
    image = COLOUR.resize(size)
    fitted = fit(image, shape, how)
    assert fitted.dtype == torch.uint8
    assert fitted.is_contiguous()
    assert torch.equal(fitted, pixels(image.resize((shape[2], shape[1]), how, box=box)))


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 40), st.integers(1, 40))
def test_fit_keeps_the_aspect_to_a_pixel_and_stays_inside(width: int, height: int, across: int, down: int) -> None:
    from prood.data.formats.pictures import _centre

    left, top, right, bottom = _centre((width, height), across, down)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert (left, right) == (0, width) or (top, bottom) == (0, height)
    assert abs(left - (width - right)) <= 1
    assert abs(top - (height - bottom)) <= 1
    wide, high = right - left, bottom - top
    assert abs(wide - high * across / down) <= 1 or abs(high - wide * down / across) <= 1


@pytest.mark.parametrize("how", MIXED)
def test_crop_takes_the_very_pixels(how: Image.Resampling) -> None:
    assert torch.equal(crop(COLOUR, (3, 32, 32), how), pixels(COLOUR)[:, 4:36, 14:46])
    assert torch.equal(crop(COLOUR, (3, 40, 60), how), pixels(COLOUR))
    assert torch.equal(crop(COLOUR, (3, 41, 41), how), fit(COLOUR, (3, 41, 41), how))


def test_colour_becomes_grey_and_grey_becomes_colour() -> None:
    grey = decode(encoded(COLOUR.convert("L")))
    assert own_shape(grey) == (1, 40, 60)
    assert torch.equal(fit(grey, (3, 40, 60)), pixels(COLOUR.convert("L")).expand(3, -1, -1))
    assert torch.equal(fit(COLOUR, (1, 40, 60)), pixels(COLOUR.convert("L")))
    with pytest.raises(Mismatch):
        fit(COLOUR, (4, 32, 32))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF", "WEBP"])
def test_decodes_lossless_files_exactly(tmp_path: Path, kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    path = tmp_path / "a"
    path.write_bytes(encoded(COLOUR, kind, **options))
    image = decode(path)
    assert own_shape(image) == (3, 40, 60)
    assert torch.equal(fit(image, (3, 40, 60)), pixels(COLOUR))


def test_decodes_jpeg_palettes_cmyk_and_black_and_white_as_pillow_does() -> None:
    palette = COLOUR.quantize(16)
    for data in (
        encoded(COLOUR, "JPEG"),
        encoded(COLOUR.convert("CMYK"), "JPEG"),
        encoded(palette),
        encoded(palette, "GIF"),
        encoded(COLOUR.convert("YCbCr"), "JPEG"),
    ):
        expected = Image.open(io.BytesIO(data)).convert("RGB")
        assert torch.equal(fit(decode(data), (3, 40, 60)), pixels(expected))
    assert torch.equal(fit(decode(encoded(COLOUR.convert("1"))), (1, 40, 60)), pixels(COLOUR.convert("1").convert("L")))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB"])
def test_a_transparent_pixel_is_black(mode: str) -> None:
    """The left half is transparent, and white underneath; what is half transparent is half as bright."""
    if mode in ("P", "L", "RGB"):
        image = Image.new("L", (4, 2), 200)
        image.paste(255, (0, 0, 2, 2))
        image = image.convert(mode)
        hidden = {"P": image.getpixel((0, 0)), "L": 255, "RGB": (255, 255, 255)}[mode]
        data, half = encoded(image, transparency=hidden), 200
    else:
        image = Image.new(mode, (4, 2), (200,) * (len(mode) - 1) + (128,))
        image.paste((255,) * (len(mode) - 1) + (0,), (0, 0, 2, 2))
        data, half = encoded(image), 100
    decoded = decode(data)
    assert own_shape(decoded)[0] == (1 if mode in ("LA", "L") else 3)
    shown = fit(decoded, (3, 2, 4)).int()
    assert torch.equal(shown[:, :, :2], torch.zeros(3, 2, 2, dtype=torch.int32))
    assert (shown[:, :, 2:] - half).abs().max() <= 1


def test_16_bits_are_cut_to_8_and_floats_are_refused() -> None:
    deep = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    for kind in ("PNG", "TIFF"):
        read = fit(decode(encoded(Image.fromarray(deep), kind)), (1, 32, 32))
        assert torch.equal(read, torch.from_numpy((deep >> 8).astype(np.uint8))[None])
    with pytest.raises(DamagedPicture, match=r"float\.tif"):
        decode(encoded(Image.fromarray(deep.astype(np.float32)), "TIFF"), "float.tif")


def test_a_transparent_pixel_of_16_bits_is_black() -> None:
    """Only where all 16 bits are those of the hidden colour."""
    deep = np.array([[65000, 65001, 300, 65000]], dtype=np.uint16)
    read = fit(decode(encoded(Image.fromarray(deep), transparency=65000)), (1, 1, 4))
    assert read.flatten().tolist() == [0, 253, 1, 0]


def test_a_transparent_colour_of_16_bits_a_channel_is_black() -> None:
    """Pillow reads the upper 8 bits of such a picture, and writes none: this one is made by hand."""
    colours = [(65000, 300, 40000), (64000, 300, 40000)]

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(b"\0" + b"".join(struct.pack(">HHH", *colour) for colour in colours)))
    hidden = chunk(b"tRNS", struct.pack(">HHH", *colours[0]))
    picture = decode(b"\x89PNG\r\n\x1a\n" + head + hidden + rows + chunk(b"IEND", b""))
    assert [picture.getpixel((x, 0)) for x in range(2)] == [(0, 0, 0), (250, 1, 156)]


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_picture_is_turned_as_its_exif_data_say_unless_that_is_ignored(kind: str, number: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = number
    turned = encoded(COLOUR, kind, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(turned))).convert("RGB")
    assert own_shape(decode(turned)) == ((3, 60, 40) if number > 4 else (3, 40, 60))
    assert torch.equal(pixels(decode(turned)), pixels(expected))
    assert torch.equal(pixels(decode(turned, upright=False)), pixels(decode(encoded(COLOUR, kind))))


def test_damaged_exif_is_no_matter() -> None:
    broken = encoded(COLOUR, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x1a\x01")
    assert own_shape(decode(broken)) == (3, 40, 60)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_a_truncated_picture_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    whole = encoded(COLOUR, kind)
    for length in (0, 1, 10, 100, len(whole) // 2, len(whole) - len(whole) // 8):
        path = tmp_path / f"a {kind}.x"
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedPicture, match=str(path)) as caught:
            decode(path)
        assert "\n" not in str(caught.value)


def test_what_is_no_file_is_not_called_damaged(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.png", tmp_path, Path("null\0byte.png")):
        with pytest.raises(Damaged) as caught:
            decode(path)
        assert not isinstance(caught.value, DamagedPicture)
    with pytest.raises(DamagedPicture):
        decode(b"text", "entry 7")


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(COLOUR)
    for limit in (40 * 60 - 1, 40 * 60 // 2 - 1):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(DamagedPicture, match=r"bomb\.png"):
            decode(data, "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40 * 60)
    assert torch.equal(fit(decode(data), (3, 40, 60), BILINEAR), pixels(COLOUR))


WHOLE = {kind: encoded(COLOUR, kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "PPM")}


@given(st.sampled_from(sorted(WHOLE)), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_any_damage_ends_in_a_picture_or_in_our_error(kind: str, place: float, by: int) -> None:
    damaged = bytearray(WHOLE[kind])
    damaged[int(place * len(damaged))] ^= by
    try:
        image = decode(bytes(damaged), kind)
    except ProodError:
        return
    assert fit(image, (3, 5, 5)).shape == (3, 5, 5)
