"""The registry: which rule says how boxes and planes pass through a type of layer.

A rule for a layer of your own takes a few lines; see `Affine` and `Monotone` for the two common kinds:

    @prood.bounds.register(nn.Softplus)
    class SoftplusRule(prood.bounds.Monotone):
        pass                                    # intervals; add `pullback` to have linear bounds as well
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from prood.bounds.box import Box, either, widen
from prood.bounds.rounding import EXACT, Rounding, Sums, errors, inflate, positive_sum, relative_error
from prood.errors import Unsupported


class UnsupportedLayer(Unsupported):
    """No rule is registered for a layer, or the layer is in a state that its rule does not cover."""


class NoLinearRule(UnsupportedLayer):
    """The layer has an interval rule but no linear one."""


Slopes = Mapping[nn.Module, Tensor]
"""For a ReLU, the slopes in [0, 1] of its lower relaxation; what is not listed gets the default."""


@dataclass(frozen=True)
class Plane:
    """An affine upper bound of a scalar, per row: scalar ≤ Σ slope · value + offset.

    Where a ReLU leaves a choice of the lower slope it takes the slope in `slopes`, or the one at the box's anchor or,
    if the plane says `middle` or there is none, at the middle of the interval. A row belongs to the box of the same
    number, or to the one that `owner` says: that is how many planes pass back through the same boxes.
    """

    slope: Tensor  # (R, *shape of the value it applies to)
    offset: Tensor  # (R,)
    slopes: Slopes = field(default_factory=dict)
    middle: bool = False
    owner: Tensor | None = None

    def onto(self, slope: Tensor, offset: Tensor) -> Plane:
        """The plane before a layer."""
        return replace(self, slope=slope, offset=offset)

    def of(self, values: Tensor) -> Tensor:
        """What belongs to each row, of something with an entry for each box."""
        return values if self.owner is None else values[self.owner]


Pullback = Callable[[Plane], Plane]
"""Turns a plane over a layer's output into a plane over its input."""

L = TypeVar("L", bound=nn.Module)


class Rule(Generic[L]):
    """How boxes pass forwards through layers of one type, and planes backwards."""

    def interval(self, layer: L, box: Box) -> Box:
        """A box that contains the layer's output for every point of `box`."""
        raise UnsupportedLayer(f"{type(self).__name__} does not define interval()")

    def pullback(self, layer: L, box: Box, slopes: Slopes) -> Pullback:
        """The linear relaxation of the layer on `box`."""
        raise NoLinearRule(
            f"no linear bound for {type(layer).__name__}: use method='ibp', or give its rule a pullback()"
        )

    def relax(self, layer: L, box: Box, slopes: Slopes) -> tuple[Box, Pullback]:
        """Both of the above in one pass; a layer made of layers overrides it."""
        return self.interval(layer, box), self.pullback(layer, box, slopes)


class Monotone(Rule[L]):
    """A layer that does not decrease in any input coordinate.

    `exact`: it rounds nothing, as a maximum does. Without it the layer has bounds in plain arithmetic only.
    """

    exact: ClassVar[bool] = False

    def interval(self, layer: L, box: Box) -> Box:
        if box.sound and not self.exact:
            name = type(layer).__name__
            raise UnsupportedLayer(f"{name} may round: use arithmetic='plain', or set exact = True in its rule")
        return box.monotone(lambda x: layer(x.clone()))  # a copy, because the layer may work in place


