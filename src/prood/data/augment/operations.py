"""The operations of AutoAugment's search space on bytes, a different one for each image, as Pillow does them.

There are two ways with the same result. On the CPU each function sees only the rows that need it. On a GPU waiting for
the host costs more than computing: every function sees every row, and the result is selected. A *step* is a row of
8 numbers in float64: code, value, and the map of `geometry.warp`, made on the host where float64 is that of Pillow.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from prood.data.augment import geometry
from prood.data.augment.colours import TABLES, blend, greyed, look_up, smoothed
from prood.errors import BadValue

STEP = 8
Way = Callable[[Tensor, Tensor], Tensor]

_NAMES = ("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", *TABLES, "Color", "Sharpness")
OPERATIONS = {name: code for code, name in enumerate(_NAMES)}

_WARPS = (OPERATIONS["ShearX"], OPERATIONS["Rotate"] + 1)  # from this code up to, but without, that one
_TABLES = (_WARPS[1], OPERATIONS["Color"])
_BLENDS = (_TABLES[1], len(OPERATIONS))
_MAKERS = [  # the same for each function that makes tables
    (codes[0], codes[-1] + 1, function)
    for function in dict.fromkeys(TABLES.values())
    if (codes := [OPERATIONS[name] for name, other in TABLES.items() if other is function])
]


def operate(images: Tensor, codes: Tensor, values: Tensor) -> Tensor:
    """Each image after its operation: uint8 in and out, `codes` from `OPERATIONS` and `values` on the CPU.

    ShearX, ShearY: pixels per pixel, to the left or up if positive; the top left corner stays.
    TranslateX, TranslateY: pixels, to the left or up if positive.
    Rotate: degrees counter-clockwise, about the centre.
    Solarize: the threshold. Posterize: the number of bits.
    Contrast, Color, Brightness, Sharpness: a factor in [0, 2]; 1 is the identity.
    Identity, Invert, AutoContrast, Equalize: no meaning.
    """
    if len(codes) and not 0 <= codes.min() <= codes.max() < len(OPERATIONS):
        raise BadValue(f"operations are numbered from 0 to {len(OPERATIONS) - 1}: take codes from OPERATIONS")
    plan = steps(codes, values, images.shape[2], images.shape[3])
    if images.device.type == "cpu":
        return by_rows(images, plan)
    return for_all(images, plan.to(images.device, non_blocking=True))


def steps(codes: Tensor, values: Tensor, height: int, width: int) -> Tensor:
    """(n, 8) in float64, on the host: what `by_rows` and `for_all` take for images of this size."""
    rows = []
    for code, value in zip(codes.tolist(), values.tolist(), strict=True):
        name = _NAMES[code]
        value = 0 if name == "Invert" else value  # which is Solarize with this threshold
        rows.append([code, value, *geometry.lines(name, value, height, width)])
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, STEP)


def by_rows(images: Tensor, plan: Tensor) -> Tensor:
    """The way of the CPU: with the rows in the order of their codes, each function has a slice of the batch."""
    codes = plan[:, 0].numpy()
    order = np.argsort(codes, kind="stable")
    at: list[int] = np.searchsorted(codes[order], np.arange(len(OPERATIONS) + 1)).tolist()
    order = order[at[_WARPS[0]] :]  # without those that stay as they are
    if not len(order):
        return images.clone()
    at = [place - at[_WARPS[0]] for place in at]
    result = images.numpy().copy()  # numpy copies whole rows faster
    images, plan = torch.from_numpy(result[order]), torch.from_numpy(plan.numpy()[order])
    parts = []
    first, last = (at[code] for code in _WARPS)
    if first < last:
        parts.append(geometry.warp(images[first:last], plan[first:last, 2:]))
    first, last = (at[code] for code in _TABLES)
    if first < last:
        slices = [(slice(at[low], at[high]), function) for low, high, function in _MAKERS if at[low] < at[high]]
        made = [function(images[rows], plan[rows, 1]).expand(-1, images.shape[1], -1) for rows, function in slices]
        parts.append(look_up(images[first:last], torch.cat(made)))
    first, last = (at[code] for code in _BLENDS)
    if first < last:
        middle = at[OPERATIONS["Sharpness"]]
        dull = torch.cat([greyed(images[first:middle]), smoothed(images[middle:last])])
        parts.append(blend(dull, images[first:last], plan[first:last, 1, None, None, None]))
    result[order] = torch.cat(parts).numpy()
    return torch.from_numpy(result)


def for_all(images: Tensor, plan: Tensor) -> Tensor:
    """The way of a GPU: fixed shapes, nothing that waits for the device, and fit for `torch.compile`."""
    codes, values = plan[:, 0, None, None, None], plan[:, 1]

    def within(codes: Tensor, first: int, end: int) -> Tensor:
        return (codes >= first) & (codes < end)

    tables = torch.arange(256, dtype=torch.uint8, device=images.device).expand(*images.shape[:2], 256)
    for first, end, function in _MAKERS:
        tables = torch.where(within(codes[..., 0], first, end), function(images, values), tables)
    dull = torch.where(codes == OPERATIONS["Color"], greyed(images), smoothed(images))
    # Where nothing is to be done, the map is the identity.
    result = torch.where(within(codes, *_TABLES), look_up(images, tables), geometry.warp(images, plan[:, 2:]))
    return torch.where(within(codes, *_BLENDS), blend(dull, images, values[:, None, None, None]), result)
