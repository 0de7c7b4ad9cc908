"""The paper's main table: a neutral model of it, which every format renders, and its form for the terminal."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from prood.evaluation.results import Evaluation, Results
from prood.evaluation.words import METRICS, MISSING, Kind, labels, percent, radius_text, without_path

WHAT: dict[Kind, str] = {"auc": "AUC", "fpr": "FPR at 95% TPR", "proved": "Provably rejected at 95 / 90 / 80% accepted"}
STACKED: dict[Kind, tuple[str, ...]] = {
    "auc": ("AUC", "AAUC", "GAUC"),
    "fpr": ("FPR", "AFPR", "GFPR"),
    "proved": tuple(METRICS["proved"].values()),
}
"""As lines of a terminal's cell. For AUC and FPR, the worst case lies between the last two."""
TOLERATED = 0.03  # of accuracy: what lies further below the best accuracy buys its detection with it, and is greyed
MEANING = (
    "AUC is the probability that an in-distribution image scores strictly above an out-of-distribution one. "
    "GAUC is a proved lower bound of it when every out-of-distribution image may be changed by up to ε per pixel, "
    "AAUC what is left of it under our attacks: GAUC ≤ worst case ≤ AAUC ≤ AUC. "
    "FPR, GFPR and AFPR are the same for the share of out-of-distribution images that pass when 95% of the "
    "in-distribution does: smaller is better."
)
VERDICTS = (
    "Share of out-of-distribution images that are provably rejected, in percent. The threshold accepts 95, 90 or 80% "
    "of the in-distribution, and no change of up to ε per pixel lifts these images over it. Larger is better."
)
GREY_NOTE = "no accuracy, or over 3 points below the best: not compared"


@dataclass(frozen=True)
class Cell:
    """A fraction of 1 with its 95% bootstrap interval; `best` if no other model compared has a better one."""

    value: float | None
    interval: tuple[float, float] | None = None
    best: bool = False

    @property
    def text(self) -> str:
        return MISSING if self.value is None else percent(self.value)


@dataclass(frozen=True)
class Row:
    model: str
    cells: tuple[Cell, ...]
    grey: bool = False


@dataclass(frozen=True)
class Table:
    """All models at one radius. A row's cells are the accuracy, then for each of `sets` one cell for each of `metrics`.

    `sets` are the labels of the out-distributions, `metrics` the headings of those metrics that anything here has.
    """

    kind: Kind
    inside: str
    eps: float
    sets: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def any_grey(self) -> bool:
        return any(row.grey for row in self.rows)


def latest(results: Iterable[Evaluation]) -> list[Evaluation]:
    """One evaluation for each (model, inside, outside, eps): the last, in the place of the first."""
    return list({(item.model, item.inside, item.outside, item.eps): item for item in results}.values())


def widest(results: Iterable[Evaluation]) -> list[Evaluation]:
    """As `latest`, but on the most images of a set on which these weights were certified in this way.

    What is proved needs no attack, and where attacks have a budget they see fewer images than the certificates.
    """
    everything = list(results)
    groups: dict[tuple[object, ...], list[Evaluation]] = {}
    for one in everything:
        groups.setdefault(_alike(one), []).append(one)
    return [max(reversed(groups[_alike(one)]), key=lambda other: other.images) for one in latest(everything)]


def _alike(one: Evaluation) -> tuple[object, ...]:
    weights = (one.fingerprints.get("model"), one.fingerprints.get("inside"))
    return one.model, one.inside, one.outside, one.eps, one.certificate, one.threshold, *weights


def left_out(results: Iterable[Evaluation]) -> str:
    """A sentence about images that a budget left out of attacks or certificates, if there are any."""
    everything = list(results)
    shares: dict[tuple[int, int, int], list[str]] = {}
    for one, other in zip(latest(everything), widest(everything), strict=True):
        whole = max(one.available or one.images, other.available or other.images)
        if one.images < whole:
            shares.setdefault((whole, other.images, one.images), []).append(one.outside)
    if not shares:
        return ""
    every = len(shares) == 1 and set(*shares.values()) == {one.outside for one in everything}
    texts = [
        f"of {whole:,} images of {'each set' if every else ', '.join(dict.fromkeys(names))}, "
        + (f"{wide:,} were certified and {count:,} attacked" if wide > count else f"{count:,} were evaluated")
        for (whole, wide, count), names in shares.items()
    ]
    several = any(wide > count for _, wide, count in shares)
    note = " AUC, GAUC, AAUC and false positives are about those attacked, provable shares about all certified."
    return f"Left out: {'; '.join(texts)}.{note if several else ''}"


