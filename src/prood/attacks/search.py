"""One search in the balls around a batch of images: what was found so far, and for which images it goes on."""

import math
from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from prood.attacks import draws
from prood.attacks.passes import Passes
from prood.errors import BadValue, Diverged, Mismatch
from prood.models import Score

PATIENCE = 64
"""Calls between two checks for NaN on a GPU: each check waits for the device."""
ROWS = 512
"""Points that are scored at once, so that memory does not grow with the number of images and restarts."""


class Course(TypedDict, total=False):
    """How a search runs, not what it looks for; see `Attack.__call__`."""

    rows: int
    watch: Callable[[int], None] | None


class Search:
    """Keeps the best point per image; an attack gives it points to score, and never has to remember its best.

    A point is a row of a batch, `owner` the number of the image in whose ball it lies: all restarts of all images
    are rows of the same batch. An image whose best score has reached its `goal` is settled and no longer `open`.
    """

    def __init__(
        self,
        score: Score,
        images: Tensor,
        eps: float,
        *,
        goal: Tensor,
        seed: int = 0,
        numbers: Sequence[int] | Tensor | None = None,
        **course: Unpack[Course],
    ) -> None:
        check(images, eps)
        self.score, self.images, self.eps, self.seed = score, images.detach(), float(eps), seed
        self.rows, self.watch = course.get("rows", ROWS), course.get("watch")
        self._passes = Passes(score, self.rows)
        self.low, self.high = ball(self.images, self.eps)
        counted = range(len(images)) if numbers is None else numbers
        self.numbers = torch.as_tensor(counted, dtype=torch.int64, device=images.device)
        self.goal = goal.to(images.device, torch.float64)
        if self.numbers.shape != images.shape[:1] or self.goal.shape != images.shape[:1]:
            raise Mismatch("an attack needs one number and one goal for each image")
        if self.goal.isnan().any():
            raise Diverged("a goal is not a number: the model has diverged and has no bound")
        self.forward = self.backward = 0  # passes of single images
        self._broken, self._unchecked = torch.zeros((), dtype=torch.bool, device=images.device), 0
        self.patience = PATIENCE if images.is_cuda else 1
        self.member = "clean"  # who is searching now
        self._members = [self.member]
        self._finder = torch.zeros_like(self.numbers)  # who found the best point, as a place in _members
        self.best = self.images.clone()
        self.value = torch.full((len(images),), -torch.inf, dtype=torch.float64, device=images.device)
        self.clean = self.values(self.best, torch.arange(len(images), device=images.device))

    @property
    def found_by(self) -> list[str]:
        return [self._members[place] for place in self._finder.tolist()]

    @property
    def open(self) -> Tensor:
        """Which images are not settled."""
        return self.value < self.goal

    def owners(self, restarts: int) -> tuple[Tensor, Tensor]:
        """(owner, restart) of the rows of `restarts` searches for each open image."""
        images = self.open.nonzero().squeeze(1)
        return images.repeat_interleave(restarts), torch.arange(restarts, device=images.device).repeat(len(images))

    def keys(self, owner: Tensor, *parts: int | Tensor) -> Tensor:
        """The keys of random streams for rows: functions of seed, searcher, image and `parts`."""
        key = draws.keys(draws.stream(self.seed, self.member), self.numbers[owner])
        for part in parts:
            key = draws.keys(key, torch.as_tensor(part, device=key.device))
        return key

    def project(self, points: Tensor, owner: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(points, self.low[owner]), self.high[owner])

    def uphill(self, points: Tensor, gradients: Tensor, owner: Tensor) -> Tensor:
        """The gradients without what points out of the ball: 0 where nothing nearby is higher, to first order."""
        inside = torch.where(gradients > 0, points < self.high[owner], points > self.low[owner])
        return torch.where(inside, gradients, 0.0)

    def elsewhere(self, owner: Tensor, key: Tensor) -> Tensor:
        """Where a search goes on that got stuck: a coarse random pattern, half of the time in a corner of the ball."""
        low, high = self.low[owner], self.high[owner]
        blocks = draws.blocks_like(key, low)
        corner = draws.uniform(key, torch.tensor(-2, device=key.device)) < 0.5
        blocks = torch.where(corner.view(-1, 1, 1, 1), blocks.round(), blocks)
        return self.project(low + blocks * (high - low), owner)

    def values(self, points: Tensor, owner: Tensor) -> Tensor:
        """The scores of points, float64."""
        return self._keep(points, owner, self._passes.values(points), backward=False)

    def values_and_gradients(self, points: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """The scores and their gradients by the pixels; where there is none, or no number, it is 0."""
        values, gradients = self._passes.values_and_gradients(points)
        return self._keep(points, owner, values, backward=True), gradients

    def score_again(self) -> None:
        """The points found get the scores that the model returns for them; one that turns out lower makes way."""
        with torch.no_grad():
            parts = [self.score(part) for points in (self.images, self.best) for part in torch.split(points, self.rows)]
        self.clean, self.value = torch.cat(parts).double().chunk(2)
        lower = self.value < self.clean
        self.best[lower], self._finder[lower] = self.images[lower], 0
        self.value = torch.maximum(self.value, self.clean)

    def _keep(self, points: Tensor, owner: Tensor, values: Tensor, *, backward: bool) -> Tensor:
        self.forward += len(points)
        self.backward += len(points) if backward else 0
        if self.watch is not None:
            self.watch(self.forward + self.backward)
        values = values.double()
        if not len(values):
            return values
        self._broken |= values.isnan().any()
        self._unchecked += 1
        if self._unchecked >= self.patience:
            self.check_numbers()
        if self._members[-1] != self.member:
            self._members.append(self.member)
        # Nothing here asks the device for a number, so that a GPU never waits for the next launch.
        best = torch.full_like(self.value, -torch.inf).scatter_reduce(0, owner, values, "amax")
        wins = (values == best[owner]) & (values > self.value[owner])
        # The first of equal rows: an assignment with repeated indices would take any of them.
        row = torch.where(wins, torch.arange(len(values), device=values.device), len(values))
        first = torch.full_like(self.numbers, len(values)).scatter_reduce(0, owner, row, "amin")
        found, first = first < len(values), first.clamp_max(len(values) - 1)
        self.best = torch.where(column(found), points[first], self.best)
        self.value = torch.where(found, values[first], self.value)
        self._finder = torch.where(found, len(self._members) - 1, self._finder)
        return values

    def check_numbers(self) -> None:
        """That every score so far was a number. Waits for the device."""
        self._unchecked = 0
        if self._broken:
            raise Diverged("a score is not a number: the model has diverged or its input was damaged")


def check(images: Tensor, eps: float) -> None:
    if images.ndim != 4 or not images.is_floating_point() or not images.numel():
        raise BadValue("an attack needs a non-empty batch of floating-point images, shape (N, C, H, W)")
    if not ((images >= 0) & (images <= 1)).all():
        raise BadValue("an attack needs images with values in [0, 1]: scale them first")
    if not (math.isfinite(eps) and eps >= 0):
        raise BadValue(f"eps is a radius: it must be a finite number that is not negative, not {eps}")


def ball(images: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The corners of the ball inside [0, 1]^d, rounded inwards: a point between them is in the ball without doubt."""
    exact = images.double()
    low, high = (exact - eps).clamp_min(0).to(images.dtype), (exact + eps).clamp_max(1).to(images.dtype)
    low = torch.where(exact - low.double() > eps, low.nextafter(torch.ones_like(low)), low)
    high = torch.where(high.double() - exact > eps, high.nextafter(torch.zeros_like(high)), high)
    return low, high


def column(values: Tensor) -> Tensor:
    """A number a row, shaped to be broadcast with images."""
    return values.view(-1, 1, 1, 1)
