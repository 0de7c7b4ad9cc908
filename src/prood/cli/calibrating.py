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

# For commands that make a joint model.
Calibrate = Annotated[
    str | None,
    Option("--calibrate", metavar="SET", help="Set the threshold from these held-out in-distribution images."),
]
Accept = Annotated[
    float | None, Option("--accept", help="Minimum share of the in-distribution to accept. Default: 0.95.")
]
Level = Annotated[float | None, Option("--level", help="Confidence in that share. Default: 0.95.")]
Provable = Annotated[
    str | None,
    Option(
        "--provable", metavar="SHARE|default|strong", help="Share of the false rejections given to g. Default: none."
    ),
]
Outside = Annotated[
    list[str] | None,
    Option("--outside", metavar="SET,…", help="Outliers against which --provable default or strong is fitted."),
]


def threshold_for(
    calibrate: str | None, accept: float | None, level: float | None, provable: str | None, outside: list[str] | None
) -> Threshold | None:
    """The threshold that these options ask for; None without --calibrate."""
    from prood.studies.thresholds import Asked, Outliers, Threshold

    if calibrate is None:
        given = {"--accept": accept, "--level": level, "--provable": provable, "--outside": outside}
        if unused := [name for name, value in given.items() if value]:
            raise BadValue(f"{unused[0]} needs a calibration: name its images with --calibrate SET")
        return None
    asked = Asked(0.95 if accept is None else accept, 0.95 if level is None else level, provable)
    return Threshold(calibrate, asked, Outliers(separated(outside)))


def set_threshold(wanted: Threshold | None, run: Path, device: str | None = None) -> None:
    """Calibrate the model in a new run, and print its threshold."""
    if wanted is not None:
        found = wanted.set(run, device)
        if found.accuracy is not None:
            print(f"accuracy: {found.accuracy:.1%} on {wanted.images}")
        print(found.words)


def calibrate(
    model: JointModel,
    images: Annotated[str, Argument(metavar="SET", help="Held-out in-distribution images.")],
    accept: Annotated[
        float | None,
        Option(help="Share of the in-distribution to accept, e.g. 0.95. Default: print the table, change nothing."),
    ] = None,
    provable: Annotated[
        str | None,
        Option(metavar="SHARE|default|strong", help="Share of the false rejections given to g. Default: keep it."),
    ] = None,
    level: Annotated[float, Option(help="Confidence in the share that is accepted.")] = 0.95,
    outside: Annotated[list[str] | None, Option(metavar="SET,…", help="Outliers for the table of prices.")] = None,
    eps: Annotated[float | None, Option(help="Radius of the proofs. Default: the radius of training.")] = None,
    limit: Annotated[int, Option(help="Images from each set of outliers.", min=1)] = 1000,
    out: Annotated[Path | None, Option(help="Folder for the calibrated model. Default: the model's folder.")] = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Set the threshold from your own images.

    With --outside, a table shows what proofs cost. Its rows are shares accepted, and shares of the false rejections
    given to g. Its cells show how many outliers are rejected and provably rejected. Choose a point with --accept and
    --provable. The points `default` and `strong` cost at most 1.5 and 5 points of false positives.
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
