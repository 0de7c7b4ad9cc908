"""prood results [FOLDER]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def results(
    folder: Annotated[Path, typer.Argument(help="Folder of published results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page to write, in Markdown.")] = Path("docs/results.md"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if the page is not what would be written.")
    ] = False,
) -> None:
    """Make the page of results from published files: our tables beside the paper's."""
    from prood.atomic import write_text
    from prood.errors import ProodError
    from prood.evaluation import results_page

    text = results_page(folder)
    if not check:
        write_text(out, text)
        typer.echo(f"wrote {out}")
    elif not out.is_file() or out.read_text(encoding="utf-8") != text:
        raise ProodError(f"{out} is not what {folder} says: write it with 'prood results {folder} --out {out}'")
