"""prood committee: several discriminators as one"""

from pathlib import Path
from typing import Annotated

from typer import Option

from prood.cli.options import Device, separated
from prood.errors import BadValue


def committee(
    discriminator: Annotated[
        list[Path], Option(help="Run or file with a trained discriminator. Give this option two or more times.")
    ],
    inside: Annotated[
        str,
        Option(metavar="SET", help="At least 100 in-distribution images, held out from the training of every member."),
    ],
    run: Annotated[Path, Option(help="Folder for the committee.")],
    share: Annotated[
        list[str] | None,
        Option(metavar="SHARE,…", help="Share of the false rejections for each member; they sum to 1. Default: equal."),
    ] = None,
    device: Device = None,
) -> None:
    """Make one discriminator from several.

    It rejects what any member rejects, and a proof by one member is enough. The images put the members on one scale: if
    a share q of them may be rejected, each member rejects its part of q. Use the result like any discriminator:
    --discriminator RUN.
    """
    from prood.studies.committees import make_committee

    shares = None if share is None else [_number(one) for one in separated(share)]
    whole = make_committee(discriminator, run, inside=inside, shares=shares, device=device)
    print(f"wrote {run}: {len(whole.pairs())} members, g never exceeds {whole.ceiling:.4g}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadValue(f"{text!r} is not a share: write --share 0.5,0.5") from None
