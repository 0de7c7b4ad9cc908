"""One picture: decoded with Pillow and fitted to the size of a set.

What every reader of pictures does alike:

- Only the first frame of an animation counts.
- A transparent pixel shows black: the colour that a file keeps underneath is arbitrary.
- A picture is turned as its EXIF data say, as every viewer does. Public sets are read without that (`upright=False`):
  readers of ImageNet ignore it, and it would change what is published.
- 16-bit grey is cut to its upper 8 bits. (Pillow's own conversion would clip it to white.)
"""

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from prood.data.formats.overlong import overlong
from prood.data.images import Shape
from prood.errors import Damaged, Mismatch, ProodError
from prood.reading import content

LARGEST = 2**28
"""Bytes of a picture's file."""

_FILTERS = Image.Resampling
BILINEAR = _FILTERS.BILINEAR

# A single filter gives a set away, see `prood.data.bundled`.
MIXED = (_FILTERS.BOX, _FILTERS.BILINEAR, _FILTERS.HAMMING, _FILTERS.BICUBIC, _FILTERS.LANCZOS)

_MODES = {1: "L", 3: "RGB"}

_TURNS: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Unreadable(Damaged):
    """A picture of a set that may be left out of it; `reason` is what the line says without the name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"cannot read the image {name}: {reason}")
        self.reason = reason


class DamagedPicture(Unreadable):
    """The file can be read, but does not hold a whole picture."""


class ClosedPicture(Unreadable):
    """The file is not there, as behind a dangling link, or this user may not read it."""


def decode(source: Path | bytes, name: str = "", *, upright: bool = True) -> Image.Image:
    """A picture in mode L or RGB; `name` is what an error calls it if it comes as bytes."""
    if isinstance(source, Path):
        name = name or str(source)
        try:
            source = content(source, LARGEST)
        except (PermissionError, FileNotFoundError) as error:
            raise ClosedPicture(name, _reason(error)) from error
        except (OSError, ValueError) as error:
            raise Damaged(f"cannot read the image {name}: {_reason(error)}") from error
        except ProodError as error:  # a pipe, a folder, a name that no file can have
            raise Damaged(str(error)) from error
    if fault := overlong(source):
        raise DamagedPicture(name, f"it is {fault}; save it anew")
    try:
        # Pillow warns of odd EXIF data, which many pictures of ImageNet have and which does not matter here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(BytesIO(source)) as image:
                # Pillow itself only warns up to twice its limit.
                limit = Image.MAX_IMAGE_PIXELS
                if limit is not None and image.width * image.height > limit:
                    raise Image.DecompressionBombError(f"{image.width}×{image.height} pixels are more than {limit}")
                image.load()
                return plain(image, upright=upright)
    # A damaged picture fails in a dozen ways, each decoder in its own.
    except Exception as error:
        raise DamagedPicture(name, _reason(error)) from error


def has_frames(image: Image.Image) -> bool:
    """Whether an opened file is an animation or has several pages. A damaged one may raise whatever its decoder does:
    a GIF looks for its second frame only when asked."""
    # The second picture of a phone's file (MPO) is another view for its gallery, no second frame.
    return image.format != "MPO" and bool(getattr(image, "is_animated", False))


def own_shape(image: Image.Image) -> Shape:
    return (1 if image.mode == "L" else 3), image.height, image.width


def fit(image: Image.Image, shape: Shape, resample: Image.Resampling = BILINEAR) -> Tensor:
    """The largest rectangle with the target's aspect around the centre, resized: uint8 (C, H, W)."""
    return _tensor(image, shape, resample, _centre(image.size, shape[2], shape[1]))


def crop(image: Image.Image, shape: Shape, resample: Image.Resampling = BILINEAR) -> Tensor:
    """The centre, without resampling; a picture that is too small for that is fitted."""
    _, height, width = shape
    if image.width < width or image.height < height:
        return fit(image, shape, resample)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    # At its own scale every filter returns the pixels themselves.
    return _tensor(image, shape, resample, (left, top, left + width, top + height))


def _centre(size: tuple[int, int], width: int, height: int) -> tuple[int, int, int, int]:
    # Whole pixels: half a pixel to the side would blur a picture that only has to be cut.
    across, down = size
    if across * height > down * width:
        across = max(1, (2 * down * width + height) // (2 * height))
    else:
        down = max(1, (2 * across * height + width) // (2 * width))
    left, top = (size[0] - across) // 2, (size[1] - down) // 2
    return left, top, left + across, top + down


def _tensor(image: Image.Image, shape: Shape, how: Image.Resampling, box: tuple[int, int, int, int]) -> Tensor:
    channels, height, width = shape
    if channels not in _MODES:
        raise Mismatch(f"pictures have 1 or 3 channels: they cannot match images of shape {shape}")
    if image.mode != _MODES[channels]:
        image = image.convert(_MODES[channels])
    pixels = torch.from_numpy(np.array(image.resize((width, height), how, box=box)))
    return pixels[None] if channels == 1 else pixels.permute(2, 0, 1).contiguous()


def plain(image: Image.Image, *, upright: bool = True) -> Image.Image:
    """8 bits a channel, grey or colour, nothing transparent, and turned as the EXIF data say."""
    turn = _TURNS.get(_orientation(image)) if upright else None
    image = _flat(image)
    return image if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> object:
    try:
        return image.getexif().get(0x0112)
    # Odd EXIF data fail in many ways, and do not make a picture unusable.
    except Exception:
        return None


def _flat(image: Image.Image) -> Image.Image:
    transparent = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    # Some decoders give 16 bits as mode I.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        deep = np.asarray(image)
        shown = (deep >> 8).astype(np.uint8)
        if transparent:
            shown[deep == image.info["transparency"]] = 0
        return Image.fromarray(shown)
    if image.mode in ("I", "F"):
        raise ValueError("its pixels are 32-bit numbers of unknown range; save it with 8 bits a channel")
    mode = "L" if image.mode in ("1", "L", "LA") else "RGB"
    hidden = image.info.get("transparency")
    if isinstance(hidden, tuple) and max(hidden) > 255:  # of a PNG with 16 bits a channel, whose upper 8 are here
        image.info["transparency"] = tuple(value >> 8 for value in hidden)
    if transparent:
        colours = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", colours.size, (0, 0, 0, 255)), colours)
    return image if image.mode == mode else image.convert(mode)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is not a picture of a known format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).splitlines() or [""])[0] or type(error).__name__
