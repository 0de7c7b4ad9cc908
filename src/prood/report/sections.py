"""The sections of the page, each a function of the evaluations: tables, figures, and what the attack did."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from prood.evaluation.results import Evaluation, Results
from prood.evaluation.words import MISSING, Kind, labels, percent, radius_text, without_path
from prood.report.charts import KINDS, certified, histogram, over_radius, price_curves, roc_curves
from prood.report.gallery import gallery, shown_each
from prood.report.markup import Html, element, joined
from prood.report.openood import HEADINGS, WORDS, tables_of
from prood.report.table import GREY_NOTE, VERDICTS, Cell, Table, tables
from prood.report.verdicts import headings, rows, sentences, verdicts

TABLES: dict[Kind, tuple[str, str]] = {
    "auc": ("AUC", "Clean, guaranteed and attacked AUC for each out-distribution, in percent. Larger is better."),
    "fpr": (
        "False positives at 95% true positives",
        "The share of out-of-distribution images that pass where 95% of the in-distribution does, in percent: clean, "
        "guaranteed and attacked. Smaller is better.",
    ),
    "proved": ("Provably rejected", VERDICTS),
}
STOPPED = (
    " The attack leaves an image alone as soon as it cannot change a metric any more, and does not begin where the "
    "certificate already excludes that: such images look as if the attack had found little."
)
SHARES = {"settled": "Settled by certificate", "raised": "Score raised", "by": "Found by"}  # fractions of 1
NAMES = {"forward": "Forward passes", "backward": "Backward passes"} | SHARES


class View:
    """The evaluations that count, and what they are called and coloured throughout the page."""

    def __init__(self, evaluations: list[Evaluation]) -> None:
        self.evaluations = evaluations
        self.radii = sorted({item.eps for item in evaluations})
        models = dict.fromkeys(item.model for item in evaluations)
        self.colours = {model: f"m{place % 8}" for place, model in enumerate(models)}  # the style sheet has eight
        self.labels = labels(item.outside for item in evaluations)
        # What has to be said of attacked scores that need not be the highest there are.
        self.stopped = STOPPED if any(item.stop == "auc" for item in evaluations) else ""
        # The marks that occur: a legend leaves out the others.
        self.kinds = {"inside", "clean"}
        self.kinds |= {"attacked"} if any(item.aauc is not None for item in evaluations) else set()
        self.kinds |= {"certified", "guaranteed"} if any(map(certified, evaluations)) else set()

    def cases(self) -> Iterator[tuple[str, list[Evaluation]]]:
        """The evaluations by in- and out-distribution, with a name for each such pair."""
        several = len({item.inside for item in self.evaluations}) > 1
        for inside, outside in dict.fromkeys((item.inside, item.outside) for item in self.evaluations):
            name = self.labels[outside] + (f" (in: {inside})" if several else "")
            yield name, [item for item in self.evaluations if (item.inside, item.outside) == (inside, outside)]

    def missing(self, there: list[Evaluation], name: str, eps: float) -> list[Html]:
        """What a figure of this set at this radius does not show, and why."""
        at = f"{name} at ε = {radius_text(eps)}"
        absent = [model for model in self.colours if model not in {item.model for item in there}]
        lost = [item.model for item in there if item.scores is None]
        texts = [f"Not evaluated on {at}: {', '.join(absent)}."] if absent else []
        texts += [f"Scores on {at} are not beside the results: {', '.join(lost)}. Evaluate again."] if lost else []
        return [element("p", text, class_="note", data_eps=f"{eps!r}", data_outside=name) for text in texts]

    def by_radius(self, evaluations: list[Evaluation]) -> Iterator[tuple[float, list[Evaluation]]]:
        for eps in self.radii:
            yield eps, [item for item in evaluations if item.eps == eps]


def section(name: str, title: str, words: str, *content: str) -> Html:
    return element("section", element("h2", title), element("p", words, class_="about"), *content, id=name)


def legend(entries: Iterable[tuple[str, str]], drawn: str) -> Html:
    """Names, and the classes of their marks; `drawn` is 'line', or 'steps' for a filled box."""
    d = "M1 6H27" if drawn == "line" else "M2 11V2H26V11Z"
    items = [
        element("li", element("svg", element("path", d=d, class_=f"{drawn} {kind}"), viewBox="0 0 28 12"), name)
        for name, kind in entries
    ]
    return element("ul", *items, class_="legend")


def table_section(view: View, kind: Kind) -> Html:
    title, words = TABLES[kind]
    found = tables(view.evaluations, kind)
    notes = "Bold: the best. " + (f"Grey: {GREY_NOTE}. " if any(table.any_grey for table in found) else "")
    if any(cell.interval for table in found for row in table.rows for cell in row.cells):
        notes += "Point at a number for its 95% bootstrap interval."
    return section(kind, title, words, *map(_results, found), element("p", notes, class_="note"))


def scores_section(view: View) -> Html | None:
    words = (
        "One panel a model: how the scores of in-distribution images compare with those of out-of-distribution images "
        "as they are (clean), after the attack (attacked), and with the proved upper bound of what any attack could "
        "reach (certified). The scale is the model's own score; what lies beyond the plotted range is counted in the "
        "outermost bins, and heights grow with the square root of the share of images. 95% of the in-distribution "
        "lie to the right of the thin vertical line." + view.stopped
    )
    marks = legend([(name, kind) for kind, name in KINDS.items() if kind in view.kinds], "steps")
    blocks = _blocks(view, histogram, "panels small")
    return section("scores", "Scores", words, marks, *blocks) if blocks else None


def price_section(view: View) -> Html | None:
    words = (
        "Above the share of the in-distribution that you accept, read the share of the out-distribution that is "
        "rejected: clean (solid), attacked (dashed) and proved (dotted). "
        "Models without a certificate have no dotted line."
    )
    figures = _panels(view, price_curves)
    return _curves(view, figures, ("clean", "attacked", "guaranteed"), "price", "The price of proof", words)


def roc_section(view: View) -> Html | None:
    words = (
        "How much of the out-distribution passes when a given share of the in-distribution does. The dotted curve is "
        "the guaranteed one: no attack within the radius gets below it. Models without a certificate have none."
    )
    figures = _panels(view, roc_curves)
    return _curves(view, figures, ("clean", "attacked", "guaranteed"), "roc", "ROC curves", words)


def radius_section(view: View) -> Html | None:
    figures = [
        element("div", chart, data_outside=name, class_="panel")
        for name, items in view.cases()
        if (chart := over_radius(items, name, view.colours))
    ]
    words = (
        "What is left of the AUC as the attacker may change more. The true worst case lies in the shaded band between "
        "GAUC, which is proved, and AAUC, which our attack found; at ε = 0 both are the clean AUC. For a model without "
        "a certificate the band would reach down to 0, and only its AAUC is drawn."
    )
    return _curves(view, figures, ("attacked", "guaranteed"), "radius", "Over the radius", words)


def gallery_section(view: View) -> Html | None:
    words = (
        "The out-of-distribution images about which each model is most confident after the attack, or about which the "
        "least is proved: before and after the attack, with the confidence clean → attacked ≤ certified." + view.stopped
    )
    blocks = _blocks(view, partial(gallery, count=shown_each(view.evaluations)), "galleries")
    return section("gallery", "Gallery", words, *blocks) if blocks else None


def attack_section(view: View) -> Html | None:
    tables = []
    for eps, items in view.by_radius(view.evaluations):
        if table := _attack(items, view.labels):
            summary = element("summary", element("h3", f"ε = {radius_text(eps)}"))
            tables.append(element("details", summary, table, open=True, data_eps=f"{eps!r}"))
    words = "What the attack did and cost. "
    words += "An image is settled where its certificate shows that there is nothing left to find."
    return section("attack", "Attack", words, *tables) if tables else None


def verdicts_section(view: View) -> Html | None:
    """The numbers of somebody who deploys a model, at the model's own threshold."""
    found = verdicts(view.evaluations)
    words = (
        "At the threshold of each model: the share of the in-distribution that is accepted, the share of each "
        "out-distribution that passes, and the share of it that is provably rejected. A model without a threshold (–) "
        "is shown where 95% of the in-distribution is accepted; 'prood calibrate' gives it one."
    )
    radii = [eps for eps in view.radii if eps > 0]
    head = element("tr", *(element("th", text, scope="col") for text in headings(radii)))
    body = [
        element("tr", element("th", line[0], scope="row"), *(element("td", text) for text in line[1:]))
        for line in rows(found, radii)
    ]
    table = element("table", element("thead", head), element("tbody", *body), class_="attack")
    paragraphs = [element("p", text, class_="verdict") for text in sentences(found)]
    return section("verdicts", "Verdicts", words, *paragraphs, _scrolling(table, "Verdicts at each model's threshold"))


