"""The sections of the page that show figures, each a function of the evaluations."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prood.evaluation.results import Evaluation
from prood.evaluation.words import labels, radius_text
from prood.report.charts import KINDS, has_certificate, histogram, over_radius, roc_curves
from prood.report.gallery import gallery, shown_each
from prood.report.html_tables import attack_table
from prood.report.markup import Html, element

COLOURS = 8
STOPPED = (
    " The attack leaves an image alone as soon as it cannot change a metric any more, and does not begin where the "
    "certificate already excludes that: such images look as if the attack had found little."
)


@dataclass(frozen=True)
class View:
    """The evaluations that count, and what they are called and coloured throughout the page."""

    evaluations: list[Evaluation]

    @property
    def radii(self) -> list[float]:
        return sorted({item.eps for item in self.evaluations})

    @property
    def colours(self) -> dict[str, str]:
        models = dict.fromkeys(item.model for item in self.evaluations)
        return {model: f"m{place % COLOURS}" for place, model in enumerate(models)}

    @property
    def labels(self) -> dict[str, str]:
        return labels(item.outside for item in self.evaluations)

    @property
    def stopped(self) -> str:
        """What has to be said of attacked scores that need not be the highest there are."""
        return STOPPED if any(item.stop == "auc" for item in self.evaluations) else ""

    @property
    def kinds(self) -> set[str]:
        """The marks that occur: a legend leaves out the others."""
        attacked = {"attacked"} if any(item.aauc is not None for item in self.evaluations) else set()
        proved = {"certified", "guaranteed"} if any(map(has_certificate, self.evaluations)) else set()
        return {"inside", "clean"} | attacked | proved

    def cases(self) -> Iterator[tuple[str, list[Evaluation]]]:
        """The evaluations by in- and out-distribution, with a name for each such pair."""
        short = self.labels
        several = len({item.inside for item in self.evaluations}) > 1
        pairs = dict.fromkeys((item.inside, item.outside) for item in self.evaluations)
        for inside, outside in pairs:
            name = f"{short[outside]} (in: {inside})" if several else short[outside]
            yield name, [item for item in self.evaluations if (item.inside, item.outside) == (inside, outside)]

    def at(self, eps: float, evaluations: list[Evaluation]) -> list[Evaluation]:
        return [item for item in evaluations if item.eps == eps]


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


def scores_section(view: View) -> Html | None:
    def panels(name: str, items: list[Evaluation]) -> list[Html]:
        return [chart for item in items if (chart := histogram(item, name))]

    words = (
        "One panel a model: how the scores of in-distribution images compare with those of out-of-distribution images "
        "as they are (clean), after the attack (attacked), and with the proved upper bound of what any attack could "
        "reach (certified). The scale is the model's own score; what lies beyond the plotted range is counted in the "
        "outermost bins, and heights grow with the square root of the share of images. 95% of the in-distribution "
        "lie to the right of the thin vertical line." + view.stopped
    )
    marks = legend([(name, kind) for kind, name in KINDS.items() if kind in view.kinds], "steps")
    blocks = _blocks(view, panels, "panels small")
    return section("scores", "Scores", words, marks, *blocks) if blocks else None


def roc_section(view: View) -> Html | None:
    figures = []
    for name, items in view.cases():
        for eps in view.radii:
            chart = roc_curves(view.at(eps, items), name, view.colours)
            if chart:
                tag = element("span", f"ε = {radius_text(eps)}", class_="tag")
                figures.append(element("div", chart, tag, data_eps=f"{eps!r}", data_outside=name, class_="panel"))
    words = (
        "How much of the out-distribution passes when a given share of the in-distribution does. The dotted curve is "
        "the guaranteed one: no attack within the radius gets below it. Models without a certificate have none."
    )
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
    count = shown_each(view.evaluations)

    def rows(name: str, items: list[Evaluation]) -> list[Html]:
        return [row for item in items if (row := gallery(item, name, count))]

    words = (
        "The out-of-distribution images about which each model is most confident after the attack, or about which the "
        "least is proved: before and after the attack, with the confidence clean → attacked ≤ certified." + view.stopped
    )
    blocks = _blocks(view, rows, "galleries")
    return section("gallery", "Gallery", words, *blocks) if blocks else None


def attack_section(view: View) -> Html | None:
    tables = []
    for eps in view.radii:
        table = attack_table(view.at(eps, view.evaluations), view.labels)
        if table:
            summary = element("summary", element("h3", f"ε = {radius_text(eps)}"))
            tables.append(element("details", summary, table, open=True, data_eps=f"{eps!r}"))
    words = (
        "What the attack did and cost. An image is settled where its certificate shows that there is nothing left to "
        "find."
    )
    return section("attack", "Attack", words, *tables) if tables else None


def _blocks(view: View, content: Callable[[str, list[Evaluation]], list[Html]], kind: str) -> list[Html]:
    """A foldable block for each out-distribution, with a part for each radius."""
    blocks = []
    for name, items in view.cases():
        parts = []
        for eps in view.radii:
            inner = content(name, view.at(eps, items))
            if inner:
                head = element("h4", f"ε = {radius_text(eps)}")
                parts.append(element("div", head, element("div", *inner, class_=kind), data_eps=f"{eps!r}"))
        if parts:
            summary = element("summary", element("h3", name))
            blocks.append(element("details", summary, *parts, open=True, data_outside=name))
    return blocks


def _curves(view: View, figures: list[Html], kinds: Iterable[str], name: str, title: str, words: str) -> Html | None:
    """A section of curves, with a legend of the models' colours and one of the strokes of these kinds."""
    models = legend([(model, f"clean {colour}") for model, colour in view.colours.items()], "line")
    strokes = legend([(kind, f"{kind} ink") for kind in kinds if kind in view.kinds], "line")
    marks = element("div", models, strokes, class_="legends")
    return section(name, title, words, marks, element("div", *figures, class_="panels")) if figures else None
