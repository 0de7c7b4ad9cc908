"""From cheap to dear: optimised slopes, tightened hidden units, branch and bound; each never worse than the last."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from prood.bounds.box import Box
from prood.bounds.concrete import finish, scalar
from prood.bounds.registry import relax
from prood.bounds.tighter.alpha import better_start, optimise, searching, tilts
from prood.bounds.tighter.branching import Limits, branch_and_bound
from prood.bounds.tighter.budget import Budget
from prood.bounds.tighter.chain import Choice, Linear, flatten, plain, rows, same
from prood.bounds.tighter.intermediate import Units
from prood.bounds.tighter.leaves import Pair

_TEMPORARY = 8
"""Tensors of a layer's size that the descent holds at once."""

_CLIMB = 10
"""Steps of the ascent that looks for a value above the threshold."""


@dataclass(frozen=True)
class State:
    """What is known of some images."""

    box: Box
    bound: Tensor
    target: Tensor  # done when the bound is below
    found: Tensor  # a value that the network attains in the ball
    pair: Pair | None = None
    slopes: Choice | None = None

    def some(self, index: Tensor) -> State:
        if len(index) in (0, len(self.bound)):
            return self
        slopes = None if self.slopes is None else {number: slope[index] for number, slope in self.slopes.items()}
        pair = None if self.pair is None else self.pair.some(index)
        return State(rows(self.box, index), self.bound[index], self.target[index], self.found[index], pair, slopes)

    def lowered(self, pair: Pair, slopes: Choice, *, joint: int | None = None) -> State:
        """With the bound of the slopes that a search found, in the arithmetic that was asked for.

        joint: steps of descent on the slopes of what the first units lose together, which counts unless it is None.
        """
        wide = pair.proof.boxes[0].radius.dtype
        if joint is not None and joint > 0:
            tilt = tilts(pair.scout, slopes, joint)
            pair = replace(pair, proof=replace(pair.proof, tilt=None if tilt is None else tilt.to(wide)))
        bound = pair.proof.bound({n: slope.to(wide) for n, slope in slopes.items()}, joint=joint is not None)
        bound = finish(pair.proof.boxes[-1], bound)
        return replace(self, bound=torch.minimum(self.bound, bound), pair=pair, slopes=slopes)


