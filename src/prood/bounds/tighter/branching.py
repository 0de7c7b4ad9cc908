"""Branch and bound on the signs of unstable units (Bunel et al. 2020; bounds with multipliers: Wang et al. 2021).

Where a unit's sign is known its relaxation is exact. A part of the ball is cut in two by a unit's sign, each half has
a bound of its own, and the larger of them holds for both. The part with the largest bound is cut next.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from torch import Tensor

from prood.bounds.options import Budget
from prood.bounds.tighter.leaves import Leaf, State, measure


class SplitTree:
    """The parts of one image's ball, which may be cut `limit` times."""

    def __init__(self, root: Leaf, target: float, found: float, limit: float) -> None:
        self.target, self.found, self.limit = target, found, limit
        self.splits, self.closed = 0, -math.inf
        self.heap: list[tuple[float, int, Leaf]] = []
        self.count = itertools.count()
        self.push(root)

    def push(self, leaf: Leaf) -> None:
        heapq.heappush(self.heap, (-leaf.bound, next(self.count), leaf))

    @property
    def bound(self) -> float:
        return max(self.closed, -self.heap[0][0] if self.heap else -math.inf)

    @property
    def open(self) -> bool:
        """Whether another split could help: neither decided, nor exact, nor at its limit."""
        undecided = self.bound >= self.target and self.bound > self.found + 1e-6
        return undecided and self.bound > self.closed and self.splits < self.limit

    def grow(self, batch: int) -> list[Leaf]:
        """Take the worst parts out and return what they are cut into: about as many as there are, or fill a batch.

        Other images have no say in it, so that what is proven of one does not depend on its company.
        """
        share = min(batch, max(2, len(self.heap)))
        children: list[Leaf] = []
        while self.bound > max(self.closed, self.found) and self.splits < self.limit and len(children) < share:
            leaf = heapq.heappop(self.heap)[2]
            if leaf.candidate is not None:
                self.splits += 1
                halves = [leaf.signs | {leaf.candidate: sign} for sign in (1.0, -1.0)]
                children += [replace(leaf, signs=signs, candidate=None, polished=0) for signs in halves]
            elif leaf.polished < 20:  # with nothing left to cut it is optimised again
                children.append(replace(leaf, polished=leaf.polished + 1))
            else:
                self.closed = max(self.closed, leaf.bound)
        return children


def branch_and_bound(state: State, value: Callable[[Tensor], Tensor], budget: Budget) -> Tensor:
    """Bounds that are at most those of the state, with what the budget allows; shape (B,).

    value: the network itself, for the points at which bounds are attained may attain them.
    """
    pair, batch = state.pair, budget.batch_on(state.bound.device)
    assert pair is not None
    end = time.monotonic() + budget.seconds * len(state.bound)
    # In one go each: every number that is fetched by itself waits for the device.
    bounds, targets, attained = state.bound.tolist(), state.target.tolist(), state.found.tolist()
    roots = [
        Leaf(image, bound, {}, {}, {number: slope[image].half() for number, slope in pair.slopes.items()})
        for image, bound in enumerate(bounds)
        if bound >= targets[image]
    ]
    trees: dict[int, SplitTree] = {}
    limit = math.inf if budget.splits is None else budget.splits
    for part in _batches(roots, batch):
        part, points = measure(pair, part, 0)
        for leaf, reached in zip(part, value(points).tolist(), strict=True):
            trees[leaf.image] = SplitTree(leaf, targets[leaf.image], max(attained[leaf.image], reached), limit)
    while time.monotonic() < end:
        going = [tree for tree in trees.values() if tree.open]
        if not going:
            break
        for part in _batches([leaf for tree in going for leaf in tree.grow(batch)], batch):
            values = [-math.inf] * len(part)
            if time.monotonic() < end:  # what is out of time keeps its parent's bound
                part, points = measure(pair, part, budget.split_steps)
                values = value(points).tolist()
            for leaf, reached in zip(part, values, strict=True):
                tree = trees[leaf.image]
                tree.push(leaf)
                tree.found = max(tree.found, reached)
    for image, tree in trees.items():
        bounds[image] = min(tree.bound, bounds[image])
    return state.bound.new_tensor(bounds)


def _batches(leaves: list[Leaf], size: int) -> list[list[Leaf]]:
    """What is measured at once: parts that were polished equally often, as that decides how long their steps are."""
    polished = attrgetter("polished")
    groups = [list(group) for _, group in itertools.groupby(sorted(leaves, key=polished), polished)]
    return [group[start : start + size] for group in groups for start in range(0, len(group), size)]
