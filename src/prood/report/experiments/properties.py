"""The properties of the paper's first table, each decided by a rule from what was measured."""

from prood.evaluation.words import MISSING, radius_text, set_name
from prood.report import comparison
from prood.report.experiments.experiment import Content, Experiment
from prood.report.experiments.tables import shown
from prood.report.formats import escaped, markdown_table
from prood.studies import Published
from prood.studies.graph import Node
from prood.studies.properties import MEANS, Mark, Profile, judged
from prood.studies.runner import Runner

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


def make(runner: Runner) -> Content:
    published = [(node, runner.published(node.name, measure=True)) for node in shown(runner, robust=True)]
    found = [(node, one) for node, one in published if one is not None and one.measured is not None]
    if left_out := [node.label for node, one in published if one is None or one.measured is None]:
        runner.notes.append(f"Not measured here: {'; '.join(left_out)}.")
    return {
        "inside": set_name(runner.inside_name),
        "outside": runner.against,
        "eps": runner.eps,
        "rules": comparison.LEGEND,
        "rows": [profile.to_json() for profile in judged([_profile(runner, *one) for one in found])],
    }


def _profile(runner: Runner, node: Node, published: Published) -> Profile:
    assert published.measured is not None
    sets: dict[str, dict[str, float | None]] = {}
    for name in map(set_name, runner.recipe.evaluate.outside):
        best = {metric: published.best(metric, name, runner.eps) for metric in MEANS}
        sets[name] = {metric: None if one is None else getattr(one, metric) for metric, one in best.items()}
    return Profile(
        title=published.title,
        run=node.name,
        method=node.method,
        seconds=published.seconds,
        accuracy=published.evaluations[0].accuracy,
        sets=sets,
        far=published.measured.far,
        robustness=published.measured.robustness,
        fingerprint=published.weights,
    )


def section(content: Content) -> str:
    heads, *rows = comparison.lines([Profile.from_json(row) for row in content["rows"]])
    lines = [heads]
    for name, *cells in rows:
        lines.append([f"**{escaped(name)}**", *cells])
        if name in TICKS:
            signs = [Mark(word).sign for word in TICKS[name]]
            lines.append(["↳ *paper*", *signs, *[MISSING] * (len(cells) - len(signs))])
    head = f"In-distribution {escaped(content['inside'])}, trained against {escaped(content['outside'])}, "
    head += f"ε = {radius_text(content['eps'])}, means over the test sets, in percent."
    attacked = {row["robustness"]["images"] for row in content["rows"] if row["robustness"]}
    head += f" Robust accuracy is of {' or '.join(map(str, sorted(attacked)))} images." if attacked else ""
    rules = "\n".join(f"- **{name}**: {escaped(text)}" for name, text in content["rules"].items())
    return f"{head}\n\n{markdown_table(lines)}\n\n{rules}"


TITLE = "The properties of each method, as measured"
PAPER = "Table 1, Section 1; the ticks are the paper's words, not measurements"
EXPERIMENT = Experiment("table", "properties", TITLE, PAPER, make, section)
