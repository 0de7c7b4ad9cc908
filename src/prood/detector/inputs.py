"""What a detector takes for images: tensors, arrays, Pillow images, paths, image sets, lists of these, and batches.

What each of them becomes is float32 in [0, 1], (N, C, H, W), and what is said of an image is said of those pixels:

- Bytes (uint8) are divided by 255. Floats must lie in [0, 1]; float64 is rounded to float32, half precision is exact.
- Tensors and arrays have the model's size: (N, C, H, W), or (C, H, W) for one image. Arrays of bytes may have their
  channels last, (N, H, W, C) or (H, W, C) with one or three of them, as Pillow, OpenCV and matplotlib give them.
- Pictures (paths and Pillow images) of any size and mode are fitted as `prood certify` does: the largest rectangle of
  the model's aspect around the centre, resized with a bilinear filter, grey or colour as the model wants it. Of a file
  with several frames the first counts, of a Pillow image the one that it stands at.
- Whatever else can be iterated yields batches or single images: a `DataLoader`, a data set or column of `datasets`, a
  generator. Items may be pairs of images and labels, or dicts with a column `image`, `images` or `img`; labels are left
  aside. It is read once, a batch at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from prood.bounds.box import Norm
from prood.bounds.options import checked_radius
from prood.data import ImageSet
from prood.data.formats.batches import is_picture, items_of, looks_like_images, parts
from prood.data.formats.pictures import decode, fit, plain
from prood.errors import BadValue, Mismatch, Unsupported

Shape = tuple[int, int, int]
One: TypeAlias = Tensor | NDArray[Any] | Image.Image | Path | str | ImageSet
Images: TypeAlias = One | Sequence[One] | Mapping[str, Any] | Iterable[Any]

_Row = Tensor | NDArray[Any] | Image.Image | Path | bytes


def read(images: Images, shape: Shape, *, batch: int) -> Iterator[Tensor]:
    """The images as float32 (N, C, H, W) in [0, 1], at most `batch` at once.

    Pictures are decoded when their turn comes, so a long list of paths needs no memory.
    """
    if batch < 1:
        raise BadValue(f"batch must be at least 1, not {batch}")
    rows, start = iter(_rows(images, shape)), 0
    while some := list(islice(rows, batch)):
        stack = _stacked([_pixels(row, shape) for row in some])
        _check_range(stack, start)
        start += len(some)
        yield stack


def _rows(images: Images, shape: Shape) -> Iterable[_Row]:
    """One entry per image; tensors are views, and nothing is decoded yet."""
    if isinstance(images, ImageSet):
        images = images.images
    if isinstance(images, np.ndarray):
        return _channels_first(images, shape)
    if isinstance(images, Tensor):
        return list(_checked(images, tuple(images.shape), shape))
    if isinstance(images, str | Path):
        return [Path(images)]
    if isinstance(images, Image.Image):
        return [images]
    if is_picture(images):
        content, path = images.get("bytes"), images.get("path")  # type: ignore[union-attr]  # a mapping
        if content is None and path is None:
            raise BadValue("a row holds neither the bytes of a picture nor its path: leave it out")
        return [Path(str(path)) if content is None else bytes(content)]
    if isinstance(images, Mapping) or (isinstance(images, tuple | list) and images and not looks_like_images(images)):
        return _rows(parts(images)[0], shape)
    if isinstance(images, list | tuple):
        return [row for one in images for row in _rows(one, shape)]
    if isinstance(images, Iterable | Dataset) and not isinstance(images, bytes | bytearray):
        return (row for item in items_of(images) for row in _rows(parts(item)[0], shape))
    accepted = "tensors, arrays, Pillow images, paths, image sets, lists of these, or an iterable of batches"
    raise BadValue(f"images come as {accepted}, not as {type(images)}")


def _channels_first(array: NDArray[Any], shape: Shape) -> list[_Row]:
    """Images of an array in either order of the axes."""
    channels, height, width = shape
    if array.shape[-3:] == (height, width, channels) and channels in (1, 3) and array.dtype == np.uint8:
        if array.shape[-3:] == shape:
            raise BadValue(
                f"in {array.shape} the channels may be first or last: pass torch.from_numpy(…), channels first"
            )
        array = np.moveaxis(array, -1, -3)
    try:
        kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
    except TypeError:
        raise BadValue(f"pixels are uint8 or floating point, not {array.dtype}") from None
    if array.flags.writeable:
        return list(_checked(torch.from_numpy(np.ascontiguousarray(array)), array.shape, shape))
    # Torch warns of memory that it must not write to. Each image is copied when its turn comes, and the rest may stay
    # on disk, where such arrays often lie.
    images = _checked(torch.empty(array.shape, dtype=kind, device="meta"), array.shape, shape)
    return list(array.reshape(images.shape))


def _checked(images: Tensor, given: tuple[int, ...], shape: Shape) -> Tensor:
    """(N, C, H, W), of this shape and a type that has a meaning as pixels."""
    if images.ndim not in (3, 4) or tuple(images.shape[-3:]) != shape:
        takes = f"the model, which takes (N, {', '.join(map(str, shape))}) or one image without the N"
        raise Mismatch(f"images of shape {given} do not fit {takes}: {_advice(given, shape)}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise BadValue(f"pixels are uint8 (0 to 255) or floating point (0 to 1), not {images.dtype}")
    return images if images.ndim == 4 else images[None]


def _advice(given: tuple[int, ...], shape: Shape) -> str:
    """What to do about images of another shape: mostly it is the channels that stand elsewhere or are others."""
    channels, height, width = shape
    sides = given[-3:]
    if sides == (height, width, channels):
        return "the channels stand last, so move them: moveaxis(images, -1, -3)"
    if given[-2:] == (height, width) and len(given) in (2, 3) and channels == 1:
        return "they have no axis of channels, so add one with images[..., None, :, :]"
    if len(given) in (3, 4) and sides[1:] == (height, width):
        return f"they have {sides[0]} channels and not {channels}: grey and colour are converted in Pillow images"
    if len(given) in (3, 4) and sides[:2] == (height, width):
        return (
            f"they have {sides[2]} channels, last, and not {channels}: grey and colour are converted in Pillow images"
        )
    return "of other sizes, pass Pillow images or paths"


def _pixels(row: _Row, shape: Shape) -> Tensor:
    if isinstance(row, Path):
        row = fit(decode(row), shape)
    elif isinstance(row, bytes):
        row = fit(decode(row, f"of {len(row)} bytes"), shape)
    elif isinstance(row, Image.Image):
        try:
            row.load()
            row = fit(plain(row), shape)
        except (ValueError, OSError, SyntaxError) as error:  # SyntaxError: how Pillow calls a damaged PNG
            raise Unsupported(f"cannot use the Pillow image of mode {row.mode}: {error}") from None
    elif isinstance(row, np.ndarray):
        row = torch.from_numpy(row.copy())
    return row if row.device.type == "cpu" else row.cpu()


def _stacked(images: list[Tensor]) -> Tensor:
    """Float32 in [0, 1]. Images of one type are converted together, which is much faster than one by one."""
    if len({image.dtype for image in images}) > 1:
        return torch.cat([_stacked([image]) for image in images])
    stack = torch.stack(images).detach()
    return stack.float() / 255 if stack.dtype == torch.uint8 else stack.float()


def _check_range(stack: Tensor, start: int) -> None:
    low, high = (value.item() for value in stack.aminmax())
    if low >= 0 and high <= 1:  # NaN fails it
        return
    place = int((~((stack >= 0) & (stack <= 1)).flatten(1).all(1)).nonzero()[0])
    low, high = stack[place].min().item(), stack[place].max().item()
    if low != low:
        raise BadValue(f"image {start + place} has a pixel that is NaN: replace it, or leave out the image")
    where = f"image {start + place} has pixels from {low:g} to {high:g}"
    raise BadValue(f"{where}: they must lie in [0, 1]; divide bytes by 255, leave the normalisation to the model")


def shape_of(image: Sequence[int]) -> Shape:
    if len(image) != 3:
        raise BadValue(f"an image has the shape (channels, height, width), not {tuple(image)}")
    channels, height, width = image
    return int(channels), int(height), int(width)


def radius_of(eps: float | str | None, norm: Norm = "linf") -> float:
    if eps is None:
        raise BadValue("the model does not say which radius it was trained for: give one, such as eps=0.01")
    if not isinstance(eps, str):
        try:
            eps = float(eps)
        except (TypeError, ValueError):
            raise BadValue(f"eps is one radius for all images, not {eps!r}: call certify once for each") from None
    return checked_radius(eps, norm)
