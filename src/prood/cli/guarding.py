"""prood guard, and prood init for its recipe"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from prood.cli.combining import Classes, Mean, Output, Probabilities, Std, Weights, numbers, shape_of
from prood.cli.options import Device, TrustCode, console, existing_paths
from prood.errors import BadValue

Classifier = Annotated[
    str | None,
    Argument(
        callback=existing_paths,
        help="model.onnx, model.pt2, timm:NAME, torchvision:NAME, hf:NAME or a run. Default: train a compact one.",
    ),
]
Outside = Annotated[
    str | None,
    Option(
        callback=existing_paths,
        help="Folder with images of other things, or an image set. Default: generated outliers, which are much weaker.",
    ),
]
Eps = Annotated[str | None, Option(help="Radius of the proofs: 0.01, 8/255 … Default: chosen by the images.")]
Size = Annotated[str | None, Option(help="Size of the discriminator, e.g. photo-XS. Default: chosen by --minutes.")]
Epochs = Annotated[float | None, Option(help="Epochs for its training. Default: chosen by --minutes.")]
Accept = Annotated[float | None, Option(help="Minimum share of the images inside to accept. Default: 0.95.")]
Provable = Annotated[
    str | None,
    Option(metavar="SHARE|default|strong", help="Share of the false rejections given to g. Default: `default`."),
]
Minutes = Annotated[float | None, Option(help="Minutes for everything. Default: 10.")]
Seed = Annotated[int | None, Option(help="Seed for dividing the images and for training. Default: 0.", min=0)]
Damaged = Annotated[
    str | None, Option(metavar="refuse|skip", help="What to do about unreadable pictures. Default: refuse.")
]
Image = Annotated[
    str | None, Option(metavar="CxHxW", help="Size of the guarded model's images. Default: the classifier's.")
]


def guard(
    run: Annotated[Path, Option(help="Folder for everything. The same command continues an interrupted run.")],
    classifier: Classifier = None,
    inside: Annotated[
        str | None,
        Option(
            callback=existing_paths,
            help="Folder with images of what the classifier is for, one subfolder per class; or an image set.",
        ),
    ] = None,
    outside: Outside = None,
    minutes: Minutes = None,
    eps: Eps = None,
    size: Size = None,
    epochs: Epochs = None,
    accept: Accept = None,
    provable: Provable = None,
    recipe: Annotated[Path | None, Option(help="Recipe from 'prood init', instead of the other options.")] = None,
    classes: Classes = None,
    weights: Weights = None,
    image: Image = None,
    mean: Mean = None,
    std: Std = None,
    output: Output = None,
    probabilities: Probabilities = None,
    damaged: Damaged = None,
    seed: Seed = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Do everything at once: train, combine, calibrate, prove, report.

    Prood first prints the expected time and memory. At the end one paragraph states which shares are accepted, rejected
    and provably rejected, and whether the guard pays. Other commands take the folder as a run: serve, certify, predict.
    """
    from prood import guarding

    choices, shown = _choices(locals()), console()
    verdict = guarding.guard(
        classifier, inside=inside, outside=outside, run=run, recipe=recipe, device=device, console=shown, **choices
    )
    shown.print(f"\n{verdict}\n", highlight=False, markup=False, soft_wrap=True)
    shown.print(
        f"report: {run / guarding.REPORT}   card: {run / guarding.CARD}   use it: prood serve {run}", soft_wrap=True
    )


def init(
    inside: Annotated[
        str,
        Option(
            callback=existing_paths, help="Folder with images of what the classifier is for, one subfolder per class."
        ),
    ],
    classifier: Classifier = None,
    outside: Outside = None,
    out: Annotated[Path, Option(help="File to write.")] = Path("guard.toml"),
    minutes: Minutes = None,
    eps: Eps = None,
    size: Size = None,
    epochs: Epochs = None,
    accept: Accept = None,
    provable: Provable = None,
    classes: Classes = None,
    weights: Weights = None,
    image: Image = None,
    mean: Mean = None,
    std: Std = None,
    output: Output = None,
    probabilities: Probabilities = None,
    damaged: Damaged = None,
    seed: Seed = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Write the recipe of 'prood guard' for editing.

    A comment in the recipe explains each key.
    """
    from prood import guarding

    choices = _choices(locals())
    print(guarding.init(out, classifier, inside=inside, outside=outside, device=device, **choices))
    print(f"wrote {out}: edit it, then prood guard --recipe {out} --run FOLDER")


def _choices(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `prood.guarding` among the options of a command."""
    from prood.models import WrapOptions

    names = ("size", "epochs", "accept", "provable", "minutes", "seed", "damaged")
    image = None if given["image"] is None else shape_of(given["image"])
    options = WrapOptions(
        **{name: given[name] for name in ("weights", "output", "probabilities")},
        joint_image=image,
        mean=numbers(given["mean"]),
        std=numbers(given["std"]),
    )
    classes = None if given["classes"] is None else str(given["classes"])
    return {name: given[name] for name in names} | {
        "eps": _radius(given["eps"]),
        "classes": classes,
        "options": options,
    }


def _radius(text: str | None) -> float | None:
    from prood.evaluation import parse_radii

    if text is None:
        return None
    (eps, *more) = parse_radii(text)
    if more:
        raise BadValue(f"--eps takes one radius, not {text!r}: the discriminator is trained for a single one")
    return eps
