"""What a model says of images and what is proven of them, as a table for people."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Literal

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from prood.certification.certify import Request, certify
from prood.certification.record import Certificate
from prood.detector import Answer, Detector, Rule
from prood.detector.named import inputs
from prood.errors import printable

SHOWN = 50


@dataclass(frozen=True)
class CertifiedImage:
    """One image: what the detector says of it, and what its certificates prove.

    `radius` is the largest one known at which it provably stays rejected, NaN if there is none; it may be larger than
    those of the certificates only if it was `searched`.
    """

    name: str
    answer: Answer
    certificates: tuple[Certificate, ...]
    rule: Rule
    radius: float = math.nan
    searched: bool = False

    @property
    def bounds(self) -> list[float]:
        return _bounds(self.certificates)

    @property
    def rejected(self) -> Literal["provably", "yes", "no"] | None:
        """Provably: so is every image within the smallest radius asked for. Yes: this one is, near ones may not be.

        None without a threshold.
        """
        if self.rule.threshold is None:
            return None
        # What is proven at a radius holds at every smaller one, so any of the bounds will do.
        if self.rule.rejects(min(self.bounds)):
            return "provably"
        return "no" if self.answer.accepted else "yes"

    @property
    def verdict(self) -> str:
        """One sentence: whether it is rejected, and how far that is proved."""
        if self.rule.threshold is None:
            return ""
        if self.answer.accepted:
            return "accepted: nothing is proved about accepted images"
        norm = self.certificates[0].norm
        unit = "" if norm == "linf" else f" in {norm}"
        if self.radius > 0:
            return f"rejected; stays rejected for every change up to {_within(self.radius)}{unit}"
        if self.answer.reason == "confidence":
            return "rejected as it is; not provable: g alone is not sure enough"
        if self.searched:
            return "rejected as it is; not proved for any change, however small"
        least = _within(min(one.eps for one in self.certificates))
        return f"rejected as it is; not proved for changes of {least}{unit}: --radius looks for smaller ones"


def certify_images(
    detector: Detector,
    path: Path | str,
    names: Sequence[str],
    request: Request,
    *,
    out: Path | None = None,
    limit: int | None = None,
) -> list[CertifiedImage]:
    """Certify pictures and image sets by name, and say what the detector makes of each; see `certify`.

    With a file `out`, which holds them all, only the first `SHOWN` are returned: with bounds that were computed here,
    whatever the file said.
    """
    images = inputs(names, detector.shape, limit)
    rows: list[CertifiedImage] = []
    shown = range(len(images) if out is None else min(SHOWN, len(images)))
    certificates = certify(detector, path, images, request, out, again=len(shown))
    for start in range(0, len(shown), request.batch):
        group = shown[start : start + request.batch]
        stack = images.read(group)
        proofs = [tuple(certificates[place :: len(images)]) for place in group]
        radii = np.full(len(group), math.nan)
        if detector.threshold is not None:
            found = radii
            if request.radius:
                found = detector.certified_radius(stack, norm=request.norm, method=request.method)
            radii = detector.rule.reach(found, np.array([_bounds(proof) for proof in proofs]), request.eps)
        for place, answer, proof, radius in zip(group, detector.predict(stack), proofs, radii.tolist(), strict=True):
            rows.append(CertifiedImage(images.name(place), answer, proof, detector.rule, radius, request.radius))
    return rows


def _bounds(certificates: Sequence[Certificate]) -> list[float]:
    return [one.bound if one.confidence is None else one.confidence for one in certificates]


def show(rows: Sequence[CertifiedImage]) -> Table:
    """What is proven is rounded so that it stays true: bounds up, radii down. A narrow terminal folds names."""
    joint = bool(rows) and rows[0].certificates[0].confidence is not None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("image", "class") if joint else ("image",):
        table.add_column(title, overflow="fold")
    for title in ("confidence" if joint else "g", "p(in)"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in rows[0].certificates if rows else ():
        table.add_column(f"≤ within {_within(one.eps)} ({one.norm})", justify="right", min_width=7)
    decides = bool(rows) and rows[0].rule.threshold is not None
    if decides:
        table.add_column("verdict", min_width=12)
    for row in rows:
        cells = [escape(printable(word)) for word in ((row.name, row.answer.name) if joint else (row.name,))]
        cells += [f"{row.answer.confidence:.4f}", f"{row.answer.p_in:.4f}"]
        cells += [_rounded(bound, 4, ROUND_CEILING) for bound in row.bounds]
        if decides:
            cells.append(row.verdict)
        table.add_row(*cells)
    return table


def _within(radius: float) -> str:
    """Four digits, never more than the radius: what is proven stays true."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(radius))):g}"


def _rounded(value: float, places: int, way: str) -> str:
    """From the number as it is written, so that 0.3, which in binary is a little less, stays 0.3."""
    if not math.isfinite(value):
        return str(value)
    digits = Context(prec=400)  # as many as any float has before its point
    return f"{Decimal(repr(value)).quantize(Decimal(10) ** -places, way, digits):f}"
