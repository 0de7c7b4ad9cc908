"""The summary of the results: tables and bars from the files in results/, and the price of proof from price.json."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawing import plot

from prood.report.markup import Axis, Chart, element, nice_ticks

DOCS = Path(__file__).parent.parent
RESULTS = DOCS.parent / "results" / "cifar10"
PRICE = DOCS / "assets" / "price.json"
"""`python docs/make/price.py` measures it with the model that ships."""
VERDICTS = DOCS / "assets" / "verdicts.json"
BLOCK = re.compile(r"(<!-- made of results: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
HEADS = ["method", "trained against", "accuracy", "AUC", "under attack", "proved", "provably rejected"]


@dataclass(frozen=True)
class Row:
    """A published model: which file, and in which words the summary names it."""

    title: str
    file: str
    outside: str


BROAD = "photographs"
NEAR = "CIFAR-100"
SHORT = [
    Row("Plain", "cifar100/plain-2.json", "–"),
    Row("OE", "natural32/oe-0.json", BROAD),
    Row("ATOM", "cifar100/atom-0.json", NEAR),
    Row("**ProoD**", "natural32/prood-0.json", BROAD),
]
LONG = {
    "broad": [*SHORT[:2], Row("ProoD-S", "natural32/prood-s-0.json", BROAD), SHORT[3]],
    "near": [
        Row("OE", "cifar100/oe-0.json", NEAR),
        SHORT[2],
        Row("ACET", "cifar100/acet-0.json", NEAR),
        Row("GOOD100", "cifar100/good100-0.json", NEAR),
        Row("ProoD-Disc", "cifar100/discriminator-0.json", NEAR),
        Row("ProoD-S", "cifar100/prood-s-2.json", NEAR),
        Row("**ProoD**", "cifar100/prood-0.json", NEAR),
    ],
}


def attacked(row: Row) -> tuple[float | None, list[dict[str, Any]]]:
    """Its accuracy, and its evaluations at 0.01 with an attack: AUC, AAUC and GAUC there are about the same images."""
    found = json.loads((RESULTS / row.file).read_text(encoding="utf-8"))["evaluations"]
    return found[0]["accuracy"], [one for one in found if one["eps"] == 0.01 and one["aauc"] is not None]


def numbers(row: Row) -> dict[str, float | None]:
    accuracy, found = attacked(row)
    means = {key: sum(one[key] for one in found) / len(found) for key in ("auc", "aauc", "gauc", "gfpr95")}
    return {"accuracy": accuracy, **{key: 100 * value for key, value in means.items()}}


def table(rows: Sequence[Row]) -> str:
    lines = [HEADS, ["---", "---", *["---:"] * 5]]
    for row in rows:
        one = numbers(row)
        accuracy = "–" if one["accuracy"] is None else f"{100 * one['accuracy']:.1f}"
        shares = [one["auc"], one["aauc"], one["gauc"], 100 - one["gfpr95"]]  # type: ignore[operator]
        lines.append([row.title, row.outside, accuracy, *(f"{value:.1f}" for value in shares)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def verdicts() -> str:
    """What the shipped models with their gates reject, and provably reject."""
    lines = [["model", "95% accepted", "90%", "80%"], ["---"] * 4]
    for model in json.loads(VERDICTS.read_text(encoding="utf-8")):
        (one,) = (rule for rule in model["rules"] if (rule["rule"], rule["bound"]) == ("default", "best"))
        rates = zip(one["sets"]["mean"]["fpr"], one["sets"]["mean"]["gfpr"], strict=True)
        cells = [f"{100 * (1 - clean):.1f}% rejected, {100 * (1 - proved):.1f}% provably" for clean, proved in rates]
        lines.append([f"`{model['model']}`", *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bars(rows: Sequence[Row]) -> str:
    """Per method a bar from GAUC to AAUC, in which the worst case lies, and a tick at the AUC."""
    chart = Chart(
        "For each method a bar from what is proved to what an attack leaves of the AUC, and a tick at the clean AUC",
        x=Axis(0, 100, nice_ticks(0, 100, 6), "AUC in percent, ε = 0.01, mean of six test sets"),
        y=Axis(0, len(rows), {}, ""),
        size=(700, 40 * len(rows) + 30),
    )
    for number, row in enumerate(reversed(rows)):
        one, middle = numbers(row), number + 0.42
        chart.band([one["gauc"], one["aauc"]], [middle - 0.16] * 2, [middle + 0.16] * 2, "fill-violet solid")
        chart.line([one["aauc"], one["auc"]], [middle] * 2, "blue dotted")
        chart.line([one["gauc"]] * 2, [middle - 0.22, middle + 0.22], "violet")
        chart.line([one["auc"]] * 2, [middle - 0.22, middle + 0.22], "blue")
        words = f"{row.title.strip('*')}, {row.outside}" if row.outside != "–" else row.title
        place = {"x": f"{chart.across(1):.1f}", "y": f"{chart.up(middle + 0.3):.1f}"}
        chart.marks.append(element("text", words, class_="ink", **place))
    legend = {
        "violet": "proved: no attack gets below (GAUC); the bar ends at what our attacks reached (AAUC)",
        "blue": "as the images are (AUC)",
    }
    return plot(chart, legend, columns=1)


def price() -> str:
    """In-distribution accepted across, out-of-distribution rejected up: as they are, under attack, proved."""
    found = json.loads(PRICE.read_text(encoding="utf-8"))
    accepted = [100 * share for share in found["accepted"]]
    chart = Chart(
        "The share of other images that is rejected, over the share of the model's own images that is accepted",
        x=Axis(50, 100, nice_ticks(50, 100, 6), "own images accepted, percent"),
        y=Axis(0, 100, nice_ticks(0, 100, 6), "other images rejected, percent"),
        size=(700, 300),
    )
    kinds = {"blue": "clean", "orange": "attacked", "violet": "proved"}
    for kind, key in kinds.items():
        chart.line(accepted, [100 * share for share in found[key]], kind)
    words = {"blue": "as they are", "orange": "under attack", "violet": "proved"}
    return plot(chart, words, columns=3)


def drawn() -> dict[str, str]:
    return {"methods": bars([*SHORT[:2], *LONG["near"][:2], *LONG["near"][-1:], SHORT[3]]), "price": price()}


def pages() -> Iterator[tuple[str, str]]:
    """README and the summary with their tables."""
    tables = {name: table(rows) for name, rows in {"short": SHORT, **LONG}.items()} | {"verdicts": verdicts()}
    for name in ("../README.md", "summary.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        yield name, BLOCK.sub(lambda block: f"{block[1]}{tables[block[2]]}\n", text)
