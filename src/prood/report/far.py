"""What was found far away, in lines for the terminal."""

from typing import Any

from prood.evaluation.asymptotics.study import Asymptotics

SHOWN = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)
"""Of the distances of a curve, those that are printed."""


def lines(found: Asymptotics) -> list[str]:
    """The conditions one by one, the verdict, random directions, adversarial ones, and the curves at powers of ten."""
    text = [f"{'✓' if one.holds else '✗'} {one.name:<11} {one.reason}" for one in found.theorem.conditions]
    text.append(f"{'=' if found.theorem.holds else '✗'} {'theorem':<11} g → −∞ in {found.theorem.covers}")
    text += [f"  {kind:<11} {_counts(about)} of random directions" for kind, about in found.random.items()]
    about = found.adversarial
    climbed = f"{about['directions']} found in {about['steps']:,} steps, {about['flat']} of them with no way up"
    text.append(f"  adversarial {climbed}" + (f"; {_counts(about)} of them" if "decays" in about else ""))
    places = [found.alphas.index(alpha) for alpha in SHOWN if alpha in found.alphas]
    text.append(_row("α", [f"{found.alphas[place]:g}" for place in places]))
    text.append(_row("mean", [f"{found.mean[place]:.4f}" for place in places]))
    if found.auc is not None:
        text.append(_row("auc", [f"{found.auc[place]:.4f}" for place in places]))
    text.append(_row("maximum", [f"{found.maximum[place]:.4f}" for place in places]))
    text.append(f"  mean: confidence along x + α·n, x from {found.outside}")
    sureness = "p(in)" if "decays" in about else "confidence"  # without a discriminator there is no p(in)
    text.append(f"  maximum: the largest {sureness} over adversarial directions, at α·d")
    return text


def _counts(about: dict[str, Any]) -> str:
    share = f"g decays in {about['decays'] / about['directions']:.1%}"
    if about["stays"]:
        share += f", stays at up to {about['largest_limit']:.3g} in {about['stays'] / about['directions']:.1%}"
    for word in ("grows", "undecided"):
        share += f", {word} in {about[word] / about['directions']:.1%}" if about[word] else ""
    return share


def _row(name: str, cells: list[str]) -> str:
    return f"  {name:<11}" + "".join(f"{cell:>10}" for cell in cells)