class Tightening:
    """The stages for one network. `network` is that of the bounds; `fast` is the same one, to search with."""

    def __init__(self, network: nn.Module, fast: nn.Module, budget: Budget) -> None:
        self.network, self.budget = network, budget
        self.layers = flatten(network)
        self.fast = self.layers if fast is network else flatten(copy.deepcopy(fast).requires_grad_(False))

    def fits(self, box: Box) -> bool:
        """Whether the row of layers is the network, on which its own rule has the last word."""
        first = rows(box, torch.zeros(1, dtype=torch.long, device=box.radius.device))
        return same(relax(self.network, first)[0], Linear.of(self.layers, first).boxes[-1])

    def at_once(self, box: Box) -> int:
        """Images in a chunk."""
        first = rows(box, torch.zeros(1, dtype=torch.long, device=box.radius.device))
        units = sum(entering.radius.numel() for entering in Linear.of(self.layers, first).boxes)
        return max(1, self.budget.values_on(box.radius.device) // (_TEMPORARY * units))

    def first(self, box: Box) -> Units | None:
        """The box around another ball is far too big: its first units are bounded over the ball itself."""
        return None if box.within is None else Units(self.budget.values_on(box.radius.device))

    def value(self, points: Tensor) -> Tensor:
        """The network itself, in the arithmetic of the search."""
        points = points.clone()
        for layer in self.fast:
            points = layer(points)
        return points.squeeze(1)

    def climb(self, state: State) -> State:
        """A few steps of ascent, for the images that no bound will decide because a value exceeds the threshold."""
        box = plain(state.box, next(iter(self.parameters_of_search()), state.box.radius).dtype)
        point, found = (box.points if box.anchored else box.middle).clone(), state.found
        for step in range(_CLIMB):
            with torch.enable_grad(), searching(point.device):
                value = self.value(point.requires_grad_())
                (gradient,) = torch.autograd.grad(value.sum(), point)
            found = torch.maximum(found, value.detach().to(found))
            length = box.radius * (1 - step / _CLIMB)
            point = torch.clamp(point.detach() + length * gradient.sign(), box.lower, box.upper)
            if box.within is not None:  # back into the ball: what lies outside decides nothing
                centre = box.within.centre.to(point)
                size = (point - centre).flatten(1).norm(p=2 if box.within.norm == "l2" else 1, dim=1)
                share = (box.within.eps.to(size) * (1 - 1e-6) / size.clamp_min(1e-30)).clamp(max=1)
                point = centre + (point - centre) * share.reshape(-1, *[1] * (point.ndim - 1))
        return replace(state, found=torch.maximum(found, self.value(point).to(found)))

    def parameters_of_search(self) -> list[Tensor]:
        return [
            value
            for layer in self.fast
            for value in (*layer.parameters(), *layer.buffers())
            if value.is_floating_point()
        ]

    def pair(self, linear: Linear) -> Pair:
        if not linear.boxes[0].sound:
            return Pair(linear, linear)
        return Pair(linear.on(self.fast, torch.float32), linear)

    def alpha(self, state: State) -> State:
        """α-CROWN on interval bounds."""
        pair = self.pair(Linear.of(self.layers, state.box, first=self.first(state.box)))
        return state.lowered(pair, optimise(pair.scout, better_start(pair.scout), self.budget.steps))

    def crown(self, state: State) -> State:
        """CROWN bounds of the units whose upper line is in use, then α-CROWN on top.

        Where the plane's slope over a ReLU is negative only the lower line enters, α·z whatever the interval is, and α
        is optimised: a smaller interval would bring nothing. Those with a positive slope are few, some hundreds of
        tens of thousands in a discriminator, and pay the height of the chord.
        """
        assert state.pair is not None
        assert state.slopes is not None
        watch: Choice = {}
        state.pair.scout.bound(state.slopes, watch=watch)
        wanted = None if self.budget.all_units else {number: slope > 0 for number, slope in watch.items()}
        refine = Units(self.budget.values_on(state.bound.device), self.budget.unit_steps, wanted)
        pair = self.pair(Linear.of(self.layers, state.box, refine, self.first(state.box)))
        return state.lowered(pair, optimise(pair.scout, state.slopes, self.budget.steps), joint=self.budget.steps)

    def branch(self, state: State) -> State:
        """Branch and bound."""
        assert state.pair is not None
        assert state.slopes is not None
        budget = self.budget
        batch = budget.batch_on(state.bound.device)
        limits = Limits(budget.seconds * len(state.bound), budget.splits, batch, budget.split_steps)
        bound = branch_and_bound(
            state.pair,
            state.slopes,
            state.bound,
            target=state.target,
            found=state.found,
            value=self.value,
            limits=limits,
        )
        return replace(state, bound=torch.minimum(state.bound, finish(state.pair.proof.boxes[-1], bound)))


def in_ball(network: nn.Module, box: Box, budget: Budget) -> Tensor | None:
    """CROWN-IBP over an ℓ2 or ℓ1 ball, (N,); None for a network that is no row of layers."""
    work = Tightening(network, network, budget)
    if not len(box.radius) or not work.fits(box):
        return None
    bounds = []
    for chunk in torch.split(torch.arange(len(box.radius), device=box.radius.device), work.at_once(box)):
        part = rows(box, chunk)
        linear = Linear.of(work.layers, part, first=work.first(part))
        ends = [linear.bound(middle=middle) for middle in (False, True)]
        bounds.append(finish(linear.boxes[-1], torch.minimum(torch.minimum(*ends), scalar(linear.boxes[-1].upper))))
    return torch.cat(bounds)


STAGES = {"alpha-crown": 1, "crown": 2, "bab": 3}


def tighten(
    network: nn.Module,
    fast: nn.Module,
    box: Box,
    bound: Tensor,
    method: str,
    budget: Budget,
    threshold: float | Tensor | None,
) -> Tensor:
    """The bounds (N,) after the stages of a method, at most those given."""
    if not len(bound):
        return bound
    work = Tightening(network, fast, budget)
    if not work.fits(box):
        return bound
    target = (
        torch.full_like(bound, -torch.inf)
        if threshold is None
        else torch.as_tensor(threshold).to(bound).expand_as(bound)
    )
    result = bound.clone()
    chunks = torch.split(torch.arange(len(bound), device=bound.device), work.at_once(box))
    for chunk in chunks:
        found = torch.full_like(bound[chunk], -torch.inf)
        state = State(rows(box, chunk), bound[chunk], target[chunk], found)
        result[chunk] = _stages(work, state, method, threshold is not None)
    return result


def _stages(work: Tightening, state: State, method: str, threshold: bool) -> Tensor:
    only_open = method == "auto" and threshold
    count = STAGES.get(method, 3 if threshold else 1)
    result, index = state.bound.clone(), torch.arange(len(state.bound), device=state.bound.device)
    if only_open:
        state, index = _narrow(state, index)
        state = work.climb(state) if len(index) else state
    for stage in (work.alpha, work.crown, work.branch)[:count]:
        if only_open:
            state, index = _narrow(state, index)
        if not len(index):
            break
        state = stage(state)
        result[index] = state.bound
    return result


def _narrow(state: State, index: Tensor) -> tuple[State, Tensor]:
    """The images whose verdict is open: not proven to stay below the threshold, nor found to exceed it."""
    left = ((state.bound >= state.target) & (state.found < state.target)).nonzero().squeeze(1)
    return state.some(left), index[left]
