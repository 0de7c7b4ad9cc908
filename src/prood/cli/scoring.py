"""prood score SOURCE… --model MODEL --out FOLDER"""

from __future__ import annotations

from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Option

from prood.cli.options import AnyDetector, Device, TrustCode
from prood.errors import BadValue, NotFound

if TYPE_CHECKING:
    from prood.scoring import Engine, Request


def score(
    sources: Annotated[
        list[str],
        Argument(
            metavar="SOURCE…",
            callback=lambda given: _sources(given),
            help="Folders (searched for pictures, Parquet files and tar archives), lists (.txt), CSV, Parquet, "
            "WebDataset tars, .npz or names of image sets.",
        ),
    ],
    model: AnyDetector,
    out: Annotated[Path, Option(metavar="FOLDER", help="Folder for the scores: a Parquet file for each shard.")],
    eps: Annotated[
        str | None, Option(metavar="RADIUS,…", help="Radii to prove bounds for: 0.01,8/255. Default: no proofs.")
    ] = None,
    bound: Annotated[str, Option(help="Way of bounding: best, ibp, crown-ibp, alpha-crown or crown.")] = "best",
    norm: Annotated[str, Option(help="Norm of the ball: linf, l2 or l1.")] = "linf",
    radius: Annotated[
        bool,
        Option(
            "--radius",
            help="Search the largest radius at which each image provably stays rejected: about 20 more bounds.",
        ),
    ] = False,
    columns: Annotated[
        str | None, Option(metavar="NAME,…", help="Columns to write, including `error`. Default: all.")
    ] = None,
    column: Annotated[
        str | None, Option(help="Column with the images, in Parquet and CSV. Default: image, bytes or path.")
    ] = None,
    rows: Annotated[int | None, Option(help="Images per shard. Default: 10,000, fewer in small sets.", min=1)] = None,
    engine: Annotated[
        str, Option(help="Where to compute: local (processes on this machine) or ray (a Ray cluster).")
    ] = "local",
    shard: Annotated[
        str, Option(metavar="I/N", help="Score every N-th shard only, from shard I on; counts from 0.")
    ] = "0/1",
    workers: Annotated[
        int | None, Option(help="Number of processes, or of actors on Ray. Default: one per core or GPU.", min=1)
    ] = None,
    gpus: Annotated[float, Option(help="GPUs per actor on Ray; with 0.25, four actors share one.", min=0)] = 0.0,
    trust_code: TrustCode = False,
    device: Device = None,
) -> None:
    """Score any number of images into a folder of Parquet files.

    Each row has an image's label, confidence, p(in), verdict, proved bounds and hash. In the row of an unreadable
    image, `error` gives the reason. The same command continues after any interruption, and no row is lost or doubled.
    With --shard many machines write into one shared folder: see docs/guides/scale.md.
    """
    from prood.evaluation import parse_radii
    from prood.scoring import Engine, Options, Request

    index, count = shares(shard)
    request = Request(
        sources=tuple(sources),
        model=model,
        eps=() if eps is None else tuple(parse_radii(eps)),
        radius=radius,
        columns=None if columns is None else tuple(columns.split(",")),
        column=column,
        rows=rows,
        trust_code=trust_code,
        options=Options(bound=bound, norm=norm),  # type: ignore[arg-type]  # wrong words are refused there
    )
    carry_out(request, out, Engine(engine, workers, gpus, index, count, device))  # type: ignore[arg-type]


def carry_out(request: Request, out: Path, where: Engine) -> None:
    """Score into the folder, and print totals."""
    from prood.scoring import score

    console = Console(stderr=True, emoji=False, highlight=False, soft_wrap=True)
    found = score(request, out, where, console=console)
    totals, whose = (
        (found.here, f"shards {where.index}/{where.count}") if found.totals is None else (found.totals, "all shards")
    )
    if not found.shards:
        print("nothing was missing")
    facts = [f"{totals['images']:,} images"]
    facts += [f"{number:,} {name}" for name, number in sorted(totals.items()) if name not in ("images", "errors")]
    print(f"{whose}: {', '.join(facts)}; {totals['errors']:,} could not be read")
    print(f"wrote {out}")


def _sources(given: list[str]) -> list[str]:
    for source in given:
        may_be_a_set = ":" in source or not ("/" in source or Path(source).suffix)
        if not may_be_a_set and not exists(source):
            raise NotFound(f"there is no file or folder {source}: check its path")
    return given


def shares(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isascii() and index.isdigit() and count.isascii() and count.isdigit() and int(count)):
        raise BadValue(f"{text!r} does not name a part of the shards: write 0/8 for the first of eight")
    return int(index), int(count)
