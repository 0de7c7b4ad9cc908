"""Reports of what was evaluated: a page for people, tables for papers, numbers for programs."""

from pathlib import Path

from prood.atomic import write_text
from prood.errors import NotFound, Unsupported
from prood.evaluation.results import Results
from prood.report.cards import card, write_cards
from prood.report.formats import csv_text, latex, markdown
from prood.report.openood import protocol_tables
from prood.report.page import page
from prood.report.results import results_page
from prood.report.table import results_table
from prood.report.verdicts import verdict_sentences

WRITERS = {".html": page, ".md": markdown, ".tex": latex, ".csv": csv_text}


def write_report(results: Results, path: Path | str) -> None:
    """Write a report whose kind says the ending: .html (one self-contained page), .md, .tex or .csv."""
    path = Path(path)
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise Unsupported(f"no report can be written as {path.name!r}: end it in {', '.join(WRITERS)}")
    if not len(results):
        raise NotFound("nothing was evaluated yet: there is nothing to report")
    write_text(path, writer(results))


__all__ = [
    "card",
    "protocol_tables",
    "results_page",
    "results_table",
    "verdict_sentences",
    "write_cards",
    "write_report",
]
