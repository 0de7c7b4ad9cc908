"""Rules for layers made of layers: a sequence and a residual sum."""

from dataclasses import replace

from torch import nn

from prood.bounds.box import Box, either
from prood.bounds.layers import Residual
from prood.bounds.registry import Plane, Pullback, Rule, Slopes, UnsupportedLayer, interval, register, relax
from prood.bounds.rounding import LARGEST, SMALLEST, UNIT, positive_sum, unit, up


@register(nn.Sequential)
class SequentialRule(Rule[nn.Sequential]):
    def interval(self, layer: nn.Sequential, box: Box) -> Box:
        for child in layer:
            box = interval(child, box)
        return box

    def relax(self, layer: nn.Sequential, box: Box, slopes: Slopes) -> tuple[Box, Pullback]:
        pullbacks = []
        for child in layer:
            box, pullback = relax(child, box, slopes)
            pullbacks.append(pullback)

        def pull(plane: Plane) -> Plane:
            for pullback in reversed(pullbacks):
                plane = pullback(plane)
            return plane

        return box, pull


@register(Residual)
class ResidualRule(Rule[Residual]):
    """Intervals add up; a plane goes back through both branches, which may cancel in its slopes."""

    def interval(self, layer: Residual, box: Box) -> Box:
        return _add(interval(layer.body, box), interval(layer.shortcut, box))

    def relax(self, layer: Residual, box: Box, slopes: Slopes) -> tuple[Box, Pullback]:
        body, pull_body = relax(layer.body, box, slopes)
        shortcut, pull_shortcut = relax(layer.shortcut, box, slopes)

        result = _add(body, shortcut)

        def pull(plane: Plane) -> Plane:
            one = pull_body(plane)
            other = pull_shortcut(plane.onto(plane.slope, plane.offset * 0))
            slope, offset = one.slope + other.slope, one.offset + other.offset
            if box.sound:  # the deployed sum is rounded, and so is the sum of the slopes
                deployed = up(2 * UNIT * result.size) + SMALLEST
                own = up(2 * unit(slope) * slope.abs() * plane.of(box.size)) + SMALLEST
                offset = offset + positive_sum(plane.slope.abs() * plane.of(deployed)) + positive_sum(own)
            return plane.onto(slope, offset)

        return result, pull


def _add(one: Box, other: Box) -> Box:
    if one.radius.shape != other.radius.shape:  # broadcasting would send the wrong slopes back
        shapes = f"{tuple(one.radius.shape[1:])} and {tuple(other.radius.shape[1:])}"
        raise UnsupportedLayer(f"the branches of a Residual have the shapes {shapes}: bounds need equal ones")
    result = one.onto(one.centre + other.centre, one.radius + other.radius)
    if not one.sound:
        return result
    rounding = 2 * (UNIT + unit(result.radius)) * up(result.middle.abs() + result.radius, 2) + SMALLEST
    result = replace(result, radius=up(result.radius + rounding, 4))
    grown = ~(result.size < LARGEST).flatten(1).all(1)  # sums of sums grow, without any weights
    return replace(result, overflow=either(one.overflow, other.overflow, grown))
