"""The parts of a ball that branching leaves: which units were split, and how a batch of parts is bounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from prood.bounds.box import Box
from prood.bounds.registry import rule_for
from prood.bounds.tighter.alpha import RATE, descend, tilts
from prood.bounds.tighter.chain import Choice, Linear, intersect, rows

Unit = tuple[int, int]
"""A layer's number, and a unit's number in it."""


@dataclass(frozen=True)
class Leaf:
    """The inputs of an image's ball on which some units have a known sign."""

    image: int
    bound: float
    signs: dict[Unit, float]
    betas: dict[Unit, float]  # the multiplier of each sign, times the sign
    slopes: Choice  # of one row, in half precision: where the search goes on
    candidate: Unit | None = None  # the unit whose relaxation costs most
    polished: int = 0  # how often it was optimised with nothing left to split


@dataclass(frozen=True)
class Pair:
    """The same relaxation twice: to search with, in plain arithmetic, and to prove with, in the one asked for."""

    scout: Linear
    proof: Linear
    slopes: Choice  # the best that were found

    def some(self, index: Tensor) -> Pair:
        proof = self.proof.some(index)
        scout = proof if self.scout is self.proof else self.scout.some(index)
        return Pair(scout, proof, {number: slope[index] for number, slope in self.slopes.items()})


@dataclass(frozen=True)
class State:
    """What is known of some images."""

    box: Box
    bound: Tensor
    target: Tensor  # done when the bound is below
    found: Tensor  # a value that the network attains in the ball: nothing can be below
    pair: Pair | None = None

    def some(self, index: Tensor) -> State:
        if len(index) in (0, len(self.bound)):
            return self
        pair = None if self.pair is None else self.pair.some(index)
        return State(rows(self.box, index), self.bound[index], self.target[index], self.found[index], pair)


def measure(pair: Pair, leaves: list[Leaf], steps: int) -> tuple[list[Leaf], Tensor]:
    """The leaves with their bounds, candidates and slopes; and for each, the point at which its bound is attained.

    All of them were polished equally often.
    """
    like = pair.scout.boxes[0].radius
    owner = torch.tensor([leaf.image for leaf in leaves], device=like.device)
    layers = sorted({number for leaf in leaves for number, _ in leaf.signs})
    shapes = {number: pair.scout.boxes[number].radius.shape[1:] for number in layers}
    signs = {n: _dense([leaf.signs for leaf in leaves], n, shapes[n]).to(like) for n in layers}
    betas = {n: _dense([leaf.betas for leaf in leaves], n, shapes[n]).to(like) for n in layers}
    slopes = {}
    for number in pair.scout.bends:
        given = torch.stack([leaf.slopes[number] for leaf in leaves]).to(like)
        if number in signs:  # a unit of known sign is linear, even where rounding leaves its box a hair across zero
            given = torch.where(signs[number] == 0, given, (signs[number] > 0).to(given))
        slopes[number] = given
    tilt = None if pair.proof.tilt is None else pair.proof.tilt[owner]
    scout, rate = branch(pair.scout, owner, signs, tilt), RATE * 0.7 ** leaves[0].polished
    best, extra = descend(partial(scout.bound, joint=True), slopes, steps, signs=signs, extra=betas, rate=rate)
    with torch.no_grad():
        if tilt is not None and steps:
            tilt = tilts(scout, best, steps, extra)
        proof, watch = branch(pair.proof, owner, signs, tilt), Choice()
        bound = proof.bound(best, extra, watch=watch, joint=True)
        bound = torch.where(bound.isnan(), torch.inf, bound)
        candidates = _candidates(proof, watch, signs)
        box, slope = rows(pair.scout.boxes[0], owner), watch[-1].to(like)
        # The corner of a box lies outside of an ℓ2 or ℓ1 ball: there the image itself has to do.
        point = box.middle + box.radius * slope.sign() if box.within is None else box.points
    measured = []
    for row, (leaf, value, multipliers) in enumerate(zip(leaves, bound.tolist(), _sparse(extra, leaves), strict=True)):
        known = dict(zip(leaf.signs, multipliers, strict=True))
        kept = {number: slope[row].half() for number, slope in best.items()}
        value = min(leaf.bound, value)  # it is a part of its parent
        measured.append(replace(leaf, bound=value, betas=known, slopes=kept, candidate=candidates[row]))
    return measured, point


def branch(linear: Linear, owner: Tensor, signs: Choice, tilt: Tensor | None) -> Linear:
    """Rows of several images, in each of which some units have a known sign."""
    pulls, cut = list(linear.pulls), {}
    for number, sign in signs.items():
        box, layer = rows(linear.boxes[number], owner), linear.layers[number]
        free = torch.full_like(box.radius, torch.inf)
        box = intersect(box, torch.where(sign > 0, 0, -free), torch.where(sign < 0, 0, free))
        cut[number] = box
        pulls[number] = rule_for(layer).pullback(layer, box, {})
    tilt = None if tilt is None else tilt.to(linear.boxes[0].radius)
    return replace(linear, pulls=tuple(pulls), owner=owner, cut=cut, tilt=tilt)


def _dense(known: list[dict[Unit, float]], layer: int, shape: torch.Size) -> Tensor:
    values = torch.zeros(len(known), shape.numel(), dtype=torch.float64)
    for row, units in enumerate(known):
        for (number, unit), value in units.items():
            if number == layer:
                values[row, unit] = value
    return values.reshape(-1, *shape)


def _sparse(extra: Choice, leaves: list[Leaf]) -> list[list[float]]:
    """The entries of the split units, fetched from the device once a layer."""
    result = [[0.0] * len(leaf.signs) for leaf in leaves]
    for number, values in extra.items():
        places = [
            (row, place, unit)
            for row, leaf in enumerate(leaves)
            for place, (layer, unit) in enumerate(leaf.signs)
            if layer == number
        ]
        at = torch.tensor(places, device=values.device)
        for (row, place, _), value in zip(places, values.flatten(1)[at[:, 0], at[:, 2]].tolist(), strict=True):
            result[row][place] = value
    return result


def _candidates(linear: Linear, watch: Choice, signs: Choice) -> list[Unit | None]:
    """The unsplit unit with the largest |slope| times the height of the relaxation (BaBSR, Bunel et al. 2020)."""
    scores, units = [], []
    for number in linear.bends:
        box = linear.box(number)
        lower, upper = box.lower, box.upper
        # The height of the triangle over an unstable unit's interval.
        height = torch.where((lower < 0) & (upper > 0), -upper * lower / (upper - lower), 0)
        score = watch[number].abs() * height
        if number in signs:
            score = torch.where(signs[number] == 0, score, 0)
        best, unit = score.flatten(1).max(1)
        scores.append(best)
        units.append(unit)
    if not scores:  # a network without ReLUs
        return [None] * len(linear.boxes[0].radius if linear.owner is None else linear.owner)
    best, layer = torch.stack(scores, 1).max(1)
    unit = torch.stack(units, 1).gather(1, layer[:, None]).squeeze(1)
    found = zip(best.tolist(), layer.tolist(), unit.tolist(), strict=True)
    return [(linear.bends[place], number) if value > 0 else None for value, place, number in found]
