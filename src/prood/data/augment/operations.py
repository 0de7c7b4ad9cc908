"""The operations of AutoAugment's search space on bytes, a different one for each image, and its policy for CIFAR.

They do what Pillow does, in two ways with the same result. On the CPU each function sees only the rows that need it. On
a GPU waiting for the host costs more than computing: every function sees every row, and the result is selected. A
*step* is a row of 8 numbers in float64: code, value, and the map of `geometry.warp`, made on the host where float64 is
Pillow's float64.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prood.data.augment import geometry
from prood.data.augment.colours import TABLES, blend, greyed, look_up, smoothed
from prood.errors import BadValue

STEP = 8
Way = Callable[[Tensor, Tensor], Tensor]
Array = npt.NDArray[np.float64]

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
    warps, tables, blends = (slice(at[first], at[end]) for first, end in (_WARPS, _TABLES, _BLENDS))
    if warps.start < warps.stop:
        parts.append(geometry.warp(images[warps], plan[warps, 2:]))
    if tables.start < tables.stop:
        slices = [(slice(at[low], at[high]), function) for low, high, function in _MAKERS if at[low] < at[high]]
        changed = [function(images[rows], plan[rows, 1]).expand(-1, images.shape[1], -1) for rows, function in slices]
        parts.append(look_up(images[tables], torch.cat(changed)))
    if blends.start < blends.stop:
        middle = at[OPERATIONS["Sharpness"]]
        dull = torch.cat([greyed(images[blends.start : middle]), smoothed(images[middle : blends.stop])])
        parts.append(blend(dull, images[blends], plan[blends, 1, None, None, None]))
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


# AutoAugment for CIFAR (Cubuk et al. 2019, Table 7): operation, probability, magnitude of 0 … 9; twice.
POLICY = (
    (("Invert", 0.1, 7), ("Contrast", 0.2, 6)),
    (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
    (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
    (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.5, 8), ("Equalize", 0.9, 2)),
    (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
    (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
    (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
    (("Equalize", 0.6, 5), ("Equalize", 0.5, 1)),
    (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
    (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
    (("Equalize", 0.3, 7), ("AutoContrast", 0.4, 8)),
    (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
    (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
    (("Solarize", 0.5, 2), ("Invert", 0.0, 3)),
    (("Equalize", 0.2, 0), ("AutoContrast", 0.6, 0)),
    (("Equalize", 0.2, 8), ("Equalize", 0.6, 4)),
    (("Color", 0.9, 9), ("Equalize", 0.6, 6)),
    (("AutoContrast", 0.8, 4), ("Solarize", 0.2, 8)),
    (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
    (("Solarize", 0.4, 5), ("AutoContrast", 0.9, 3)),
    (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.9, 2), ("Solarize", 0.8, 3)),
    (("Equalize", 0.8, 8), ("Invert", 0.1, 3)),
    (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, 1)),
)

_CODES = np.array([[OPERATIONS[name] for name, _, _ in pair] for pair in POLICY], np.float64)
_CHANCES = np.array([[chance for _, chance, _ in pair] for pair in POLICY])
_MAGNITUDES = np.array([[magnitude for _, _, magnitude in pair] for pair in POLICY], np.float64)


def choose(uniform: Array) -> Array:
    """(n, 4): code and signed magnitude of the first operation, then of the second; zeros for one that is left out.

    From 5 uniform numbers per image: the sub-policy; whether the first operation is done, and its sign; the same for
    the second. Operations without a direction ignore the sign.
    """
    pair = (uniform[:, 0] * len(POLICY)).astype(np.int64)
    done = uniform[:, 1::2] < _CHANCES[pair]
    signs = np.where(uniform[:, 2::2] < 0.5, -1, 1)
    return np.stack([_CODES[pair] * done, _MAGNITUDES[pair] * signs * done], axis=2).reshape(-1, 4)


def planned(codes: Array, magnitudes: Array, height: int, width: int) -> Array:
    """`steps` of signed magnitudes, for images of this size."""
    return _steps(height, width)[(codes * 19 + magnitudes + 9).astype(np.int64)]


@lru_cache(maxsize=8)
def _steps(height: int, width: int) -> Array:
    """The step of each operation at each of the magnitudes −9 … 9: there are so few that none is made twice."""
    codes = torch.arange(len(OPERATIONS)).repeat_interleave(19)
    values = [_value(name, magnitude / 9, height, width) for name in OPERATIONS for magnitude in range(-9, 10)]
    return steps(codes, torch.tensor(values, dtype=torch.float64), height, width).numpy()


def _value(name: str, part: float, height: int, width: int) -> float:
    """The value of an operation at this part of its magnitude, in [−1, 1], or 0 for one that takes none."""
    values = {
        **dict.fromkeys(("ShearX", "ShearY"), 0.3 * part),
        "TranslateX": 150 / 331 * width * part,
        "TranslateY": 150 / 331 * height * part,
        "Rotate": 30 * part,
        **dict.fromkeys(("Contrast", "Color", "Brightness", "Sharpness"), 1 + 0.9 * part),
        "Solarize": 256 * (1 - abs(part)),
        "Posterize": 8 - round(4 * abs(part)),
    }
    return values.get(name, 0)