def openood_section(view: View) -> Html | None:
    """OpenOOD's protocol, where its lists were evaluated."""
    parts: list[str] = []
    for title, lines in tables_of(view.evaluations):
        head = element("tr", *(element("th", text, scope="col") for text in HEADINGS))
        body = [
            element("tr", element("th", line[0], scope="row"), *(element("td", text) for text in line[1:]))
            for line in lines
        ]
        table = element("table", element("thead", head), element("tbody", *body), class_="attack")
        parts += [element("h3", title), _scrolling(table, f"OpenOOD, {title}")]
    return section("openood", "OpenOOD", f"{WORDS} In percent.", *parts) if parts else None


def _blocks(view: View, draw: Callable[[Evaluation, str], Html | None], kind: str) -> list[Html]:
    """A foldable block for each out-distribution, and in it a part for each radius with what is drawn of each model."""
    blocks, anything = [], False
    for name, items in view.cases():
        parts = []
        for eps, there in view.by_radius(items):
            if drawn := [one for item in there if (one := draw(item, name))]:
                head = element("h4", f"ε = {radius_text(eps)}")
                parts.append(element("div", head, element("div", *drawn, class_=kind), data_eps=f"{eps!r}"))
                anything = True
            parts += view.missing(there, name, eps)
        if parts:
            summary = element("summary", element("h3", name))
            blocks.append(element("details", summary, *parts, open=True, data_outside=name))
    return blocks if anything else []


