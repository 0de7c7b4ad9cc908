"""prood wrap CLASSIFIER --discriminator RUN --shift Δ --run FOLDER"""

from pathlib import Path
from typing import Annotated

import typer

from prood.errors import BadValue


def wrap(
    classifier: Annotated[
        str,
        typer.Argument(
            help="torchvision:resnet50, timm:resnet18.a1_in1k, hf:FOLDER-OR-NAME, model.onnx, model.pt2, model.pt "
            "(TorchScript), or a run."
        ),
    ],
    discriminator: Annotated[Path, typer.Option(help="Run or file of a trained discriminator.")],
    shift: Annotated[float, typer.Option(help="Δ, added to g: larger trusts the classifier more.")],
    run: Annotated[Path, typer.Option(help="Folder for the guarded classifier.")],
    classes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names of the classes: one a line, or a JSON list.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE.safetensors", help="For torchvision: and timm:NAME; else pretrained."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="CxHxW", help="The images it takes: 224, 3x224x224 …; else what it says.")
    ] = None,
    resize: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Before the centre is cut out: 256 (shorter side) or 256x256.")
    ] = None,
    interpolation: Annotated[str | None, typer.Option(help="bilinear, bicubic or nearest.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="M,…", help="Subtracted from pixels in [0, 1].")] = None,
    std: Annotated[str | None, typer.Option(metavar="S,…", help="And divided by.")] = None,
    output: Annotated[str | None, typer.Option(help="Which of several outputs: a name or a number.")] = None,
    probabilities: Annotated[
        bool | None, typer.Option("--probabilities/--logits", help="What it returns; else seen from a few images.")
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="SET", help="Images for the threshold, in-distribution and not trained on: digits:validation"
        ),
    ] = None,
    tpr: Annotated[float, typer.Option(help="The share of in-distribution images to accept, at least.")] = 0.95,
    confidence: Annotated[float, typer.Option(help="How sure that is, over the draw of these images.")] = 0.95,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
) -> None:
    """Guard any classifier, with its own preprocessing, by a discriminator: the result is used like every run.

    The discriminator's images are the ones that everything is said of; the classifier gets them resized, cut and
    normalised as it wants. A classifier that is a file is copied into the folder, and checked by its hash when it is
    loaded. TorchScript files are programs: wrap only those that you trust. See docs/wrap.md.
    """
    from prood.models import WrapOptions
    from prood.wrapping import Calibrate, read_classes
    from prood.wrapping import wrap as guard

    options = WrapOptions(
        image=None if image is None else _image(image),
        resize=None if resize is None else _side(resize),
        interpolation=interpolation,
        mean=None if mean is None else _numbers(mean),
        std=None if std is None else _numbers(std),
        output=output,
        probabilities=probabilities,
        weights=weights,
        classes=None if classes is None else read_classes(classes),
    )
    if calibrate is None and (tpr, confidence) != (0.95, 0.95):
        raise BadValue("--tpr and --confidence are for a threshold: name the images for it with --calibrate")
    made = guard(
        classifier,
        discriminator,
        run,
        shift=shift,
        options=options,
        calibrate=None if calibrate is None else Calibrate(calibrate, tpr, confidence),
        device=device,
    )
    facts, detector = made.classifier.facts, made.detector
    kind = "probabilities" if facts.probabilities else "logits"
    print(f"classifier: {facts.kind}, {kind} of {facts.classes} classes; takes {facts.preprocessing}")
    if detector.threshold is not None:
        print(f"threshold: {detector.threshold:g}, at least {100 * tpr:g}% of the in-distribution is accepted")
    if made.accuracy is not None:
        print(f"accuracy: {made.accuracy:.1%} on {calibrate}")
    print(f"wrote {run}")


def _image(text: str) -> tuple[int, int, int]:
    sides = _whole(text)
    if len(sides) == 1:
        return 3, sides[0], sides[0]
    if len(sides) != 3:
        raise BadValue(f"{text!r} is no shape of an image: write 224, or 3x224x224")
    return sides[0], sides[1], sides[2]


def _side(text: str) -> int | tuple[int, int]:
    sides = _whole(text)
    if len(sides) > 2:
        raise BadValue(f"{text!r} is no size: write 256 for the shorter side, or 256x256")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _whole(text: str) -> list[int]:
    try:
        return [int(side) for side in text.lower().replace("×", "x").split("x")]
    except ValueError:
        raise BadValue(f"{text!r} is no size: write whole numbers, as in 224 or 3x224x224") from None


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise BadValue(f"{text!r} is no list of numbers: write 0.485,0.456,0.406") from None
