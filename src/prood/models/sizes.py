"""Sizes of networks in words: `p4 32s2 64s2 64 fc128`. A table has names for some, and a size may be spelled out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from prood.bounds import BlockedLinear, Normalise
from prood.errors import BadValue, UnknownName

Numbers = Sequence[float] | None  # one for each channel
SIZES = {
    # The paper's two (its architecture table): S for 32×32, SR for 224×224.
    "S": "128 256s2 256 p2 fc128",
    "SR": "128 p2 256s2 p2 256 p2 fc128",
    # The others of its size ablation; XL_b and C1 are the same network.
    "XS": "64 128s2 128 p2 fc128",
    "SR2": "128 256s2 p2 256 p2 fc128",
    "XL_b": "128 128 256s2 256 256 fc512",
    "C1": "128 128 256s2 256 256 fc512",
    "C2": "256 256 512s2 512 512 fc1024",
    "C3": "256 512s2 512 fc512",
    "C3s": "256 512s2 512 p2 fc128",
    "C4": "512 1024s2 512 fc128",
    # For 28×28 digits.
    "digits": "16s2 fc64",
    "digits-XS": "4s2 fc16",
    "digits-S": "8s2 fc32",
    "digits-L": "32s2 fc64",
    "digits-deep": "16s2 32s2 fc64",
    # For photographs averaged down to about 56×56, such as `p4 photo-M` at 224×224 (docs/guides/large-images.md).
    "photo-XS": "32s2 64s2 p2 fc64",
    "photo-S": "32s2 64s2 64 fc128",
    "photo-M": "64s2 128s2 128 p2 fc128",
    "photo-L": "64 128s2 128s2 p2 fc128",
    "photo-XL": "64 128s2 256s2 256 p2 fc128",
}
"""`128` is a 3×3 convolution with 128 channels and a ReLU, `s2` its stride, `p2` AvgPool2d(2), `fc128` a linear layer
with a ReLU. All of them end in a `NegativeLinear`."""

CLASSIFIER_SIZES = {
    "XL": "128 128 256s2 256 256 fc512 fc512",  # GOOD's for 32×32: the body of discriminator C1, and two hidden layers
    "digits": "32s2 64s2 fc128",
}
"""Sizes of certified classifiers, in the same words; a linear layer with the classes follows."""

_TABLES = {"discriminator": ("discriminator", SIZES), "certified-classifier": ("classifier", CLASSIFIER_SIZES)}

_POOL = re.compile(r"p([2-9]|[1-9][0-9]{1,4})")
_WORD = re.compile(r"p([2-9]|[1-9][0-9]{1,4})|[1-9][0-9]{0,4}(s[1-9][0-9]{0,2})?|fc[1-9][0-9]{0,4}")
_MEANING = (
    "pN with N ≥ 2 (average N×N pixels), N or NsS (a convolution with N channels and stride S) or fcN (a linear layer)"
)


def words_of(size: object, sizes: Mapping[str, str] = SIZES, *, kind: str = "discriminator") -> tuple[str, ...]:
    """The layers of a size: a name from the table, words, or averages in front of a name such as `p4 photo-M`.

    What is neither is refused with one line; the images that it is for are not known here.
    """
    if not isinstance(size, str) or not size.split():
        raise BadValue(f"the size of a {kind} must be a text such as '{next(iter(sizes))}', not {size!r}")
    given = size.split()
    if given[-1] in sizes:
        given[-1:] = sizes[given[-1]].split()
    elif len(given) == 1 and not _WORD.fullmatch(given[0]):
        raise UnknownName(
            f"unknown {kind} size {size!r:.80}: choose one of {', '.join(sizes)}, "
            "or spell it out, such as 'p4 32s2 64s2 64 fc128'"
        )
    if wrong := next((word for word in given if not _WORD.fullmatch(word)), None):
        raise BadValue(f"the size {size!r:.80} of a {kind} has the word {wrong!r:.40}: a word is {_MEANING}")
    flat = [word.startswith("fc") for word in given]
    if not flat[-1] or flat != sorted(flat):
        raise BadValue(f"the size {size!r:.80} of a {kind} must end in linear layers, such as '… 64 fc128'")
    return tuple(given)


def check_size(spec: Mapping[str, Any]) -> None:
    """Refuse an architecture with a size that nothing can be built of; of other architectures nothing is known."""
    name = spec.get("name")
    if "size" in spec and isinstance(name, str) and name in _TABLES:
        kind, sizes = _TABLES[name]
        words_of(spec["size"], sizes, kind=kind)


def averaged(size: str, factor: int) -> str:
    """This size behind an average of `factor`×`factor` pixels."""
    return f"p{factor} {size}"


def pool_of(word: str) -> int | None:
    """N of a word pN."""
    found = _POOL.fullmatch(word)
    return int(found[1]) if found else None


def layers_of(
    kind: str, sizes: Mapping[str, str], size: str, image: Sequence[int], mean: Numbers, std: Numbers
) -> tuple[list[nn.Module], int]:
    """Layers with bound rules, as the words of the size say, and how many values come out."""
    channels = image[0]
    layers: list[nn.Module] = [Normalise(mean or [0.5] * channels, std or [0.25] * channels)]
    shape = list(image)
    for word in words_of(size, sizes, kind=kind):
        if pool := pool_of(word):
            layers.append(nn.AvgPool2d(pool))
            shape[1:] = [side // pool for side in shape[1:]]
        elif word.startswith("fc"):
            layers += [nn.Flatten()] if len(shape) > 1 else []
            layers += [BlockedLinear(math.prod(shape), int(word[2:])), nn.ReLU()]
            shape = [int(word[2:])]
        else:
            width, _, stride = word.partition("s")
            layers += [nn.Conv2d(shape[0], int(width), 3, stride=int(stride or 1), padding=1), nn.ReLU()]
            shape = [int(width), *(-(-side // int(stride or 1)) for side in shape[1:])]
        if not math.prod(shape):
            raise BadValue(f"images of {image[1]}×{image[2]} are too small for a {kind} of size {size!r:.80}")
    return layers, math.prod(shape)
