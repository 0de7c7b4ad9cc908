"""The tables of the page: the results, and what the attack did."""

from collections.abc import Mapping, Sequence
from typing import Any

from prood.evaluation.results import Evaluation
from prood.evaluation.words import MISSING, percent, radius_text
from prood.report.markup import Html, element, joined
from prood.report.table import Cell, Row, Table

NAMES = {
    "forward": "Forward passes",
    "backward": "Backward passes",
    "settled": "Settled by certificate",
    "raised": "Score raised",
    "seconds": "Seconds",
    "by": "Found by",
}
SHARES = {"settled", "raised", "by"}  # fractions of 1


def scrolling(table: Html, label: str) -> Html:
    """A wide table scrolls inside its own box, also by keyboard, and not the page."""
    return element("div", table, class_="scroll", role="region", tabindex="0", aria_label=label)


def results_html(table: Table) -> Html:
    """Two rows of headings, then a row a model; a cell's title is its 95% interval."""
    step = len(table.metrics)
    spans = [element("th", name, colspan=step, scope="colgroup", class_="set") for name in table.sets]
    fixed = [element("th", name, rowspan=2, scope="col") for name in ("Model", "Acc")]
    classes = ["first", *[None] * (step - 1)] * len(table.sets)
    names = zip(table.metrics * len(table.sets), classes, strict=True)
    metrics = [element("th", name, scope="col", class_=kind) for name, kind in names]
    caption = f"ε = {radius_text(table.eps)}, in-distribution {table.inside}"
    body = [_row(row, step) for row in table.rows]
    head = element("thead", element("tr", *fixed, *spans), element("tr", *metrics))
    kind = "results wide" if len(metrics) > 9 else "results"  # a few columns would be too far apart over the whole page
    whole = element("table", element("caption", caption), head, element("tbody", *body), class_=kind)
    return scrolling(whole, f"{'/'.join(table.metrics)} table, {caption}")


def _row(row: Row, step: int) -> Html:
    cells = [_cell(cell, first=place > 0 and (place - 1) % step == 0) for place, cell in enumerate(row.cells)]
    return element("tr", element("th", row.model, scope="row"), *cells, class_="grey" if row.grey else None)


def _cell(cell: Cell, *, first: bool) -> Html:
    title = f"95% interval {percent(cell.interval[0])} to {percent(cell.interval[1])}" if cell.interval else None
    classes = " ".join(["first"] * first + ["best"] * cell.best)
    text = element("b", cell.text) if cell.best else cell.text
    return element("td", text, title=title, class_=classes or None)


def attack_table(evaluations: Sequence[Evaluation], labels: Mapping[str, str]) -> Html | None:
    """A row for every evaluation that was attacked, a column for whatever its attack says."""
    rows = [(item, _statistics(item)) for item in evaluations if item.attack or item.attacks]
    columns = list(dict.fromkeys(key for _, values in rows for key in values))
    if not columns:
        return None
    heads = [element("th", name, scope="col") for name in ("Model", "Out-distribution", "Preset", *columns)]
    body = []
    for item, values in rows:
        names = [element("td", name, class_="words") for name in (labels[item.outside], item.attacks or MISSING)]
        cells = [element("td", values.get(name, MISSING)) for name in columns]
        body.append(element("tr", element("th", item.model, scope="row"), *names, *cells))
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *body), class_="attack")
    return scrolling(table, f"Attack statistics at ε = {radius_text(rows[0][0].eps)}")


def _statistics(evaluation: Evaluation) -> dict[str, str]:
    found = [(key, _text(key, value)) for key, value in evaluation.attack.items()]
    return {NAMES.get(key, key.replace("_", " ").capitalize()): text for key, text in found if text is not None}


def _text(key: str, value: Any) -> str | None:
    """A scalar as people read it, a mapping of scalars as a list; None for anything that is neither."""
    if isinstance(value, str | bool):
        return value if isinstance(value, str) else "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = [(name, _text(key, item)) for name, item in value.items()]
        return ", ".join(f"{name} {text}" for name, text in parts if text is not None) or None
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{percent(value)}%" if key in SHARES else f"{value:.1f}" if value >= 100 else f"{value:.3g}"
    return None


def facts(values: Mapping[str, str]) -> Html:
    pairs = [element("div", element("dt", name), element("dd", text)) for name, text in values.items()]
    return element("dl", joined(*pairs), class_="facts")
