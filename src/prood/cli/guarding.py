"""prood guard, prood init: the whole way, with sensible choices"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from prood.cli.combining import Classes, Mean, Output, Probabilities, Std, Weights, numbers, shape_of
from prood.cli.options import Device, TrustCode, console, paths
from prood.errors import BadValue

Classifier = Annotated[
    str | None,
    Argument(
        callback=paths,
        help="model.onnx, model.pt2, timm:NAME, torchvision:NAME, hf:NAME or a run. Default: a compact one is trained.",
    ),
]
Outside = Annotated[
    str | None,
    Option(
        callback=paths, help="Images of other things: a folder, or a set by name. Default: made outliers, much weaker."
    ),
]
Eps = Annotated[str | None, Option(help="Radius of the proofs: 0.01, 8/255 … Default: by the images.")]
Size = Annotated[str | None, Option(help="Size of the discriminator, e.g. photo-XS. Default: by the time.")]
Epochs = Annotated[float | None, Option(help="Epochs of its training. Default: by the time.")]
Accept = Annotated[float | None, Option(help="Share of the images inside to accept. Default: 0.95.")]
Provable = Annotated[
    str | None,
    Option(metavar="SHARE|default|strong", help="Share of the false rejections that g spends. Default: default."),
]
Minutes = Annotated[float | None, Option(help="Time for everything. Default: 10.")]
Seed = Annotated[int | None, Option(help="Seed of the parts. Default: 0.", min=0)]
Damaged = Annotated[str | None, Option(metavar="refuse|skip", help="Pictures that cannot be read. Default: refuse.")]
Image = Annotated[str | None, Option(metavar="CxHxW", help="Images of the guarded model. Default: the classifier's.")]


def guard(
    run: Annotated[Path, Option(help="Folder for everything; a run that was killed continues there.")],
    classifier: Classifier = None,
    inside: Annotated[
        str | None,
        Option(callback=paths, help="Images of what the classifier is for, a folder for each class; or a set by name."),
    ] = None,
    outside: Outside = None,
    minutes: Minutes = None,
    eps: Eps = None,
    size: Size = None,
    epochs: Epochs = None,
    accept: Accept = None,
    provable: Provable = None,
    recipe: Annotated[
        Path | None, Option(help="A recipe that 'prood init' wrote, in place of the other options.")
    ] = None,
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
    """Guard a classifier, all in one: divide the images, train, combine, calibrate, prove, attack, report.

    Prints what it will take before it begins, and one paragraph at the end: what is accepted, what is rejected, what is
    provably rejected, and whether it pays. The folder is a run like every other: prood serve, certify, predict take it.
    """
    from prood import guarding

    choices, shown = _choices(locals()), console()
    made = guarding.guard(
        classifier, inside=inside, outside=outside, run=run, recipe=recipe, device=device, console=shown, **choices
    )
    shown.print(f"\n{made}\n", highlight=False, markup=False, soft_wrap=True)
    shown.print(
        f"report: {run / guarding.REPORT}   card: {run / guarding.CARD}   use it: prood serve {run}", soft_wrap=True
    )


def init(
    inside: Annotated[
        str, Option(callback=paths, help="Images of what the classifier is for, a folder for each class.")
    ],
    classifier: Classifier = None,
    outside: Outside = None,
    out: Annotated[Path, Option(help="The file that is written.")] = Path("guard.toml"),
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
    """Write the recipe that 'prood guard' would use, every key with its meaning, for you to edit."""
    from prood import guarding

    choices = _choices(locals())
    print(guarding.init(out, classifier, inside=inside, outside=outside, device=device, **choices))
    print(f"wrote {out}: edit it, then prood guard --recipe {out} --run FOLDER")


def _choices(given: dict[str, Any]) -> dict[str, Any]:
    """What `prood.guarding` takes, of the options of a command."""
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
        raise BadValue(f"--eps takes one radius, not {text!r}: it is what the discriminator is trained for")
    return eps
