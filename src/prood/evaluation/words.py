"""How metrics, radii, shares and image sets are written wherever they stand."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

Kind = Literal["auc", "fpr", "proved"]
METRICS: dict[Kind, dict[str, str]] = {
    "auc": {"auc": "AUC", "gauc": "GAUC", "aauc": "AAUC"},
    "fpr": {"fpr95": "FPR", "gfpr95": "GFPR", "afpr95": "AFPR"},
    "proved": {"proved95": "at 95%", "proved90": "at 90%", "proved80": "at 80%"},
}
PROVED = {"proved95": 0.95, "proved90": 0.9, "proved80": 0.8}
"""The share of the in-distribution that is accepted where the share that is provably rejected is stated."""
VERDICTS = ("threshold", "accepted", "passed", "proved")
"""At the model's own threshold."""
MISSING = "–"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def radius_text(eps: float) -> str:
    """'8/255' for whole grey levels without a short decimal form; otherwise the decimal form."""
    levels = round(255 * min(eps, 1.0))  # a radius above 1 reaches every image, and may be too large to multiply
    short = abs(float(f"{eps:.4g}") - eps) <= 1e-9 * abs(eps)
    return f"{levels}/255" if levels > 0 and abs(255 * eps - levels) < 1e-6 and not short else f"{eps:g}"


def set_name(name: str) -> str:
    """The column that a set belongs to: 'svhn' of svhn:test, mosaic:svhn/test, npz:svhn.npz and npz:svhn/test.npz."""
    source, _, rest = name.partition(":")
    if rest in ("", "test"):
        return source
    folder, slash, file = rest.rpartition("/")
    split = file.removesuffix(".npz").removesuffix(".csv")
    if slash and split in ("train", "test"):
        return PurePosixPath(folder).name + ("" if split == "test" else f":{split}")
    return PurePosixPath(rest).stem if "." in rest or slash else name


def without_path(name: str) -> str:
    """A set's name for a reader: `set_name` where the name is a path."""
    return set_name(name) if "/" in name else name


def labels(names: Iterable[str]) -> dict[str, str]:
    """`set_name` of each, where no other set has the same."""
    names = list(dict.fromkeys(names))
    short = [set_name(name) for name in names]
    return {name: part if part and short.count(part) == 1 else name for name, part in zip(names, short, strict=True)}
