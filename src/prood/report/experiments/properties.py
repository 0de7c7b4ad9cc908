"""The properties of the paper's first table, each decided by a rule from what was measured."""

from __future__ import annotations

from prood.compare import ENTRIES, tables
from prood.compare.properties import Mark, judged
from prood.compare.rows import MEANS, Row
from prood.evaluation.words import MISSING, radius_text, set_name
from prood.report.results import escaped, markdown_table
from prood.reproduce import rows
from prood.reproduce.experiment import Content, Experiment
from prood.reproduce.lab import Lab
from prood.reproduce.study import PAPERS
from prood.studies import Published

METHOD = {entry.run: entry.method for entry in ENTRIES}
TICKS = {
    "OE": ("yes", "yes", "no", "no", "no"),
    "CCU": ("yes", "yes", "no", "no", "yes"),
    "ACET": ("yes", "yes", "partly", "no", "no"),
    "ATOM": ("yes", "yes", "partly", "no", "no"),
    "GOOD80": ("no", "no", "yes", "yes", "no"),
    "GOOD100": ("no", "no", "yes", "yes", "no"),
    "ProoD": ("yes", "yes", "yes", "yes", "yes"),
}
"""What the paper says, in the order of RULES."""


def make(lab: Lab) -> Content:
    found: list[Row] = []
    left_out = []
    for run in rows.shown(lab, robust=True):
        published = lab.published(run, measure=True)
        if published is None or published.measured is None:
            left_out.append(lab.titles[run] + ", intervals" * run.endswith(PAPERS))
        else:
            found.append(_row(lab, run, published))
    if left_out:
        lab.notes.append(f"Not measured here: {'; '.join(left_out)}.")
    return {
        "inside": set_name(lab.inside_name),
        "outside": lab.against,
        "eps": lab.eps,
        "rules": dict(tables.legend()),
        "rows": [row.to_json() for row in judged(found)],
    }


def _row(lab: Lab, run: str, published: Published) -> Row:
    assert published.measured is not None
    sets: dict[str, dict[str, float | None]] = {}
    for name in map(set_name, lab.base.evaluate.outside):
        best = {metric: published.best(metric, name, lab.eps) for metric in MEANS}
        sets[name] = {metric: None if one is None else getattr(one, metric) for metric, one in best.items()}
    first = published.evaluations[0]
    return Row(
        title=published.title,
        run=run,
        method=METHOD[run.removesuffix(PAPERS)],
        seconds=published.seconds,
        accuracy=first.accuracy,
        sets=sets,
        far=published.measured.far,
        robustness=published.measured.robustness,
        fingerprint=published.weights,
    )


def section(content: Content) -> str:
    lines = [tables.heading()]
    for name, *cells in tables.lines([Row.from_json(row) for row in content["rows"]]):
        lines.append([f"**{escaped(name)}**", *cells])
        if name in TICKS:
            signs = [Mark(word).sign for word in TICKS[name]]
            lines.append(["↳ *paper*", *signs, *[MISSING] * (len(lines[0]) - 1 - len(signs))])
    head = (
        f"In-distribution {escaped(content['inside'])}, trained against {escaped(content['outside'])}, "
        f"ε = {radius_text(content['eps'])}, means over the test sets, in percent."
    )
    attacked = {row["robustness"]["images"] for row in content["rows"] if row["robustness"]}
    head += f" Robust accuracy is of {' or '.join(map(str, sorted(attacked)))} images." if attacked else ""
    rules = "\n".join(f"- **{name}**: {escaped(text)}" for name, text in content["rules"].items())
    return f"{head}\n\n{markdown_table(lines)}\n\n{rules}"


EXPERIMENT = Experiment(
    kind="table",
    name="properties",
    title="The properties of each method, as measured",
    paper="Table 1, Section 1; the ticks are the paper's words, not measurements",
    make=make,
    section=section,
    view=True,
)
