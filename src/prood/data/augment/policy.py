"""AutoAugment's policy for CIFAR (Cubuk et al. 2019, Table 7): 25 sub-policies of two operations each."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from prood.data.augment import operations
from prood.data.augment.operations import OPERATIONS

# Operation, probability, magnitude of 0 … 9; twice.
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

Array = npt.NDArray[np.float64]

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


def steps(codes: Array, magnitudes: Array, height: int, width: int) -> Array:
    """`operations.steps` of signed magnitudes, for images of this size."""
    return _steps(height, width)[(codes * 19 + magnitudes + 9).astype(np.int64)]


@lru_cache(maxsize=8)
def _steps(height: int, width: int) -> Array:
    """The step of each operation at each of the magnitudes −9 … 9: there are so few that none is made twice."""
    codes = torch.arange(len(OPERATIONS)).repeat_interleave(19)
    values = [_value(name, magnitude / 9, height, width) for name in OPERATIONS for magnitude in range(-9, 10)]
    return operations.steps(codes, torch.tensor(values, dtype=torch.float64), height, width).numpy()


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
