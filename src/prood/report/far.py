"""What was found far away, as lines for the terminal, as a figure and as a file."""

import json
from pathlib import Path
from typing import Any

from prood.atomic import write_text
from prood.evaluation.asymptotics.study import Asymptotics
from prood.report import plots

SHOWN = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)  # of the distances of a curve, those that are printed


def lines(found: Asymptotics) -> list[str]:
    """The conditions one by one, the verdict, random directions, adversarial ones, and the curves at powers of ten."""
    text = [f"{'✓' if one.holds else '✗'} {one.name:<11} {one.reason}" for one in found.theorem.conditions]
    text.append(f"{'=' if found.theorem.holds else '✗'} {'theorem':<11} g → −∞ in {found.theorem.covers}")
    text += [f"  {kind:<11} {_counts(about)} of random directions" for kind, about in found.random.items()]
    about = found.adversarial
    climbed = f"{about['directions']} found in {about['steps']:,} steps, {about['flat']} of them with no way up"
    text.append(f"  adversarial {climbed}" + (f"; {_counts(about)} of them" if "decays" in about else ""))
    places = [found.alphas.index(alpha) for alpha in SHOWN if alpha in found.alphas]
    text.append(f"  {'α':<11}" + "".join(f"{found.alphas[place]:>10g}" for place in places))
    for name, curve in {"mean": found.mean, "auc": found.auc, "maximum": found.maximum}.items():
        if curve is not None:
            text.append(f"  {name:<11}" + "".join(f"{curve[place]:>10.4f}" for place in places))
    text.append(f"  mean: confidence along x + α·n, x from {found.outside}")
    sureness = "p(in)" if "decays" in about else "confidence"  # without a discriminator there is no p(in)
    return [*text, f"  maximum: the largest {sureness} over adversarial directions, at α·d"]


def _counts(about: dict[str, Any]) -> str:
    share = f"g decays in {about['decays'] / about['directions']:.1%}"
    if about["stays"]:
        share += f", stays at up to {about['largest_limit']:.3g} in {about['stays'] / about['directions']:.1%}"
    for word in ("grows", "undecided"):
        share += f", {word} in {about[word] / about['directions']:.1%}" if about[word] else ""
    return share


def draw_model(content: dict[str, Any], file: Path) -> None:
    """The two curves of one model."""
    curves = {"mean along x + α·n": content["mean"], "maximum along adversarial α·d": content["maximum"]}
    draw(content, curves, file, "how sure of itself")


def draw(content: dict[str, Any], curves: dict[str, list[float]], file: Path, label: str, low: float = -0.03) -> None:
    """Curves over the distances of a content; with a line at 1/K, if it names K classes."""
    with plots.figure(file) as figure:
        axes = figure.subplots()
        for title, values in curves.items():
            plots.curve(axes, content["alphas"], values, title)
        if content.get("classes"):
            axes.axhline(1 / content["classes"], color="grey", linewidth=1, linestyle=":", label="1/K")
        axes.set(xscale="log", ylim=(low, 1.03), xlabel="distance α", ylabel=label)
        figure.legend(loc="outside right upper")


def write(content: dict[str, Any], file: Path) -> None:
    """What was found as JSON; a limit that is not finite has no place there."""
    write_text(file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