class Affine(Rule[L]):
    """A layer x ↦ Wx + b, given by the four products that bounds need.

    `keeps_sign`: it makes nothing negative of what is not, as an average does.
    """

    keeps_sign: ClassVar[bool] = False

    def apply(self, layer: L, x: Tensor) -> Tensor:
        """Wx + b"""
        result: Tensor = layer(x)
        return result

    def apply_absolute(self, layer: L, radius: Tensor) -> Tensor:
        """|W| r"""
        raise UnsupportedLayer(f"{type(self).__name__} does not define apply_absolute()")

    def adjoint(self, layer: L, slope: Tensor, like: Tensor) -> Tensor:
        """Wᵀ s, where `like` has the shape of the layer's input."""
        raise UnsupportedLayer(f"{type(self).__name__} does not define adjoint()")

    def constant(self, layer: L, slope: Tensor) -> Tensor | float:
        """⟨s, b⟩ per row"""
        return 0.0

    def adjoint_absolute(self, layer: L, slope: Tensor, like: Tensor) -> Tensor | None:
        """|W|ᵀ s, where it is cheap: a plane then pays for rounding by what the inputs are, not by what they may be."""
        return None

    def sums(self, layer: L, live: Tensor) -> Sums:
        """How it rounds: what its outputs are sums of. `live` is 1 where an input is not exactly zero, else 0."""
        raise UnsupportedLayer(f"{type(layer).__name__} may round: use arithmetic='plain', or give its rule sums()")

    def interval(self, layer: L, box: Box) -> Box:
        return self._inflated(layer, box) if box.sound else self._through(layer, box)[0]

    def _inflated(self, layer: L, box: Box) -> Box:
        """A sound box at the price of a plain one: what rounding may add goes through |W| together with the radius.

        A little larger than the result of `_through`, which also knows what planes have to pay.
        """
        size = box.size
        sums = self.sums(layer, (size != 0).to(size.dtype))
        if sums is EXACT:
            return self._through(layer, box)[0]
        share = relative_error(sums, size)
        centre = widen(self.apply(layer, box.centre))
        radius = self.apply_absolute(layer, torch.addcmul(box.radius, size, share))
        radius, overflow = inflate(sums, size, share, radius)
        positive = box.positive and self.keeps_sign
        return replace(box.onto(centre, radius), overflow=either(box.overflow, overflow), positive=positive)

    def relax(self, layer: L, box: Box, slopes: Slopes) -> tuple[Box, Pullback]:
        result, rounding = self._through(layer, box)

        def pull(plane: Plane) -> Plane:
            like = box.radius[:1].expand(len(plane.slope), *box.radius.shape[1:])
            slope = widen(self.adjoint(layer, plane.slope, like))
            if rounding is None:
                return plane.onto(slope, plane.offset + self.constant(layer, plane.slope))
            offset = plane.offset + self.constant(layer, plane.slope.double())
            steep = plane.slope.abs()
            paid = plane.of(rounding.deployed + rounding.own)
            # |computed − exact| ≤ κ(|W|x + |b|) is itself a plane over inputs that are not negative.
            tilt = self.adjoint_absolute(layer, steep * plane.of(rounding.relative), like) if box.positive else None
            if tilt is not None:
                slope, paid = slope + tilt, plane.of(rounding.constant + rounding.own)
            return plane.onto(slope, offset + positive_sum(steep * paid))

        return result, pull

    def pullback(self, layer: L, box: Box, slopes: Slopes) -> Pullback:
        return self.relax(layer, box, slopes)[1]

    def _through(self, layer: L, box: Box) -> tuple[Box, Rounding | None]:
        """The box behind the layer and, if it is sound, the rounding errors that a plane over the output pays for."""
        centre = self.apply(layer, box.centre)
        if not box.sound:
            return box.onto(centre, self.apply_absolute(layer, box.radius)), None
        size, positive = box.size, box.positive and self.keeps_sign
        sums = self.sums(layer, (size != 0).to(size.dtype))
        if sums is EXACT:
            return replace(box.onto(centre, self.apply_absolute(layer, box.radius)), positive=positive), None
        radius, reach = self.apply_absolute(layer, torch.cat([box.radius, size])).chunk(2)
        rounding, radius = errors(sums, size, radius, reach, centre[box.n_points :])
        overflow = either(box.overflow, rounding.overflow)
        return replace(box.onto(centre, radius), overflow=overflow, positive=positive), rounding


_RULES: dict[type[nn.Module], Rule[Any]] = {}
R = TypeVar("R", bound=type[Rule[Any]])


def register(*layer_types: type[nn.Module]) -> Callable[[R], R]:
    """Class decorator: use this rule for these layer types. The last registration of a type wins."""

    def decorate(rule: R) -> R:
        for layer_type in layer_types:
            _RULES[layer_type] = rule()
        return rule

    return decorate


def rule_for(layer: nn.Module) -> Rule[Any]:
    """The rule for this layer; an error that names the layer where there is none.

    A rule is inherited by a subclass only while the subclass leaves `forward` alone: a bound of the parent's
    forward pass says nothing about another one. For the same reason layers with hooks, or with a forward of their
    own put on the instance, are refused.
    """
    if layer._forward_hooks or layer._forward_pre_hooks:
        raise UnsupportedLayer(f"{type(layer).__name__} has forward hooks, which bounds cannot see: remove them")
    if "forward" in vars(layer):
        raise UnsupportedLayer(f"{type(layer).__name__} has a patched forward(), which bounds cannot see: remove it")
    for cls in type(layer).__mro__:
        if cls in _RULES and cls.forward is type(layer).forward:
            return _RULES[cls]
    name = f"{type(layer).__module__}.{type(layer).__qualname__}"
    raise UnsupportedLayer(
        f"no bound rule for {name}: write one with @prood.bounds.register(...), see docs/guides/extend.md"
    )


def interval(layer: nn.Module, box: Box) -> Box:
    """Pass a box through a layer or a network: interval bound propagation (Eq. 6), in centre/radius form."""
    return rule_for(layer).interval(layer, box)


def relax(layer: nn.Module, box: Box, slopes: Slopes | None = None) -> tuple[Box, Pullback]:
    """Pass a box through and return, beside the output box, the pullback of planes to the input."""
    return rule_for(layer).relax(layer, box, slopes or {})
