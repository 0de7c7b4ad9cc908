"""Operations that move pixels: crop and mirror, Pillow's nearest affine map, bilinear turns and views."""

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

GREY = 128  # what AutoAugment puts where an image has moved away

_ONE = 1 << 16  # Pillow's nearest affine maps are in fixed point, 16 bits before and 16 after the point
_FAR = 1 << 14


def move(images: Tensor, moves: Tensor, margin: int, *, reflect: bool = False) -> Tensor:
    """A crop of the image with a `margin` of zeros, or of its reflection, around it, mirrored or not.

    moves: rows, columns and flip, (n, 3). out[i, j] = in[i + rows, j + columns], with j counted from the right if flip
    is 1. Rows and columns are whole numbers in [−margin, margin].
    """
    rows, columns, flips = moves.to(torch.int64).unbind(1)
    way = _by_lines if images.device.type == "cpu" and not torch.compiler.is_compiling() else _by_pixels
    return way(images, rows, columns, flips, margin, reflect)


def _by_lines(images: Tensor, rows: Tensor, columns: Tensor, flips: Tensor, margin: int, reflect: bool) -> Tensor:
    """For a CPU. A mirrored crop is a plain crop of the mirrored image. So every line of the result is a piece of
    memory, and copying pieces is several times faster than gathering pixels."""
    count, channels, height, width = images.shape
    high, wide = height + 2 * margin, width + 2 * margin
    if reflect:
        down, across = (_reflected(torch.arange(-margin, side + margin), side) for side in (height, width))
        framed = images[..., down, :][..., across]
        both = torch.stack([framed, framed.flip(-1)])
    else:
        both = images.new_zeros(2, count, channels, high, wide)
        middle = both[..., margin : margin + height, margin : margin + width]
        middle[0] = images
        middle[1] = images.flip(-1)
    pieces = both.as_strided((both.numel() - width + 1, width), (1, 1))
    columns = torch.where(flips == 1, -columns, columns)
    image = flips * count + torch.arange(count)
    plane = image[:, None] * channels + torch.arange(channels)
    line = (margin + rows)[:, None] + torch.arange(height)
    starts = (plane[:, :, None] * high + line[:, None, :]) * wide + (margin + columns)[:, None, None]
    return pieces.index_select(0, starts.reshape(-1)).reshape(images.shape)


def _by_pixels(images: Tensor, rows: Tensor, columns: Tensor, flips: Tensor, margin: int, reflect: bool) -> Tensor:
    """For a GPU, where a compiler makes a single pass of it: nothing is written but the result."""
    count, channels, height, width = images.shape
    y = torch.arange(height, device=images.device) + rows[:, None]
    x = torch.arange(width, device=images.device)
    x = torch.where(flips[:, None] == 1, width - 1 - x, x) + columns[:, None]
    inside = ((y >= 0) & (y < height))[:, None, :, None] & ((x >= 0) & (x < width))[:, None, None, :]
    y, x = (_reflected(y, height), _reflected(x, width)) if reflect else (y.clamp(0, height - 1), x.clamp(0, width - 1))
    image = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[:, None, None]
    found = images[image, channel, y[:, None, :, None], x[:, None, None, :]]
    return found if reflect else torch.where(inside, found, 0)


def _reflected(places: Tensor, side: int) -> Tensor:
    """Places along an axis; those outside of 0 … side − 1 are sent back, without doubling the last pixel."""
    period = max(1, 2 * (side - 1))
    places = places % period
    return torch.minimum(places, period - places)


def lines(name: str, value: float, height: int, width: int) -> list[float]:
    """The map that `warp` takes for an operation: Pillow's of a shear, a translation or a rotation, else the identity.

    ShearX is `Image.transform(size, AFFINE, (1, value, 0, 0, 1, 0))`, TranslateX (1, 0, value, 0, 1, 0), and Rotate
    `Image.rotate(value)`. By the mathematics of Python, as Pillow's: other libraries may round differently.
    """
    # Pillow translates in floating point; its nearest pixel is ⌊x + ½ + value⌋, a move by whole pixels.
    pixels = min(max(math.floor(value + 0.5), -_FAR), _FAR)
    radians = -math.radians(value % 360)
    cos, sin = round(math.cos(radians), 15), round(math.sin(radians), 15)
    x = cos * (-width / 2) + sin * (-height / 2) + width / 2
    y = -sin * (-width / 2) + cos * (-height / 2) + height / 2
    maps = {
        "ShearX": ((1, value, 0), (0, 1, 0)),
        "ShearY": ((1, 0, 0), (value, 1, 0)),
        "TranslateX": ((1, 0, pixels), (0, 1, 0)),
        "TranslateY": ((1, 0, 0), (0, 1, pixels)),
        "Rotate": ((cos, sin, x), (-sin, cos, y)),
    }
    both = maps.get(name, ((1, 0, 0), (0, 1, 0)))
    # From the centre of a pixel, where both of its coordinates are ½ more.
    return [math.floor(number * _ONE + 0.5) for a, b, c in both for number in (a, b, c + a * 0.5 + b * 0.5)]


