"""Rules for layers made of layers: a sequence and a residual sum."""

from __future__ import annotations

from torch import nn

from prood.bounds.box import Box
from prood.bounds.layers import Residual
from prood.bounds.registry import Plane, Pullback, Rule, Slopes, UnsupportedLayer, interval, register, relax


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

        def pull(plane: Plane) -> Plane:
            one = pull_body(plane)
            other = pull_shortcut(Plane(plane.slope, plane.offset * 0))
            return Plane(one.slope + other.slope, one.offset + other.offset)

        return _add(body, shortcut), pull


def _add(one: Box, other: Box) -> Box:
    if one.radius.shape != other.radius.shape:  # broadcasting would send the wrong slopes back
        shapes = f"{tuple(one.radius.shape[1:])} and {tuple(other.radius.shape[1:])}"
        raise UnsupportedLayer(f"the branches of a Residual have the shapes {shapes}: bounds need equal ones")
    return one.onto(one.centre + other.centre, one.radius + other.radius)
