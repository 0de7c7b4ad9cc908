"""From cheap to dear: optimised slopes, tightened hidden units, branch and bound; each never worse than the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from prood.bounds.arithmetic import searching
from prood.bounds.box import Box
from prood.bounds.concrete import finish, scalar
from prood.bounds.options import Budget, FullOptions
from prood.bounds.registry import relax
from prood.bounds.rounding import per_row
from prood.bounds.tighter.alpha import better_start, descend, tilts
from prood.bounds.tighter.branching import branch_and_bound
from prood.bounds.tighter.chain import Choice, Linear, flatten, plain, rows, same
from prood.bounds.tighter.intermediate import Units
from prood.bounds.tighter.leaves import Pair, State

_CLIMB = 10
"""Steps of the ascent that looks for a value above the threshold."""


class Tightening:
    """The stages for one network. `network` is bounded; `fast` is an equal one for the search."""

    def __init__(self, network: nn.Module, fast: nn.Module, budget: Budget) -> None:
        self.network, self.budget = network, budget
        self.layers = flatten(network)
        self.fast = nn.Sequential(*(self.layers if fast is network else flatten(fast)))

    def chunks(self, box: Box) -> Sequence[Tensor]:
        """The images' rows, a few at a time.

        There are none where the row of layers is not the network, on which its own rule has the last word.
        """
        if not len(box.radius):
            return ()
        every = torch.arange(len(box.radius), device=box.radius.device)
        first = rows(box, every[:1])
        boxes = Linear.of(self.layers, first).boxes
        if not same(relax(self.network, first)[0], boxes[-1]):
            return ()
        values = 8 * sum(entering.radius.numel() for entering in boxes)  # which the descent holds at once
        return torch.split(every, max(1, self.budget.values_on(every.device) // values))

    def relaxed(self, box: Box, refine: Units | None = None) -> Linear:
        """The box around another ball is far too big: its first units are bounded over the ball itself."""
        first = None if box.within is None else Units(self.budget.values_on(box.radius.device))
        return Linear.of(self.layers, box, refine, first)

    def value(self, points: Tensor) -> Tensor:
        """The network itself, in the arithmetic of the search."""
        value: Tensor = self.fast(points.clone())
        return value.squeeze(1)

    def climb(self, state: State) -> State:
        """A few steps of ascent, for the images that no bound will decide because a value exceeds the threshold."""
        weights = (value for value in (*self.fast.parameters(), *self.fast.buffers()) if value.is_floating_point())
        box = plain(state.box, next(weights, state.box.radius).dtype)
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
                point = centre + (point - centre) * per_row(share, point)
        return replace(state, found=torch.maximum(found, self.value(point).to(found)))

    def lowered(self, state: State, refine: Units | None = None) -> State:
        """With the bound of the slopes that descent finds, in the arithmetic that was asked for.

        On boxes that were refined, what the first units lose together counts as well, with slopes found in the same
        way.
        """
        linear, steps = self.relaxed(state.box, refine), self.budget.steps
        scout = linear.on(self.fast, torch.float32) if linear.boxes[0].sound else linear
        start = better_start(scout) if state.pair is None else state.pair.slopes
        slopes, _ = descend(scout.bound, start, steps)
        if refine is not None and (tilt := tilts(scout, slopes, steps)) is not None:
            linear = replace(linear, tilt=tilt.to(linear.boxes[0].radius))
        bound = finish(linear.boxes[-1], linear.bound(slopes, joint=refine is not None))
        return replace(state, bound=torch.minimum(state.bound, bound), pair=Pair(scout, linear, slopes))

    def alpha(self, state: State) -> State:
        """α-CROWN on interval bounds."""
        return self.lowered(state)

    def crown(self, state: State) -> State:
        """CROWN bounds of the units whose upper line is in use, then α-CROWN on top.

        Where the plane's slope over a ReLU is negative only the lower line enters, α·z whatever the interval is, and α
        is optimised: a smaller interval would bring nothing. Those with a positive slope are few, some hundreds of
        tens of thousands in a discriminator, and pay the height of the chord.
        """
        assert state.pair is not None
        watch = Choice()
        state.pair.scout.bound(state.pair.slopes, watch=watch)
        wanted = None if self.budget.all_units else {number: slope > 0 for number, slope in watch.items()}
        return self.lowered(state, Units(self.budget.values_on(state.bound.device), self.budget.unit_steps, wanted))

    def branch(self, state: State) -> State:
        """Branch and bound."""
        assert state.pair is not None
        bound = finish(state.pair.proof.boxes[-1], branch_and_bound(state, self.value, self.budget))
        return replace(state, bound=torch.minimum(state.bound, bound))


def in_ball(network: nn.Module, box: Box, budget: Budget) -> Tensor | None:
    """CROWN-IBP over an ℓ2 or ℓ1 ball, (N,); None for a network that is not a row of layers."""
    work = Tightening(network, network, budget)
    bounds = []
    for chunk in work.chunks(box):
        linear = work.relaxed(rows(box, chunk))
        ends = [linear.bound(middle=middle) for middle in (False, True)]
        bounds.append(finish(linear.boxes[-1], torch.minimum(torch.minimum(*ends), scalar(linear.boxes[-1].upper))))
    return torch.cat(bounds) if bounds else None


def tighten(
    network: nn.Module, fast: nn.Module, box: Box, bound: Tensor, way: FullOptions, threshold: float | Tensor | None
) -> Tensor:
    """The bounds (N,) after the stages of a method, at most those given."""
    work = Tightening(network, fast, way.budget or Budget())
    target = torch.as_tensor(-torch.inf if threshold is None else threshold).to(bound).expand_as(bound)
    result = bound.clone()
    for chunk in work.chunks(box):
        found = torch.full_like(bound[chunk], -torch.inf)
        state = State(rows(box, chunk), bound[chunk], target[chunk], found)
        result[chunk] = _stages(work, state, way.method, threshold is not None)
    return result


def _stages(work: Tightening, state: State, method: str, threshold: bool) -> Tensor:
    only_open = method == "auto" and threshold
    count = {"alpha-crown": 1, "crown": 2, "bab": 3}.get(method, 3 if threshold else 1)
    stages = (work.alpha, work.crown, work.branch)[:count]
    result, index = state.bound.clone(), torch.arange(len(state.bound), device=state.bound.device)
    for stage in (work.climb, *stages) if only_open else stages:
        if only_open:  # the verdict: an image neither proven to stay below the threshold nor found to exceed it
            left = ((state.bound >= state.target) & (state.found < state.target)).nonzero().squeeze(1)
            state, index = state.some(left), index[left]
        if not len(index):
            break
        state = stage(state)
        result[index] = state.bound
    return result
