"""What a model card says about every model: its facts, what its certificates mean, and what they do not."""

import json
from collections.abc import Sequence
from typing import Any

from prood.models.architectures import Metadata

LIMITS = """\
- A certificate says: for every image u in [0, 1]^d that differs from x by at most ε in every pixel (ℓ∞), the score that
  the float32 network returns for u, in any order of summation, is at most the printed bound. It says nothing of other
  changes (rotations, other objects), nor of float16, bfloat16, TF32 or int8.
- It is about one side only: how confident the model can become around an out-of-distribution image. An image of the
  in-distribution can still be changed so that it is rejected, or classified wrongly.
- GAUC is a proved bound for the images that were tested, not for those that you will meet.
{more}- Do not base decisions about safety on it without a validation of your own, on your own images."""

KINDS = {
    "prood": "a classifier with a certified discriminator (joint model)",
    "gated": "a classifier with a certified discriminator that rejects on its own, too (gated joint model)",
    "fusion": "a classifier with a certified discriminator (fused joint model)",
    "discriminator": "a discriminator",
    "committee": "a committee of discriminators",
}
TAGS = ("prood", "out-of-distribution-detection", "certified-robustness")


def kind_of(spec: dict[str, Any]) -> str:
    return KINDS.get(str(spec["name"]), "a classifier without a certificate")


def network_of(spec: dict[str, Any]) -> str:
    """The networks by name and size."""
    if "classifier" in spec and "discriminator" in spec:
        return f"{network_of(spec['classifier'])}, {network_of(spec['discriminator'])}"
    if spec["name"] == "committee":
        return "committee of " + " and ".join(map(network_of, spec["members"]))
    return str(spec["name"]) + (f" of size {spec['size']!s}" if spec.get("size") else "")


def facts_of(about: Metadata, weights: str, image: Sequence[int]) -> dict[str, str]:
    """The facts that a file states, in words; what it does not state is left out."""
    outside = [name for name in about.data if name != about.inside]
    facts = {
        "what": kind_of(about.architecture),
        "architecture": network_of(about.architecture),
        "images": f"{'×'.join(map(str, image))}, pixels in [0, 1]",
        "in-distribution": about.inside,
        "classes": None if not about.classes else ", ".join(about.classes),
        "training out-distribution": ", ".join(outside),
        "shift Δ": None if about.shift is None else f"{about.shift:g}",
        "threshold": None if about.threshold is None else f"{about.threshold:g}: an image with less is rejected",
        "accepted share of the in-distribution": None if about.accept is None else f"{about.accept:.0%}",
        "trained for ε": None if about.eps is None else f"{about.eps:g}",
        "weights": f"`{weights}`",
    }
    return {name: value for name, value in facts.items() if value}


def hub_card(title: str, facts: dict[str, str], *, licence: str | None = None, text: str | None = None) -> str:
    """README.md of a repository on the Hub: its metadata, and `text` or else the facts and limits of the model."""
    header = ["library_name: prood", "pipeline_tag: image-classification", "tags:", *(f"- {tag}" for tag in TAGS)]
    header += [] if licence is None else [f"license: {json.dumps(licence)}"]
    parts = [
        f"# {title}",
        "An image classifier that rejects images unlike its training data, and proves for many of them that no change "
        "of up to ε per pixel lifts its confidence above a bound. Made with Prood.",
        "\n".join(f"- **{name}**: {value}" for name, value in facts.items()),
        "## How to load it",
        f'```python\nimport prood\n\ndetector = prood.Detector.from_pretrained("{title}")\n'
        "answer = detector.predict(images)  # .label .confidence .accepted\n"
        "proof = detector.certify(images, eps=0.01)  # .upper_bound .rejected\n```",
        "## Limits",
        "\n".join(line for line in LIMITS.format(more="").splitlines() if "GAUC" not in line),
    ]
    written = "\n\n".join(parts) + "\n" if text is None else text
    if written.startswith("---\n"):  # it brings metadata of its own
        return written
    return "---\n" + "\n".join(header) + "\n---\n\n" + written
