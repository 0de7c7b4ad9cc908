"""Pictures: from strangers, where what the header says is checked before anything is decoded; and for the page to try.

The latter are some of the model's own image set, if that is on this machine, and some that are none of it.
"""

import base64
import struct
from io import BytesIO

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from prood.data.formats.overlong import PNG, overlong
from prood.data.formats.pictures import fit, has_frames, plain
from prood.detector.inputs import Shape
from prood.errors import first_line
from prood.serve.answer import Refused, bad

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/bmp": "BMP", "image/gif": "GIF"}
KNOWN = "PNG, JPEG, WebP, BMP or GIF"
BYTES_A_PIXEL = 24
"""Maximum bytes while a picture is decoded, turned and made opaque (a lossless WebP with an alpha)."""


def opened(file: bytes, limit: int, where: str) -> Image.Image:
    """A picture whose header was read and found bearable; its pixels are not decoded yet."""
    _check_size(webp_size(file), limit, where)
    if fault := overlong(file):
        raise bad(f"{where} is {fault}: save it again")
    try:
        image = Image.open(BytesIO(file), formats=tuple(FORMATS.values()))
    except UnidentifiedImageError:
        raise bad(f"{where} is not a readable picture: send {KNOWN}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Refused(413, f"{where} has too many pixels: {limit} are allowed") from None
    except Exception as error:  # a damaged header fails in a dozen ways, each format in its own
        raise _unreadable(error, where) from None
    _check_size(image.size, limit, where)
    if header_size(file) not in (None, image.size):  # by which room was made for it
        raise bad(f"{where} states two sizes: save it again")
    try:
        animated = has_frames(image)
    except Exception as error:
        raise _unreadable(error, where) from None
    if animated:
        raise bad(f"{where} is an animation: send one frame of it")
    return image


def decoded(image: Image.Image, shape: Shape, where: str) -> Tensor:
    """Float32 (C, H, W) in [0, 1], fitted to the model's size as everywhere in Prood."""
    try:
        image.load()
        return fit(plain(image), shape).to(torch.float32) / 255
    except Exception as error:
        raise _unreadable(error, where) from None
    finally:
        image.close()


def header_size(file: bytes) -> tuple[int, int] | None:
    """Width and height as the header has them, without opening the file; None: it does not say so at once."""
    if file[:8] == PNG:
        return int.from_bytes(file[16:20]), int.from_bytes(file[20:24])
    if file[:6] in (b"GIF87a", b"GIF89a"):
        return int.from_bytes(file[6:8], "little"), int.from_bytes(file[8:10], "little")
    return webp_size(file)


def webp_size(file: bytes) -> tuple[int, int] | None:
    """Width and height of a WebP file: Pillow would make room for the whole canvas before it tells them."""
    if file[:4] != b"RIFF" or file[8:12] != b"WEBP" or len(file) < 30:
        return None
    kind = file[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(file[24:27], "little"), 1 + int.from_bytes(file[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(file[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", file[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _check_size(size: tuple[int, int] | None, limit: int, where: str) -> None:
    if size is not None and size[0] * size[1] > limit:
        raise Refused(413, f"{where} has {size[0]}×{size[1]} pixels: {limit} are allowed, make it smaller")


def _unreadable(error: Exception, where: str) -> Refused:
    """One short line; never an address in memory or a path."""
    line = first_line(error)
    reason = line[:80] if line and "object at" not in line and "/" not in line else type(error).__name__
    return bad(f"{where} cannot be read ({reason}): send a whole {KNOWN}")


def png(pixels: Tensor) -> bytes:
    """A PNG of bytes (C, H, W), or of numbers in [0, 1], rounded."""
    if pixels.is_floating_point():
        pixels = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)
    array = pixels.cpu().numpy()
    image = Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def data_url(pixels: Tensor) -> str:
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")
