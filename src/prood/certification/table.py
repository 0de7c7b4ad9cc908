"""What a model says of images and what is proven of them, as a table for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Literal

import torch
from rich import box
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from prood import processes
from prood.bounds import Method, Norm
from prood.certification.certify import Subject, certify, subject
from prood.certification.inputs import inputs
from prood.certification.record import Certificate
from prood.errors import ProodError
from prood.models import ProoD
from prood.models.joint import checked_threshold

SHOWN = 50

Rejected = Literal["provably", "yes", "no"]


@dataclass(frozen=True)
class Row:
    """One image. For a bare discriminator `confidence` and the bounds are those of its logit, g."""

    name: str
    label: str
    confidence: float
    p_in: float
    certificates: tuple[Certificate, ...]
    threshold: float | None = None
    radius: float | None = None  # largest at which it provably stays rejected; NaN if it is not, or not provably

    @property
    def bounds(self) -> list[float]:
        return [one.bound if one.confidence is None else one.confidence for one in self.certificates]

    @property
    def rejected(self) -> Rejected | None:
        """Provably: so is every image within the smallest radius asked for. Yes: this one is, near ones may not be.

        None without a threshold.
        """
        if self.threshold is None:
            return None
        # What is proven at a radius holds at every smaller one, so any of the bounds will do.
        if min(self.bounds) < self.threshold:
            return "provably"
        return "yes" if self.confidence < self.threshold else "no"


def certify_images(
    model: Path | str,
    names: Sequence[str],
    eps: Sequence[float],
    *,
    norm: Norm = "linf",
    method: Method = "best",
    threshold: float | None = None,
    out: Path | None = None,
    limit: int | None = None,
    batch: int = 64,
    device: torch.device | None = None,
) -> list[Row]:
    """Certify pictures and image sets by name, and say what the model makes of each; see `certify`.

    `threshold` is the model's own if none is given. With a file `out`, which holds them all, only the first `SHOWN` are
    returned.
    """
    target = device or processes.device(None)
    what = subject(model, target)
    threshold = what.threshold if threshold is None else threshold
    if threshold is not None and isinstance(what.model, ProoD):  # else one of g, which may be any number
        checked_threshold(threshold)
    elif threshold is not None and not math.isfinite(threshold):
        raise ProodError(f"a threshold is a finite number, not {threshold}")
    images = inputs(names, what.shape, limit)
    certificates = certify(what, images, eps, out=out, norm=norm, method=method, threshold=threshold, batch=batch)
    rows = []
    shown = range(len(images) if out is None else min(SHOWN, len(images)))
    for start in range(0, len(shown), batch):
        group = shown[start : start + batch]
        stack = images.read(group).to(target)
        facts = _facts(what, stack)
        radii: list[float | None] = [None] * len(group)
        if threshold is not None:
            radii = what.model.certified_radius(stack, threshold, norm=norm, method=method).tolist()
        for place, fact, radius in zip(group, facts, radii, strict=True):
            name, row = images.names[place]
            full = name if row is None else f"{name}[{row}]"
            found = Row(full, *fact, tuple(certificates[place :: len(images)]), threshold)
            least = min(found.bounds)
            if out is not None and found.confidence > least + 1e-6 * (1 + abs(least)):  # 'prood verify' refutes it, too
                raise ProodError(
                    f"a certificate of {full} in {out} is below what the model says of it: remove that file"
                )
            rows.append(_with_radius(found, radius))
    return rows


def _with_radius(row: Row, found: float | None) -> Row:
    """The search ends a step below the largest radius; what a certificate proves beyond that counts as well."""
    if row.threshold is None or found is None:
        return row
    proven = [one.eps for one, bound in zip(row.certificates, row.bounds, strict=True) if bound < row.threshold]
    radii = [radius for radius in (found, *proven) if not math.isnan(radius)]
    return replace(row, radius=max(radii, default=math.nan))


@torch.no_grad()
def _facts(what: Subject, images: Tensor) -> list[tuple[str, float, float]]:
    """Label, confidence (or g) and p(in)."""
    if not isinstance(what.model, ProoD):
        g = what.model.covered(images)
        return [("–", value, p) for value, p in zip(g.tolist(), g.double().sigmoid().tolist(), strict=True)]
    labels = [str(place) if what.names is None else what.names[place] for place in what.model.predict(images).tolist()]
    p_in = what.model.in_logit(images).double().sigmoid().tolist()
    return list(zip(labels, what.model.confidence(images).tolist(), p_in, strict=True))


def show(rows: Sequence[Row]) -> Table:
    """What is proven is rounded so that it stays true: bounds up, radii down. A narrow terminal folds names."""
    joint = bool(rows) and rows[0].certificates[0].confidence is not None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("image", overflow="fold")
    if joint:
        table.add_column("class", overflow="fold")
    for title in ("confidence" if joint else "g", "p(in)"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in rows[0].certificates if rows else ():
        within = Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(one.eps))
        table.add_column(f"≤ within {float(within):g} ({one.norm})", justify="right", min_width=7)
    decides = bool(rows) and rows[0].threshold is not None
    if decides:
        table.add_column("rejected", justify="right", no_wrap=True)
        table.add_column("radius", justify="right", no_wrap=True)
    for row in rows:
        cells = [escape(row.name), *([escape(row.label)] if joint else []), f"{row.confidence:.4f}", f"{row.p_in:.4f}"]
        cells += [_rounded(bound, 4, ROUND_CEILING) for bound in row.bounds]
        if decides:
            radius = math.nan if row.radius is None else row.radius
            cells += [row.rejected or "", "–" if math.isnan(radius) else _rounded(radius, 5, ROUND_FLOOR)]
        table.add_row(*cells)
    return table


def _rounded(value: float, places: int, way: str) -> str:
    """From the number as it is written, so that 0.3, which in binary is a little less, stays 0.3."""
    if not math.isfinite(value):
        return str(value)
    digits = Context(prec=400)  # as many as any float has before its point
    return f"{Decimal(repr(value)).quantize(Decimal(10) ** -places, way, digits):f}"
