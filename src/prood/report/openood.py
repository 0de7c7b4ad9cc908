"""Tables of OpenOOD's protocol, for every format."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from prood.evaluation.openood import METRICS, Protocol, protocols
from prood.evaluation.results import Evaluation
from prood.evaluation.words import MISSING, percent

WORDS = (
    "OpenOOD v1.5's protocol: images as they are, nothing attacked or proved. AUROC counts ties half; FPR95 is the "
    "share of the in-distribution that is rejected where 95% of the out-distribution is; AUPR takes the in- or the "
    "out-distribution for positive and interpolates. A mean is missing where a set of its group is."
)
HEADINGS = ["set", "group", *METRICS, "note"]


def tables_of(results: Iterable[Evaluation]) -> list[tuple[str, list[list[str]]]]:
    """A title and rows of cells, in percent, for each model and benchmark."""
    return [(_title(one), [_cells(one, place) for place in range(len(one.lines))]) for one in protocols(results)]


def protocol_tables(results: Iterable[Evaluation]) -> Group:
    """For the terminal; nothing if no benchmark was evaluated."""
    parts: list[RenderableType] = []
    for title, rows in tables_of(results):
        table = RichTable(*HEADINGS, box=None, padding=(0, 1, 0, 0), header_style="bold underline")
        for row in rows:
            table.add_row(*map(Text, row))
        parts += [Text(), Text(title, style="italic"), table]
    return Group(*parts)


def _title(one: Protocol) -> str:
    accuracy = "" if one.accuracy is None else f", accuracy {percent(one.accuracy)}%"
    return f"{one.model} on {one.benchmark.name}{accuracy}"


def _cells(one: Protocol, place: int) -> list[str]:
    line = one.lines[place]
    values = [MISSING if value is None else percent(value) for value in line.values]
    return [line.name, "" if line.mean else line.group, *values, line.note]
