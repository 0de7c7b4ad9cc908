"""A classifier and a discriminator that look at images of different sizes, as parts of one joint model."""

from dataclasses import replace
from pathlib import Path

from prood.errors import Mismatch
from prood.models.discriminators import Discriminator
from prood.models.fitting import factor_of, fitted, misfit
from prood.models.wrapped.module import Wrapped
from prood.models.wrapped.opening import WrapOptions, facts_of, found_source, opened
from prood.models.wrapped.preprocessing import Preprocessing
from prood.models.wrapped.trust import trusting_code


def open_beside(
    classifier: str | Path, discriminator: Discriminator, *, options: WrapOptions | None = None
) -> tuple[Wrapped, Discriminator, tuple[str, ...] | None]:
    """The classifier of this name and a discriminator for the same images, as parts of a joint model; names of classes.

    The joint model takes the classifier's images, whose resolution is never lowered: a discriminator for smaller ones
    averages them first (`Discriminator.enlarged`). These are the images that the classifier cuts its centre from; or,
    where the discriminator does not fit these, those that are left, and nothing is cut. A discriminator for images at
    least as large as the classifier's stays as it is.
    """
    options = options or WrapOptions()
    with trusting_code(options.trust_code):
        source = found_source(str(classifier), options)
        if (image := options.joint_image) is None:
            own = facts_of(source, options, discriminator.image).preprocessing
            image, cuts = _joint_image(own, discriminator, classifier)
            if own.resize is not None and options.resize is None and not cuts:
                options = replace(options, resize=own.image[1:])
        g = fitted(discriminator, image)
        wrapped, names = opened(source, classifier, image, options)
        return wrapped, g, names


def _joint_image(
    own: Preprocessing, discriminator: Discriminator, classifier: str | Path
) -> tuple[tuple[int, int, int], bool]:
    """The shape of the joint model's images, and whether the classifier may cut its centre out of them."""
    channels, height, width = discriminator.image
    for sides, cuts in ((own.uncut, True), (own.image[1:], False)):
        if height >= sides[0] and width >= sides[1]:
            return discriminator.image, cuts
        if factor_of(discriminator.image, (channels, *sides)):
            return (channels, *sides), cuts
    ways = "train a discriminator of such a size, or say with --joint-image which images the joint model is to take"
    raise Mismatch(f"{classifier}: {misfit(discriminator.image, (channels, *own.image[1:]))}; {ways}")
