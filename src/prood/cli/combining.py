"""prood combine, also under its former name wrap: a classifier and a discriminator as one model"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from prood.cli.calibrating import Accept, Calibrate, Level, Outside, Provable, set_threshold, threshold_for
from prood.cli.options import Device, Discriminator, Prior, TrustCode
from prood.errors import BadValue

# Also of 'prood guard'.
Classes = Annotated[Path | None, Option(metavar="FILE", help="Names of the classifier's classes: one a line, or JSON.")]
Weights = Annotated[Path | None, Option(metavar="FILE.safetensors", help="For torchvision:NAME and timm:NAME.")]
Mean = Annotated[
    str | None, Option(metavar="M,…", help="Subtracted from pixels in [0, 1]. Default: what the classifier says.")
]
Std = Annotated[str | None, Option(metavar="S,…", help="And divided by. Default: what the classifier says.")]
Output = Annotated[str | None, Option(help="Which of several outputs: a name or a number.")]
Probabilities = Annotated[
    bool | None,
    Option("--probabilities/--logits", help="What the classifier returns. Default: seen from a few images."),
]


def combine(
    classifier: Annotated[
        str | None,
        Argument(
            help="A run, torchvision:resnet50, timm:resnet18.a1_in1k, hf:FOLDER-OR-NAME, model.onnx, model.pt2 or "
            "model.pt (TorchScript)."
        ),
    ] = None,
    *,
    discriminator: Discriminator,
    run: Annotated[Path, Option(help="Folder for the joint model.")],
    shift: Annotated[float | None, Option(help="Δ, added to g: larger trusts the classifier more.")] = None,
    prior: Prior = None,
    classes: Classes = None,
    weights: Weights = None,
    image: Annotated[
        str | None,
        Option(metavar="CxHxW", help="Images of the classifier: 224, 3x224x224 … Default: what it says."),
    ] = None,
    resize: Annotated[
        str | None, Option(metavar="SIDE", help="Before the centre is cut out: 256 (shorter side) or 256x256.")
    ] = None,
    interpolation: Annotated[str | None, Option(help="bilinear, bicubic or nearest.")] = None,
    mean: Mean = None,
    std: Std = None,
    joint_image: Annotated[
        str | None, Option(metavar="CxHxW", help="Images of the joint model. Default: the classifier's.")
    ] = None,
    output: Output = None,
    probabilities: Probabilities = None,
    calibrate: Calibrate = None,
    accept: Accept = None,
    level: Level = None,
    provable: Provable = None,
    outside: Outside = None,
    former: Annotated[str | None, Option("--classifier", hidden=True, help="The former way to name it.")] = None,
    tpr: Annotated[float | None, Option(hidden=True, help="The former name of --accept.")] = None,
    confidence: Annotated[float | None, Option(hidden=True, help="The former name of --level.")] = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Put a discriminator beside a classifier, without further training (ProoD-S).

    The joint model takes the classifier's images and resizes, cuts and normalises them as the classifier wants. A
    discriminator for smaller images averages squares of pixels. ε and certificates are about the images as they come. A
    classifier that is a file is copied into the folder, and checked by its hash when it is loaded. TorchScript files
    are programs: they need --trust-code, wherever the run is used. With --calibrate the model gets its threshold, as by
    'prood calibrate'. See docs/wrap.md.
    """
    from prood import training
    from prood.models import WrapOptions
    from prood.models.wrapped import read_classes
    from prood.studies.shift import choice_of_shift

    name = former if classifier is None else classifier
    if name is None:
        raise BadValue("name the classifier: a run, a file or a package's model, as in 'prood combine model.onnx'")
    chosen = choice_of_shift(shift, prior)
    if chosen is None:
        raise BadValue("a joint model needs its Δ: give --shift, or --prior and it follows from that")
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
    accept, level = (tpr if accept is None else accept), (confidence if level is None else level)
    threshold = threshold_for(calibrate, accept, level, provable, outside)
    if threshold is not None:
        threshold.check(discriminator)
    said = None if options == WrapOptions() else options
    made = training.combine(name, discriminator, run, shift=chosen, options=said)
    _show(made, discriminator)
    print(f"wrote {run}")
    set_threshold(threshold, run, device)


def _show(made: Any, discriminator: Path) -> None:
    """What a look at somebody else's classifier told, and which images the joint model takes."""
    from prood.models import load
    from prood.models.wrapped import Wrapped

    if isinstance(made.classifier, Wrapped):
        facts = made.classifier.facts
        kind = "probabilities" if facts.probabilities else "logits"
        print(f"classifier: {facts.kind}, {kind} of {facts.classes} classes; takes {facts.preprocessing}")
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
    """So many whole numbers, with an x between them."""
    try:
        sides = [int(side) for side in text.lower().replace("×", "x").split("x")]
    except ValueError:
        sides = []
    if len(sides) not in counts:
        raise BadValue(f"{text!r} is not a size: write {example}")
    return sides


def numbers(text: str | None) -> tuple[float, ...] | None:
    """Numbers with commas between them."""
    try:
        return None if text is None else tuple(float(number) for number in text.split(","))
    except ValueError:
        raise BadValue(f"{text!r} is not a list of numbers: write 0.485,0.456,0.406") from None
