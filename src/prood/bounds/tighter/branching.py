"""Branch and bound on the signs of unstable units (Bunel et al. 2020; bounds with multipliers: Wang et al. 2021).

Where a unit's sign is known its relaxation is exact. A part of the ball is cut in two by a unit's sign, each half has
a bound of its own, and the larger of them holds for both. The part with the largest bound is cut next.
"""

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from prood.bounds.tighter.chain import Choice
from prood.bounds.tighter.leaves import Leaf, Pair, measure

_POLISH = 20
"""How often a part with nothing left to cut is optimised again."""

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Limits:
    seconds: float  # in all
    splits: int | None  # an image
    batch: int  # parts bounded at once
    steps: int  # of descent for each part


class SplitTree:
    """The parts of one image's ball."""

    def __init__(self, root: Leaf, target: float, found: float) -> None:
        self.target, self.found, self.splits = target, found, 0
        self.closed = -float("inf")
        self.heap: list[tuple[float, int, Leaf]] = []
        self.count = itertools.count()
        self.push(root)

    def push(self, leaf: Leaf) -> None:
        heapq.heappush(self.heap, (-leaf.bound, next(self.count), leaf))

    @property
    def bound(self) -> float:
        return max(self.closed, -self.heap[0][0] if self.heap else -float("inf"))

    def open(self, limits: Limits) -> bool:
        """Whether another split could help: neither decided, nor exact, nor at its limit."""
        if self.spent(limits):
            return False
        bound = self.bound
        return bool(self.heap) and self.closed < bound and bound >= self.target and bound > self.found + _TOLERANCE

    def spent(self, limits: Limits) -> bool:
        return limits.splits is not None and self.splits >= limits.splits

    def grow(self, limits: Limits) -> list[Leaf]:
        """Take the worst parts out and return what they are cut into: about as many as there are, or fill a batch.

        Other images have no say in it, so that what is proven of one does not depend on its company.
        """
        share = min(limits.batch, max(2, len(self.heap)))
        children: list[Leaf] = []
        while self.heap and len(children) < share and -self.heap[0][0] > max(self.closed, self.found):
            if self.spent(limits):
                break
            leaf = heapq.heappop(self.heap)[2]
            if leaf.candidate is not None:
                self.splits += 1
                children += [leaf.child(leaf.candidate, sign) for sign in (1.0, -1.0)]
            elif leaf.polished < _POLISH:
                children.append(replace(leaf, polished=leaf.polished + 1))
            else:
                self.closed = max(self.closed, leaf.bound)
        return children


def branch_and_bound(
    pair: Pair,
    slopes: Choice,
    bound: Tensor,
    *,
    target: Tensor,
    found: Tensor,
    value: Callable[[Tensor], Tensor],
    limits: Limits,
) -> Tensor:
    """Bounds that are at most those given, with what the limits allow; shape (B,).

    target: an image is done when its bound is below. found: values that are attained, (B,): nothing can be below.
    value: the network itself, for the points at which bounds are attained may attain them.
    """
    end = time.monotonic() + limits.seconds
    # In one go each: every number that is fetched by itself waits for the device.
    bounds, targets, attained = bound.tolist(), target.tolist(), found.tolist()
    roots = [
        Leaf(image, high, {}, {}, {number: slope[image].half() for number, slope in slopes.items()})
        for image, high in enumerate(bounds)
    ]
    trees: list[SplitTree] = []
    waiting = [leaf for leaf in roots if leaf.bound >= targets[leaf.image]]
    for part in _batches(waiting, limits.batch):
        measured, reached = _measure(pair, part, 0, value)
        for leaf, high in zip(measured, reached, strict=True):
            trees.append(SplitTree(leaf, targets[leaf.image], max(attained[leaf.image], high)))
    by_image = {leaf.image: tree for leaf, tree in zip(waiting, trees, strict=True)}
    while time.monotonic() < end:
        going = [tree for tree in trees if tree.open(limits)]
        if not going:
            break
        children = [leaf for tree in going for leaf in tree.grow(limits)]
        for part in _batches(children, limits.batch):
            if time.monotonic() < end:
                part, reached = _measure(pair, part, limits.steps, value)
            else:  # what is out of time keeps its parent's bound
                reached = [-float("inf")] * len(part)
            for leaf, high in zip(part, reached, strict=True):
                tree = by_image[leaf.image]
                tree.push(leaf)
                tree.found = max(tree.found, high)
    for image, tree in by_image.items():
        bounds[image] = min(tree.bound, bounds[image])
    return bound.new_tensor(bounds)


def _measure(
    pair: Pair, leaves: list[Leaf], steps: int, value: Callable[[Tensor], Tensor]
) -> tuple[list[Leaf], list[float]]:
    measured, points = measure(pair, leaves, steps)
    return measured, value(points).tolist()


def _batches(leaves: list[Leaf], size: int) -> list[list[Leaf]]:
    """What is measured at once: parts that were polished equally often, as that decides how long their steps are."""

    def polished(leaf: Leaf) -> int:
        return leaf.polished

    groups = [list(group) for _, group in itertools.groupby(sorted(leaves, key=polished), polished)]
    return [group[start : start + size] for group in groups for start in range(0, len(group), size)]
