"""Pictures from strangers: none at all, cut short, far too large, or moving."""

import asyncio
import base64
import io
import struct
import weakref
import zlib

import numpy as np
import pytest
from PIL import Image

from prood.data.formats.overlong import SEGMENTS, overlong_jpeg
from prood.data.formats.pictures import decode
from prood.errors import Damaged
from prood.serve import pictures as room
from prood.serve.intake import Room
from prood.serve.pictures import header_size, webp_size


def png_header(width, height):
    """A PNG that claims a size and has no pixels."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


def claim(width, height):
    """… and the first bytes of them."""
    return png_header(width, height) + struct.pack(">I", 1000) + b"IDAT" + zlib.compress(b"\0" * 1000)[:4]


def bomb(width, height):
    """A PNG whose few bytes really are so many pixels."""
    data = zlib.compress(b"\0" * (height * (width + 1)), 9)
    parts = png_header(width, height)
    for name, content in ((b"IDAT", data), (b"IEND", b"")):
        parts += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return parts


def webp_canvas(width, height):
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + sizes


def animation(kind):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "green", "blue")]
    file = io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "status", "said"),
    [
        (b"", 400, "the body is empty"),
        (b"no picture", 400, "image 0 is not a readable picture"),
        (b"\x89PNG\r\n\x1a\n", 400, "image 0"),
        (claim(100, 100), 400, "image 0 cannot be read"),
        (claim(100_000, 100_000), 413, "too many pixels"),
        (claim(6000, 6000), 413, "6000×6000 pixels"),
        (claim(10_000, 10_000), 413, "pixels"),  # of which Pillow only warns
        (bomb(6000, 6000), 413, "25000000 are allowed"),
        (webp_canvas(16_000_000, 16_000_000), 413, "16000000×16000000 pixels"),
        (webp_canvas(20, 20), 400, "image 0"),
        (animation("GIF"), 400, "is an animation"),
        (animation("PNG"), 400, "is an animation"),
        (animation("WEBP"), 400, "is an animation"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 400, "not a readable picture"),
        (b"P6\n9 9\n255\n" + b"a" * 243, 400, "not a readable picture"),  # Pillow could, but it was not asked to
    ],
)
def test_pictures_that_are_none_or_too_much(refused, client, file, status, said):
    refused(client.picture("/v1/predict", file), status, said)


def lying(kind):
    """A picture of 3000×3000 pixels whose first bytes say 1×1, so that it would be decoded at once, and in no room."""
    file = io.BytesIO()
    Image.new("L", (3000, 3000)).save(file, kind)
    whole, one = file.getvalue(), struct.pack(">II", 1, 1)
    if kind == "GIF":  # a frame larger than its screen
        return whole[:6] + struct.pack("<HH", 1, 1) + whole[10:]
    note = b"tEXt" + one + b"\0"
    return whole[:8] + struct.pack(">I", len(note) - 4) + note + struct.pack(">I", zlib.crc32(note)) + whole[8:]


@pytest.mark.parametrize("kind", ["GIF", "PNG"])
def test_a_picture_that_says_two_sizes(refused, client, kind):
    assert len(lying(kind)) < 64 * 1024
    assert header_size(lying(kind)) == (1, 1)
    refused(client.picture("/v1/predict", lying(kind), f"image/{kind.lower()}"), 400, "two sizes")


@pytest.mark.parametrize("note", [b"Exif\0\0", b"Photoshop 3.0\0"])
def test_a_jpeg_of_many_notes(refused, client, note):
    """Pillow copies all that it has for each more of them: 9,900 took 20 seconds."""
    file = io.BytesIO()
    Image.new("RGB", (32, 32)).save(file, "JPEG")
    segment = b"\xff" + (b"\xe1" if note[:1] == b"E" else b"\xed") + struct.pack(">H", len(note) + 2) + note
    whole = file.getvalue()
    few, many = (whole[:2] + count * segment + whole[2:] for count in (4, 400))
    assert client.picture("/v1/predict", few, "image/jpeg").status_code == 200
    refused(client.picture("/v1/predict", many, "image/jpeg"), 400, "segments of EXIF data")
    with pytest.raises(Damaged, match="segments"):
        decode(many, "many.jpg")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_a_picture_that_is_cut_short(refused, client, kind):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    whole = file.getvalue()
    assert client.picture("/v1/predict", whole).status_code == 200
    refused(client.picture("/v1/predict", whole[: len(whole) // 2]), 400, "image 0")


def test_a_large_picture_within_the_limit_is_decoded_and_the_limit_is_the_option(refused, service):
    client = service(pixels=90_000)
    assert client.picture("/v1/predict", bomb(300, 300)).status_code == 200
    refused(client.picture("/v1/predict", bomb(300, 301)), 413, "300×301 pixels: 90000 are allowed")


def test_a_jpeg_of_many_scans(refused, client):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", progressive=True)
    scan = file.getvalue().partition(b"\xff\xda")[2].partition(b"\xff\xc4")[0]
    bomb = file.getvalue()[:-2] + (b"\xff\xda" + scan) * 1000
    assert client.picture("/v1/predict", file.getvalue(), "image/jpeg").status_code == 200
    refused(client.picture("/v1/predict", bomb, "image/jpeg"), 400, "more than 100 scans")


def test_what_stands_behind_a_jpeg_is_no_part_of_it(client):
    """A phone's motion photo is a JPEG and a film; so is what an APP segment holds, a preview with scans of its own."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "JPEG", progressive=True)
    film = b"\xff\xda" * 2**20
    preview = b"\xff\xe1\xff\xfe" + film[:0xFFFC]
    for whole in (file.getvalue() + film, file.getvalue()[:2] + preview + file.getvalue()[2:]):
        assert client.picture("/v1/predict", whole, "image/jpeg").status_code == 200


