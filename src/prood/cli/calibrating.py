"""prood calibrate MODEL SET, and --calibrate of the commands that make a joint model"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from typer import Argument, Option

from prood.cli.options import Device, JointModel, TrustCode, console, separated
from prood.errors import BadValue

if TYPE_CHECKING:
    from prood.studies.thresholds import Threshold

# Of the commands that make a joint model.
Calibrate = Annotated[
    str | None,
    Option("--calibrate", metavar="SET", help="Set the threshold from these in-distribution images, not trained on."),
]
Accept = Annotated[
    float | None, Option("--accept", help="Share of the in-distribution to accept, at least. Default: 0.95.")
]
Level = Annotated[float | None, Option("--level", help="Confidence of that guarantee. Default: 0.95.")]
Provable = Annotated[
    str | None,
    Option(
        "--provable", metavar="SHARE|default|strong", help="Share of the false rejections that g spends. Default: none."
    ),
]
Outside = Annotated[
    list[str] | None,
    Option("--outside", metavar="SET,…", help="Outliers that --provable default or strong is fitted against."),
]


def threshold_for(
    calibrate: str | None, accept: float | None, level: float | None, provable: str | None, outside: list[str] | None
) -> Threshold | None:
    """What these options ask for, and nothing without --calibrate."""
    from prood.studies.thresholds import Asked, Outliers, Threshold

    if calibrate is None:
        given = {"--accept": accept, "--level": level, "--provable": provable, "--outside": outside}
        if unused := [name for name, value in given.items() if value]:
            raise BadValue(f"{unused[0]} is about a threshold: name the images for it with --calibrate SET")
        return None
    asked = Asked(0.95 if accept is None else accept, 0.95 if level is None else level, provable)
    return Threshold(calibrate, asked, Outliers(separated(outside)))


def set_threshold(wanted: Threshold | None, run: Path, device: str | None = None) -> None:
    """Calibrate the model in a run that was just made, and say so."""
    if wanted is not None:
        found = wanted.set(run, device)
        if found.accuracy is not None:
            print(f"accuracy: {found.accuracy:.1%} on {wanted.images}")
        print(found.words)


def calibrate(
    model: JointModel,
    images: Annotated[str, Argument(metavar="SET", help="In-distribution images that the model was not trained on.")],
    accept: Annotated[
        float | None, Option(help="Share of the in-distribution to accept, e.g. 0.95. Default: print, change nothing.")
    ] = None,
    provable: Annotated[
        str | None,
        Option(metavar="SHARE|default|strong", help="Share of the false rejections that g spends. Default: as it is."),
    ] = None,
    level: Annotated[float, Option(help="Confidence of the guarantee.")] = 0.95,
    outside: Annotated[list[str] | None, Option(metavar="SET,…", help="Outliers to show the price on.")] = None,
    eps: Annotated[float | None, Option(help="Radius of the proofs. Default: the one of training.")] = None,
    limit: Annotated[int, Option(help="Images of each set outside.", min=1)] = 1000,
    out: Annotated[Path | None, Option(help="Folder for the calibrated model. Default: the model's own.")] = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Set the threshold from your own images, and how much of the rejections must be provable.

    With --outside, a table shows what proofs cost: at several acceptances, the share of the images outside that is
    rejected and provably rejected, for several shares that g may spend. The points `default` and `strong` cost at most
    1.5 and 5 points of false positives there. Choose a point with --accept and --provable.
    """
    from prood.studies.thresholds import Asked, Outliers, calibrate_model

    asked = None if accept is None and provable is None else Asked(0.95 if accept is None else accept, level, provable)
    outliers = Outliers(separated(outside), eps, limit)
    found = calibrate_model(model, images, asked, outliers=outliers, out=out, device=device)
    if found.table:
        shown = Table(*found.table[0], box=None)
        for line in found.table[1:]:
            shown.add_row(*line)
        console().print(shown)
    if found.accuracy is not None:
        print(f"accuracy: {found.accuracy:.1%} on {images}")
    print(found.words)
