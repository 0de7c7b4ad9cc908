"""prood calibrate MODEL SET"""

from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Option

from prood.cli.options import Device, JointModel, console, separated


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
) -> None:
    """Set the threshold from your own images, and how much of the rejections must be provable.

    With --outside, a table shows what proofs cost: at several acceptances, the share of the images outside that is
    rejected and provably rejected, for several shares that g may spend. The points `default` and `strong` cost at most
    1.5 and 5 points of false positives there. Choose a point with --accept and --provable.
    """
    from prood.studies.gating import Asked, Outliers, calibrate_model

    asked = None if accept is None and provable is None else Asked(0.95 if accept is None else accept, level, provable)
    outliers = Outliers(separated(outside), eps, limit)
    found = calibrate_model(model, images, asked, outliers=outliers, out=out, device=device)
    if found.table:
        shown = Table(*found.table[0], box=None)
        for line in found.table[1:]:
            shown.add_row(*line)
        console().print(shown)
    print(found.words)