def _panels(view: View, draw: Callable[[list[Evaluation], str, Mapping[str, str]], Html | None]) -> list[Html]:
    """A panel for each out-distribution and radius, with curves of all models."""
    figures, notes = [], []
    for name, items in view.cases():
        for eps, there in view.by_radius(items):
            notes += view.missing(there, name, eps)
            if chart := draw(there, name, view.colours):
                tag = element("span", f"ε = {radius_text(eps)}", class_="tag")
                figures.append(element("div", chart, tag, data_eps=f"{eps!r}", data_outside=name, class_="panel"))
    return [*figures, *notes] if figures else []


def _curves(view: View, figures: list[Html], kinds: Iterable[str], name: str, title: str, words: str) -> Html | None:
    """A section of curves, with a legend of the models' colours and one of the strokes of these kinds."""
    models = legend([(model, f"clean {colour}") for model, colour in view.colours.items()], "line")
    strokes = legend([(kind, f"{kind} ink") for kind in kinds if kind in view.kinds], "line")
    marks = element("div", models, strokes, class_="legends")
    return section(name, title, words, marks, element("div", *figures, class_="panels")) if figures else None


def _scrolling(table: Html, label: str) -> Html:
    """A wide table scrolls inside its own box, also by keyboard, and not the page."""
    return element("div", table, class_="scroll", role="region", tabindex="0", aria_label=label)


def _results(table: Table) -> Html:
    """Two rows of headings, then a row a model; a cell's title is its 95% interval."""
    step = len(table.metrics)
    spans = [element("th", name, colspan=step, scope="colgroup", class_="set") for name in table.sets]
    fixed = [element("th", name, rowspan=2, scope="col") for name in ("Model", "Acc")]
    classes = ["first", *[None] * (step - 1)] * len(table.sets)
    names = zip(table.metrics * len(table.sets), classes, strict=True)
    metrics = [element("th", name, scope="col", class_=kind) for name, kind in names]
    head = element("thead", element("tr", *fixed, *spans), element("tr", *metrics))
    body = []
    for row in table.rows:
        cells = [_cell(cell, first) for cell, first in zip(row.cells, [None, *classes], strict=True)]
        body.append(element("tr", element("th", row.model, scope="row"), *cells, class_="grey" if row.grey else None))
    kind = "results wide" if len(metrics) > 9 else "results"  # a few columns would be too far apart over the whole page
    caption = f"ε = {radius_text(table.eps)}, in-distribution {without_path(table.inside)}"
    whole = element("table", element("caption", caption), head, element("tbody", *body), class_=kind)
    return _scrolling(whole, f"{'/'.join(table.metrics)} table, {caption}")


def tables_html(results: Results) -> Html:
    """The tables of AUC alone, for a notebook."""
    return joined(*(_results(table) for table in tables(results)))


def _cell(cell: Cell, first: str | None) -> Html:
    title = f"95% interval {percent(cell.interval[0])} to {percent(cell.interval[1])}" if cell.interval else None
    classes = " ".join(filter(None, (first, "best" if cell.best else None)))
    return element("td", element("b", cell.text) if cell.best else cell.text, title=title, class_=classes or None)


def _attack(evaluations: Sequence[Evaluation], short: Mapping[str, str]) -> Html | None:
    """A row for every evaluation that was attacked, a column for whatever its attack says."""
    rows = [(item, _statistics(item.attack)) for item in evaluations if item.attack or item.attacks]
    columns = list(dict.fromkeys(key for _, values in rows for key in values))
    if not columns:
        return None
    heads = [element("th", name, scope="col") for name in ("Model", "Out-distribution", "Preset", *columns)]
    body = []
    for item, values in rows:
        names = [element("td", name, class_="words") for name in (short[item.outside], item.attacks or MISSING)]
        cells = [element("td", values.get(name, MISSING)) for name in columns]
        body.append(element("tr", element("th", item.model, scope="row"), *names, *cells))
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *body), class_="attack")
    return _scrolling(table, f"Attack statistics at ε = {radius_text(rows[0][0].eps)}")


def _statistics(attack: dict[str, Any]) -> dict[str, str]:
    names = {key: NAMES.get(key, key.replace("_", " ").capitalize()) for key in attack}
    return {names[key]: text for key, value in attack.items() if (text := _text(key, value)) is not None}


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
