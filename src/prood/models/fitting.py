"""A discriminator for images that are larger than those it was trained on: it averages squares of their pixels."""

from collections.abc import Sequence

from prood.errors import Mismatch
from prood.models.discriminators import Discriminator


def fitted(discriminator: Discriminator, image: Sequence[int]) -> Discriminator:
    """The discriminator for images of this shape: itself, or itself behind an average of squares of pixels.

    One that `prood.discriminator` did not build does not say what it takes, and stays as it is.
    """
    if getattr(discriminator, "architecture", {}).get("name") != "discriminator":
        return discriminator
    own, wanted = discriminator.image, tuple(image)
    if own == wanted:
        return discriminator
    if factor := factor_of(own, wanted):
        return discriminator.enlarged(factor)
    raise Mismatch(misfit(own, wanted))


def misfit(own: Sequence[int], wanted: Sequence[int]) -> str:
    """Why a discriminator for images of one shape does not serve those of another, and which it would."""
    channels, height, width = own
    fault = f"a discriminator for images of {channels}×{height}×{width} cannot serve {'×'.join(map(str, wanted))}"
    if wanted[0] != channels:
        return f"{fault}: it needs images with {channels} channel{'s' if channels > 1 else ''}"
    below = max(1, min(wanted[1] // height, wanted[2] // width))
    fitting = [f"{channels}×{factor * height}×{factor * width}" for factor in (below, below + 1)]
    return f"{fault}: sizes that fit are its own times a whole number, here {' and '.join(fitting)}"


def factor_of(own: Sequence[int], wanted: Sequence[int]) -> int:
    """The whole number by which images of one shape are larger than those of another; 0 if there is none."""
    factor = wanted[1] // own[1]
    return factor if tuple(wanted) == (own[0], factor * own[1], factor * own[2]) else 0
