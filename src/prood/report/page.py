"""The report as one self-contained HTML page: style, script, charts and pictures are all inside."""

from collections.abc import Iterable
from importlib.resources import files
from statistics import fmean

from prood.evaluation.results import Results
from prood.evaluation.words import percent, radius_text, without_path
from prood.report import sections
from prood.report.markup import Html, element
from prood.report.sections import View
from prood.report.table import Table, latest, left_out, tables, widest

EXPLANATION = Html(
    "Every model gives an image a score: how sure it is that the image is of the kind it was trained on. "
    "<b>AUC</b> is how often an in-distribution image scores strictly above an out-of-distribution one. "
    "<b>AAUC</b> is what an attack leaves of it that may change every out-of-distribution image by up to ε per pixel. "
    "<b>GAUC</b> is proved: no attack of that size, known or unknown, can push the AUC below it. "
    "So the worst case lies between GAUC and AAUC. A GAUC of 0 means that nothing is proved, not that all is lost."
)
CHAIN = (("GAUC", "proved"), ("worst case", "unknown"), ("AAUC", "attacked"), ("AUC", "clean"))


def page(results: Results) -> str:
    view, wide = View(latest(results)), View(widest(results))
    contents = {
        "Summary": _headlines(view),
        "Verdicts": sections.verdicts_section(wide),
        "AUC": sections.table_section(view, "auc"),
        "FPR": sections.table_section(view, "fpr"),
        "Proved": sections.table_section(wide, "proved"),
        "OpenOOD": sections.openood_section(view),
        "Price": sections.price_section(wide),
        "Radius": sections.radius_section(view),
        "Scores": sections.scores_section(view),
        "ROC": sections.roc_section(view),
        "Gallery": sections.gallery_section(view),
        "Attack": sections.attack_section(view),
    }
    shown = {title: content for title, content in contents.items() if content is not None}
    links = [element("a", title, href=f"#{title.lower()}") for title in shown]
    body = element(
        "body",
        _header(view, results),
        element("nav", element("div", *links, class_="links"), _choice(view), aria_label="Sections"),
        element("main", *shown.values()),
        element("footer", f"Written by Prood {view.evaluations[-1].version}."),
        element("script", _resource("page.js")),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"Prood report: {_several(without_path(item.inside) for item in view.evaluations)}"),
        element("style", _resource("page.css")),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _resource(name: str) -> Html:
    return Html(files("prood.report").joinpath(name).read_text(encoding="utf-8"))


def _several(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def _header(view: View, results: Results) -> Html:
    items = view.evaluations
    facts = {
        "In-distribution": _several(without_path(item.inside) for item in items),
        "Radii ε": ", ".join(map(radius_text, view.radii)),
        "Attack": _several(item.attacks for item in items) or "none",
        "Images per set": _several(f"{count:,}" for count in sorted({item.images for item in items})),
        "Left out": left_out(results).removeprefix("Left out: "),
        "Seed": _several(item.seed for item in items),
        "Machine": _several(item.machine for item in items),
        "Version": _several(item.version for item in items),
    }
    shown = {name.lower() for name in facts}
    for key, value in results.facts.items():
        if isinstance(value, str | int | float) and key.lower() not in shown:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            facts[key.replace("_", " ").capitalize()] = text
    pairs = [element("div", element("dt", name), element("dd", text)) for name, text in facts.items() if text]
    links = [element("span", element("b", name), element("small", kind)) for name, kind in CHAIN]
    chain = [part for link in links for part in (element("i", "≤"), link)][1:]
    return element(
        "header",
        element("p", "Prood report", class_="eyebrow"),
        element("h1", "Certified out-of-distribution detection"),
        element("p", EXPLANATION, class_="lead"),
        element("p", *chain, class_="chain"),
        element("dl", *pairs, class_="facts"),
    )


def _choice(view: View) -> Html:
    """Selectors that the script unhides and fills with life; without it all figures are shown."""

    def options(label: str, name: str, values: dict[str, str], first: str = "") -> list[Html]:
        entries = [element("option", text, value=value, selected=value == first) for value, text in values.items()]
        everything = element("option", "all", value="", selected=not first)
        select = element("select", everything, *entries, data_filter=name)
        return [element("label", label, select)] if len(values) > 1 else []

    # All radii at once are many, and the tables show them all: begin with the largest that was attacked.
    largest = max((item.aauc is not None, item.eps) for item in view.evaluations)[1]
    radii = options("ε", "eps", {f"{eps!r}": radius_text(eps) for eps in view.radii}, f"{largest!r}")
    sets = options("set", "outside", {name: name for name, _ in view.cases()})
    return element("form", *radii, *sets, class_="choice", hidden=True, aria_label="Which figures to show")


def _headlines(view: View) -> Html:
    """For each in-distribution: the model that proves most, its accuracy, and where its worst case lies."""
    tiles, everything = [], tables(view.evaluations)
    for inside in dict.fromkeys(item.inside for item in view.evaluations):
        groups = [table for table in everything if table.inside == inside]
        model = _most_proved(groups)
        items = [item for item in view.evaluations if item.inside == inside and item.model == model]
        accuracy = [row.cells[0] for table in groups for row in table.rows if row.model == model][-1]
        best = max((row.cells[0].value or 0, row.model) for table in groups for row in table.rows)
        where = f" on {inside}" if len(groups) < len(everything) else ""
        if accuracy.value is not None:
            rest = "the best of all" if accuracy.value == best[0] else f"best: {percent(best[0])} ({best[1]})"
            tiles.append((f"{accuracy.text}%", f"accuracy of {model}{where}", rest))
        clean = {item.outside: item.auc for item in items}.values()
        over = "out-distribution" if len(clean) == 1 else "out-distributions"
        tiles.append((f"{percent(fmean(clean))}%", f"AUC of {model}", f"mean over {len(clean)} {over}"))
        for eps in (table.eps for table in groups if table.eps > 0):
            if at := [item for item in items if item.eps == eps]:
                proved = percent(fmean(item.gauc for item in at))
                found = [item.aauc for item in at if item.aauc is not None]
                name = f"AUC at ε = {radius_text(eps)}"
                if len(found) == len(at):
                    shown = f"{proved} – {percent(fmean(found))}%"
                    tiles.append((shown, f"worst-case {name}", f"{model}, mean GAUC to AAUC"))
                else:
                    tiles.append((f"{proved}%", f"guaranteed {name}", f"{model}, mean GAUC"))
    words = "The model that proves most, among those whose accuracy is within 3 points of the best."
    drawn = [element("div", *map(element, ("b", "span", "small"), texts), class_="tile") for texts in tiles]
    return sections.section("summary", "Summary", words, element("div", *drawn, class_="tiles"))


def _most_proved(groups: list[Table]) -> str:
    """The model with the highest GAUC, as a mean over its out-distributions and radii; the first of equals."""
    proved: dict[str, list[float]] = {}
    for table in groups:
        for row in table.rows:
            if not row.grey:
                cells = row.cells[1 + table.metrics.index("GAUC") :: len(table.metrics)]
                proved.setdefault(row.model, []).extend(cell.value for cell in cells if cell.value is not None)
    return max(proved, key=lambda model: fmean(proved[model]))
