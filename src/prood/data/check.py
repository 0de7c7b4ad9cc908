"""Is a set on disk what it should be? Counts, means and standard deviations, against what is published."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import eq
from typing import TypeVar

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from prood.data.catalog import Facts
from prood.data.download import say
from prood.data.formats.keeping import OtherShape
from prood.data.sources import find, open_set, split_of
from prood.data.stored import Images
from prood.errors import NotFound, ProodError, Unsupported

T = TypeVar("T")

MANY = 200_000  # images; of more, a sample is read
SAMPLE = 10_000
_BLOCK = 1 << 25  # bytes that are read at a time
_SHOWN = 20  # damaged images


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and whether it is right; None where there is nothing to compare it with."""

    set: str
    fact: str
    measured: str
    published: str | None = None
    right: bool | None = None

    def __str__(self) -> str:
        mark = {True: "✓", False: "✗", None: "·"}[self.right]
        published = "" if self.published is None else f"   published: {self.published}"
        return f"  {mark} {self.fact:<12} {self.measured}{published}"


def check(name: str, console: Console, *, everything: bool = False) -> list[Finding]:
    """Read the set of this name, all splits of it if it names none, and print what is found.

    Of more than 200,000 images a seeded sample is read, unless `everything` is asked for; counts are always exact.
    """
    source = find(name)
    if source.splits == ():
        raise Unsupported(f"'{source.name}' is generated: there is nothing to check")
    one = ":" in name or source.splits == ("PATH",)
    if one and source.splits != ("PATH",):
        split_of(source, name.partition(":")[2])  # a name that is wrong says nothing about the set
    if source.public is not None and not source.public.present:
        raise NotFound(f"the image set '{source.name}' is not here: {source.public.how_to_get(source.name)}")
    findings = []
    for full in [name] if one else [f"{source.name}:{split}" for split in source.splits]:
        facts = source.public.facts.get(full.partition(":")[2]) if source.public else None
        say(console, full)
        for finding in _findings(full, facts, console, everything):
            findings.append(finding)
            say(console, str(finding))
    return findings


def _findings(name: str, facts: Facts | None, console: Console, everything: bool) -> Iterator[Finding]:
    try:
        images = open_set(name)
    except ProodError as error:
        yield Finding(name, "opened", str(error), right=False)
        return
    yield _compared(name, "images", len(images), facts.count if facts else None, "{:,}".format)
    per_class = facts.per_class if facts else None
    found = () if images.labels is None else torch.bincount(images.labels, minlength=len(per_class or ())).tolist()
    if found or per_class:
        yield _compared(name, "per class", tuple(found), per_class, _sizes)
    yield Finding(name, "shape", "×".join(map(str, images.shape)))
    yield Finding(name, "fingerprint", images.fingerprint())
    sampled = len(images) > MANY and not everything
    chosen = images.subset(SAMPLE, 0) if sampled else images
    histogram, damaged = _histogram(chosen, console)
    if others := sum(isinstance(fault, OtherShape) for fault in damaged):
        fitted_to = "outliers are fitted to the in-distribution; for an in-distribution, write data.image in the recipe"
        yield Finding(name, "sizes", f"{others:,} differ from the first: {fitted_to}")
        fitted = open_set(name, like=images)
        histogram, damaged = _histogram(fitted.subset(SAMPLE, 0) if sampled else fitted, console)
    good = len(chosen) - len(damaged)
    extent = f"a sample of {len(chosen):,}" if sampled else f"all {len(chosen):,}"
    yield Finding(name, "readable", f"{good:,} of {extent}", right=not damaged)
    for fault in damaged[:_SHOWN]:
        yield Finding(name, "damaged", str(fault), right=False)
    if len(damaged) > _SHOWN:
        yield Finding(name, "damaged", f"and {len(damaged) - _SHOWN:,} more", right=False)
    if good:
        # Published values have four digits. A sample may differ by four standard errors, as the means of single images
        # have a standard deviation below 0.25.
        tolerance = 0.01 if sampled else 5e-5

        def near(measured: tuple[float, ...], published: tuple[float, ...]) -> bool:
            # A last digit that was rounded to lie exactly on the tolerance is right.
            pairs = zip(measured, published, strict=False)
            return len(measured) == len(published) and all(abs(a - b) <= tolerance + 1e-9 for a, b in pairs)

        mean, std = _moments(histogram)
        yield _compared(name, "mean", mean, facts.mean if facts else None, _values, near)
        yield _compared(name, "std", std, facts.std if facts else None, _values, near)


def _compared(
    name: str, fact: str, found: T, published: T | None, show: Callable[[T], str], same: Callable[[T, T], bool] = eq
) -> Finding:
    if published is None:
        return Finding(name, fact, show(found))
    return Finding(name, fact, show(found), show(published), same(found, published))


def _sizes(counts: tuple[int, ...]) -> str:
    """What `per class` says."""
    if not counts:
        return "no labels"
    if len(set(counts)) == 1:
        return f"{len(counts)} × {counts[0]:,}"
    return " ".join(map(str, counts)) if len(counts) <= 20 else f"{len(counts)} × {min(counts):,} to {max(counts):,}"


def _values(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.5f}" for value in values)


def _histogram(images: Images, console: Console) -> tuple[Tensor, list[ProodError]]:
    """How often each byte comes in each channel, which gives all moments exactly; and what cannot be read."""
    channels, height, width = images.shape
    histogram = torch.zeros(channels, 256, dtype=torch.int64)
    damaged: list[ProodError] = []
    step = min(1000, max(1, _BLOCK // (channels * height * width)))
    starts = range(0, len(images), step)
    for start in track(starts, "  reading", console=console, transient=True, disable=not console.is_terminal):
        for block in _blocks(images, range(start, min(start + step, len(images))), damaged):
            for channel in range(channels):
                histogram[channel] += torch.bincount(block[:, channel].reshape(-1), minlength=256)
    return histogram, damaged


def _blocks(images: Images, rows: range, damaged: list[ProodError]) -> Iterator[Tensor]:
    """The rows at once or, if one of them is damaged, those that are not, one by one."""
    try:
        yield images.take(rows)
    except ProodError as error:
        if len(rows) == 1:
            damaged.append(error)
            return
        for row in rows:
            yield from _blocks(images, range(row, row + 1), damaged)


def _moments(histogram: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, of pixels in [0, 1]."""
    values = torch.arange(256, dtype=torch.float64) / 255
    share = histogram.double() / histogram.sum(1, keepdim=True)
    mean = share @ values
    variance = (share * (values - mean[:, None]) ** 2).sum(1)
    return tuple(mean.tolist()), tuple(variance.sqrt().tolist())
