"""prood results [FOLDER]"""

from pathlib import Path
from typing import Annotated

import typer


def results(
    folder: Annotated[Path, typer.Argument(help="Folder of published results.")] = Path("results"),
    docs: Annotated[
        Path, typer.Option(help="Folder for the pages results.md and experiments.md, and for figures.")
    ] = Path("docs"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a page is not what would be written.")
    ] = False,
) -> None:
    """Make the pages of results and of experiments from published files: our tables beside the paper's."""
    from prood.atomic import write_text
    from prood.report import results_page
    from prood.report.experiments.document import PAGE, experiments_page, figures, write_page

    page, text = docs / "results.md", results_page(folder)
    if not check:
        write_text(page, text)
        typer.echo(f"wrote {page}")
        typer.echo(f"wrote {write_page(folder, docs)}")
        return
    _check(page, text, folder, docs)
    _check(docs / PAGE, experiments_page(folder), folder, docs)
    for file in figures(folder, docs):
        _check(file, None, folder, docs)


def _check(page: Path, text: str | None, folder: Path, docs: Path) -> None:
    """That the file is there and, where a text is given, says that."""
    from prood.errors import Mismatch

    if not page.is_file() or (text is not None and page.read_text(encoding="utf-8") != text):
        raise Mismatch(f"{page} is not what {folder} says: write it with 'prood results {folder} --docs {docs}'")