def warp(images: Tensor, maps: Tensor) -> Tensor:
    """Each image through its map (a, b, c, d, e, f): out[y, x] = in[(d x + e y + f)/2¹⁶, (a x + b y + c)/2¹⁶].

    Rounded down, with grey where that lies outside. The sides must be below 2¹⁴.
    """
    count, channels, height, width = images.shape
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device)[:, None]
    by_x, by_y, start = maps.to(torch.int32).reshape(count, 2, 3, 1, 1).unbind(2)
    places = (by_x * x + (by_y * y + start)).bitwise_right_shift_(16)
    # A grey frame of one pixel, to which everything outside is sent: cheaper than masks.
    framed = pad(images, (1, 1, 1, 1), value=GREY).reshape(count, channels, -1)
    across, down = places[:, 0].clamp_(-1, width), places[:, 1].clamp_(-1, height)
    flat = across.add_(down, alpha=width + 2).to(torch.int64).add_(width + 3).reshape(count, 1, -1)
    return framed.gather(2, flat.expand(-1, channels, -1)).reshape(images.shape)


def cut(images: Tensor, boxes: Tensor) -> Tensor:
    """Grey in the rows top ≤ y < bottom and columns left ≤ x < right of each image; boxes: (n, 4) in this order."""
    top, bottom, left, right = boxes.to(torch.int32).T[:, :, None, None]
    y = torch.arange(images.shape[2], dtype=torch.int32, device=images.device)[:, None]
    x = torch.arange(images.shape[3], dtype=torch.int32, device=images.device)
    hole = ((y >= top) & (y < bottom)) & ((x >= left) & (x < right))
    return torch.where(hole[:, None], GREY, images)


def turn(images: Tensor, circle: Tensor) -> Tensor:
    """Rotation and zoom of float images about the centre, bilinear, with zeros outside.

    circle: cosine and sine of the angle, counter-clockwise, divided by the zoom, (n, 2). In pixels, so that an image
    that is not square is not sheared.
    """
    height, width = images.shape[2:]
    # The grid by elementwise arithmetic: a batched matrix product may round differently in batches of different size,
    # and then an image would depend on its neighbours.
    cos, sin = circle.to(images).T[:, :, None, None]
    y = torch.arange(height, device=images.device, dtype=images.dtype)[:, None] - (height - 1) / 2
    x = torch.arange(width, device=images.device, dtype=images.dtype) - (width - 1) / 2
    # Where output pixel (y, x) comes from; grid_sample wants half-widths as the unit and the y axis pointing down.
    grid = torch.stack([(cos * x - sin * y) * (2 / width), (sin * x + cos * y) * (2 / height)], dim=-1)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def view(images: Tensor, views: Tensor) -> Tensor:
    """A part of each float image, or more than all of it, as big as the image, bilinear.

    views: (n, 3), the side of what is seen in sides of the image, and its place, down and right: at 0 and 1 it ends
    where the image does, at 1/2 it is in the middle. Around the image its mirror images go on. Where the side is 1, the
    image stays as it is, to the bit.
    """
    height, width = images.shape[2:]
    side, down, right = views.to(images).T[:, :, None, None]
    y = (torch.arange(height, device=images.device, dtype=images.dtype)[:, None] + 0.5) * (2 / height) - 1
    x = (torch.arange(width, device=images.device, dtype=images.dtype) + 0.5) * (2 / width) - 1
    # In grid_sample's units the image is [−1, 1].
    across, along = side * x + (1 - side) * (2 * right - 1), side * y + (1 - side) * (2 * down - 1)
    grid = torch.stack([across.expand(-1, height, -1), along.expand(-1, -1, width)], dim=-1)
    seen = grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    return torch.where(side[:, None] == 1, images, seen)


def crop(images: Tensor, squares: Tensor, side: int) -> Tensor:
    """A square of each float image, resized to `side`×`side`, bilinear; squares: top, left and side in pixels, (n, 3).

    A square of this side that starts at whole pixels is cut out as it is, up to rounding.
    """
    height, width = images.shape[2:]
    top, left, sides = squares.to(images).T[:, :, None, None]
    steps = (torch.arange(side, device=images.device, dtype=images.dtype) + 0.5) / side
    y, x = top + sides * steps[:, None], left + sides * steps
    grid = torch.stack(
        [(x * (2 / width) - 1).expand(-1, side, -1), (y * (2 / height) - 1).expand(-1, -1, side)], dim=-1
    )
    return grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
