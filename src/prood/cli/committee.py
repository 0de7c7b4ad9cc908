"""prood committee: several discriminators as one"""

from pathlib import Path
from typing import Annotated

from typer import Option

from prood.cli.options import Device, separated
from prood.errors import BadValue


def committee(
    discriminator: Annotated[list[Path], Option(help="Run or file of a trained discriminator; give two or more.")],
    inside: Annotated[
        str, Option(metavar="SET", help="In-distribution images that no member was trained on, 100 or more.")
    ],
    run: Annotated[Path, Option(help="Folder for the committee.")],
    share: Annotated[
        list[str] | None,
        Option(metavar="SHARE,…", help="Each member's share of the false rejections, summing to 1. Default: equal."),
    ] = None,
    device: Device = None,
) -> None:
    """Make one discriminator of several: it rejects what any of them rejects, and one proof is enough.

    The images put the members on one scale: where the share q of them may be rejected, each member rejects its share of
    q. The folder is used like every discriminator's: --discriminator RUN.
    """
    from prood.studies.committees import make_committee

    shares = None if share is None else [_number(one) for one in separated(share)]
    made = make_committee(discriminator, run, inside=inside, shares=shares, device=device)
    print(f"wrote {run}: {len(made.pairs())} members, g never exceeds {made.ceiling:.4g}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadValue(f"{text!r} is not a share: write --share 0.5,0.5") from None