@pytest.mark.parametrize(
    ("rest", "overlong"),
    [
        (b"", False),
        (b"\xff", False),
        (b"\xff\xe0", False),
        (b"\xff\xe0\xff\xff", False),
        (b"\xff\xda\0\2" * 100 + b"\xff\xd9" + b"\xff\xda\0\2", False),
        (b"\xff\xda\0\2" * 101, True),
        (b"\xff\xda\0\2\xff\0\xff\xd0\xff\xff" * 101, True),
        (b"\xff\xda\0\0" * 101, True),
        (b"\xff\x02\xff\xff" + b"\xff\xda\0\2" * 101, True),  # no segment: libjpeg goes on behind the marker
        (b"\xff\xfe\0\2" * 20_000, True),
        (b"\xff" * 2**20, False),
        (b"\xff\0" * 2**20, False),
    ],
)
def test_scans_are_counted_up_to_the_end_in_whatever_is_sent(rest, overlong):
    assert overlong_jpeg(b"\xff\xd8" + rest) == overlong


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (300, 200)])
def test_the_size_of_a_webp_is_read_from_its_header(size):
    picture = Image.new("RGBA", size, (9, 9, 9, 100))
    for options in ({"lossless": True}, {"quality": 50}, {"quality": 50, "exif": b"Exif\0\0"}):
        file = io.BytesIO()
        picture.convert("RGB" if "exif" in options else "RGBA").save(file, "WEBP", **options)
        assert webp_size(file.getvalue()) == size
    file = io.BytesIO()
    picture.convert("RGB").save(file, "WEBP")
    assert file.getvalue()[12:16] == b"VP8 "
    assert webp_size(file.getvalue()) == size
    assert webp_size(b"RIFF0000WEBP") is None


def test_a_png_of_too_many_chunks(refused, client, files):
    empty = struct.pack(">I", 0) + b"teXt" + struct.pack(">I", zlib.crc32(b"teXt"))
    place = len(files[0]) - 12  # before the end
    assert client.picture("/v1/predict", files[0][:place] + 1000 * empty + files[0][place:]).status_code == 200
    many = files[0][:place] + SEGMENTS * empty + files[0][place:]
    refused(client.picture("/v1/predict", many), 400, "more than 10000 chunks")


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP"])
def test_the_header_tells_the_size(kind):
    file = io.BytesIO()
    Image.new("RGB", (300, 20)).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    assert header_size(file.getvalue()) == (300, 20)
    for length in range(40):
        header_size(file.getvalue()[:length])  # whatever is missing


def test_one_picture_at_a_time_is_there_in_full(service, monkeypatch):
    """A WebP of a few hundred bytes takes 24 bytes a pixel as soon as it is opened."""
    file = io.BytesIO()
    Image.new("RGBA", (400, 400)).save(file, "WEBP", lossless=True)
    assert len(file.getvalue()) < 500
    alive, most = set(), [0]
    true = room.opened

    def opened(*given):
        picture = true(*given)
        alive.add(id(picture))
        most[0] = max(most[0], len(alive))
        weakref.finalize(picture, alive.discard, id(picture))
        return picture

    monkeypatch.setattr("prood.serve.intake.opened", opened)
    client = service(decoding_bytes=24 * 400 * 400)
    text = base64.b64encode(file.getvalue()).decode()
    found = client.many([("POST", "/v1/predict", {"json": {"images": [text] * 4}})] * 3)
    assert [answered.status_code for answered in found] == [200] * 3
    assert most == [1]


def test_room_is_given_in_order_and_given_back():
    async def main():
        room, order = Room(10), []

        async def take(name, wanted):
            async with room.taken(wanted):
                order.append(name)
                await asyncio.sleep(0.01)

        large = [asyncio.ensure_future(take(name, wanted)) for name, wanted in (("a", 6), ("b", 99), ("c", 1))]
        await asyncio.gather(*large)
        assert order == ["a", "b", "c"]
        assert room._left == 10

    asyncio.run(main())
