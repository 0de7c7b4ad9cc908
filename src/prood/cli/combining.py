"""prood combine, also under its former name wrap: a classifier and a discriminator as one model"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from prood.cli.calibrating import Accept, Calibrate, Level, Outside, Provable, set_threshold, threshold_for
from prood.cli.options import Device, Discriminator, Prior, TrustCode
from prood.errors import BadValue

# Shared with 'prood guard'.
Classes = Annotated[
    Path | None, Option(metavar="FILE", help="File with the names of the classes: one per line, or a JSON list.")
]
Weights = Annotated[Path | None, Option(metavar="FILE.safetensors", help="Weights for torchvision:NAME or timm:NAME.")]
Mean = Annotated[
    str | None,
    Option(metavar="M,…", help="Mean of each channel, subtracted from pixels in [0, 1]. Default: the classifier's."),
]
Std = Annotated[
    str | None, Option(metavar="S,…", help="Standard deviation of each channel. Default: the classifier's.")
]
Output = Annotated[str | None, Option(help="Name or number of the output with the logits. Default: the only output.")]
Probabilities = Annotated[
    bool | None,
    Option("--probabilities/--logits", help="What the classifier returns. Default: inferred from a few images."),
]


def combine(
    classifier: Annotated[
        str | None,
        Argument(
            help="Run, torchvision:NAME, timm:NAME, hf:FOLDER-OR-NAME, model.onnx, model.pt2 or model.pt (TorchScript)."
        ),
    ] = None,
    *,
    discriminator: Discriminator,
    run: Annotated[Path, Option(help="Folder for the joint model.")],
    shift: Annotated[
        float | None, Option(help="Δ, which is added to g: a larger one trusts the classifier more.")
    ] = None,
    prior: Prior = None,
    classes: Classes = None,
    weights: Weights = None,
    image: Annotated[
        str | None,
        Option(metavar="CxHxW", help="Size of the classifier's images: 224, 3x224x224 … Default: as its file states."),
    ] = None,
    resize: Annotated[
        str | None,
        Option(
            metavar="SIDE",
            help="Size before the centre crop: 256 (shorter side) or 256x256. Default: the classifier's.",
        ),
    ] = None,
    interpolation: Annotated[
        str | None, Option(help="Interpolation: bilinear, bicubic or nearest. Default: the classifier's.")
    ] = None,
    mean: Mean = None,
    std: Std = None,
    joint_image: Annotated[
        str | None, Option(metavar="CxHxW", help="Size of the joint model's images. Default: the classifier's.")
    ] = None,
    output: Output = None,
    probabilities: Probabilities = None,
    calibrate: Calibrate = None,
    accept: Accept = None,
    level: Level = None,
    provable: Provable = None,
    outside: Outside = None,
    former: Annotated[str | None, Option("--classifier", hidden=True, help="The former way to name it.")] = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Put a trained discriminator beside a classifier (ProoD-S).

    The joint model resizes, crops and normalises images as the classifier needs. A discriminator for smaller images
    averages blocks of pixels. ε and certificates refer to the images before these changes.

    Prood copies a classifier's file into the folder, and checks its hash when it loads the model. TorchScript files are
    programs: every command that uses the run needs --trust-code. See docs/wrap.md.
    """
    from prood import training
    from prood.models import WrapOptions
    from prood.models.wrapped import read_classes
    from prood.studies.shift import choice_of_shift

    name = former if classifier is None else classifier
    if name is None:
        raise BadValue(
            "the classifier is missing: name a run, a file or a package's model, as in 'prood combine model.onnx'"
        )
    chosen = choice_of_shift(shift, prior)
    if chosen is None:
        raise BadValue("the joint model needs its Δ: give --shift, or --prior, which determines it")
    options = WrapOptions(
        image=None if image is None else shape_of(image),
        resize=None if resize is None else _side(resize),
        interpolation=interpolation,
        mean=numbers(mean),
        std=numbers(std),
        output=output,
        probabilities=probabilities,
        weights=weights,
        joint_image=None if joint_image is None else shape_of(joint_image),
        classes=None if classes is None else read_classes(classes),
    )
    threshold = threshold_for(calibrate, accept, level, provable, outside)
    if threshold is not None:
        threshold.check(discriminator)
    given = None if options == WrapOptions() else options
    model = training.combine(name, discriminator, run, shift=chosen, options=given)
    _show(model, discriminator)
    print(f"wrote {run}")
    set_threshold(threshold, run, device)


def _show(made: Any, discriminator: Path) -> None:
    """Print what Prood inferred about a foreign classifier, and the size of the joint model's images."""
    from prood.models import load
    from prood.models.wrapped import Wrapped

    if isinstance(made.classifier, Wrapped):
        facts = made.classifier.facts
        kind = "probabilities" if facts.probabilities else "logits"
        print(f"classifier: {facts.kind}, {kind} for {facts.classes} classes; takes {facts.preprocessing}")
    image, own = made.discriminator.image, load(discriminator)[0]
    factor = image[1] // getattr(own, "image", image)[1]
    averages = f", of which the discriminator averages {factor}×{factor} pixels" if factor > 1 else ""
    print(f"images: {'×'.join(map(str, image))}{averages}")


def shape_of(text: str) -> tuple[int, int, int]:
    """A side, or channels and two sides."""
    sides = _sides(text, (1, 3), "224, or 3x224x224")
    return (3, sides[0], sides[0]) if len(sides) == 1 else (sides[0], sides[1], sides[2])


def _side(text: str) -> int | tuple[int, int]:
    sides = _sides(text, (1, 2), "256 for the shorter side, or 256x256")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _sides(text: str, counts: tuple[int, int], example: str) -> list[int]:
    """Whole numbers separated by x; `counts` says how many there may be."""
    try:
        sides = [int(side) for side in text.lower().replace("×", "x").split("x")]
    except ValueError:
        sides = []
    if len(sides) not in counts:
        raise BadValue(f"{text!r} is not a size: write {example}")
    return sides


def numbers(text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas."""
    try:
        return None if text is None else tuple(float(number) for number in text.split(","))
    except ValueError:
        raise BadValue(f"{text!r} is not a list of numbers: write 0.485,0.456,0.406") from None