def tables(results: Iterable[Evaluation], kind: Kind = "auc") -> list[Table]:
    """A table for each in-distribution and radius, in order of appearance."""
    evaluations = widest(results) if kind == "proved" else latest(results)
    short = labels(item.outside for item in evaluations)
    groups: dict[tuple[str, float], list[Evaluation]] = {}
    for item in evaluations:
        groups.setdefault((item.inside, item.eps), []).append(item)
    return [_table(kind, group, short) for group in groups.values()]


def _table(kind: Kind, group: list[Evaluation], short: dict[str, str]) -> Table:
    found = {(item.model, item.outside): item for item in group}
    accurate = {item.model: item for item in group if item.accuracy is not None}
    outsides = list(dict.fromkeys(item.outside for item in group))
    metrics = [name for name in METRICS[kind] if any(item.value(name) is not None for item in group)]
    rows: dict[str, list[Cell]] = {}
    for model in dict.fromkeys(item.model for item in group):
        rows[model] = [_cell(accurate.get(model), "accuracy")]
        rows[model] += [_cell(found.get((model, outside)), metric) for outside in outsides for metric in metrics]
    accuracies = {model: cells[0].value for model, cells in rows.items() if cells[0].value is not None}
    least = max(accuracies.values(), default=0.0) - TOLERATED - 1e-9
    # Bare discriminators are compared with each other, where there is nothing else.
    compared = [model for model in accuracies if accuracies[model] >= least] or list(rows)
    _mark_best([rows[model] for model in compared], kind)
    sets = tuple(short[outside] for outside in outsides)
    headings = tuple(METRICS[kind][name] for name in metrics)
    table_rows = tuple(Row(model, tuple(cells), model not in compared) for model, cells in rows.items())
    return Table(kind, group[0].inside, group[0].eps, sets, headings, table_rows)


def _cell(evaluation: Evaluation | None, metric: str) -> Cell:
    if evaluation is None:
        return Cell(None)
    ends = evaluation.intervals.get(metric)
    return Cell(evaluation.value(metric), (ends[0], ends[1]) if ends else None)


def _mark_best(rows: list[list[Cell]], kind: Kind) -> None:
    """The best of each column, with all that print the same.

    A best value says something only where at least two models are compared, and where it is not the worst possible one.
    """
    for place, column in enumerate(zip(*rows, strict=True)):
        smaller = kind == "fpr" and place > 0
        texts = [cell.text for cell in column if cell.value is not None]
        top = (min if smaller else max)(texts, key=float, default="")
        if len(texts) > 1 and top != ("100.0" if smaller else "0.0"):
            for row in rows:
                row[place] = replace(row[place], best=row[place].text == top)


def results_table(results: Results, *kinds: Kind) -> Group:
    """For the terminal: a table for each in-distribution and radius, of AUCs unless other kinds are named.

    The best is bold, what is greyed is dim.
    """
    parts: list[RenderableType] = []
    note = left_out(results)
    for table in (table for kind in kinds or ("auc",) for table in tables(results, kind)):
        # Not the table's own title and caption: those would be broken to the width of a narrow table.
        title = f"In: {without_path(table.inside)}, ε = {radius_text(table.eps)}; {WHAT[table.kind]} in percent"
        parts += [*([Text()] if parts else []), Text(title, style="italic"), _rich(table)]
        if table.any_grey:
            parts.append(Text(f"dim: {GREY_NOTE}", style="dim"))
    return Group(*parts, *([Text(), Text(note, style="yellow")] if note else []))


def _rich(table: Table) -> RichTable:
    """The metrics of a set are stacked, as side by side seven sets would need two hundred columns."""
    order = [table.metrics.index(name) for name in STACKED[table.kind] if name in table.metrics]
    drawn = RichTable(box=None, padding=(0, 1, 0, 0), header_style="bold underline")
    drawn.add_column("model", no_wrap=True)
    drawn.add_column("Acc", justify="right", no_wrap=True)
    drawn.add_column("", no_wrap=True)
    for name in table.sets:
        drawn.add_column(Text(name), justify="right")
    step = len(table.metrics)
    for row in table.rows:
        lines = [
            Text("\n").join(_styled(row.cells[1 + step * place + metric]) for metric in order)
            for place in range(len(table.sets))
        ]
        names = Text("\n".join(table.metrics[metric] for metric in order))
        drawn.add_row(Text(row.model), _styled(row.cells[0]), names, *lines, style="dim" if row.grey else "")
    return drawn


def _styled(cell: Cell) -> Text:
    return Text(cell.text, style="bold" if cell.best else "")
