"""Rules for piecewise linear layers: ReLU, leaky ReLU and maximum pooling."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from prood.bounds.box import Box, widen
from prood.bounds.convolution import pair
from prood.bounds.registry import Monotone, NoLinearRule, Plane, Pullback, Slopes, UnsupportedLayer, register
from prood.bounds.rounding import SMALLEST, UNIT, positive_sum, unit, up


@register(nn.ReLU, nn.LeakyReLU)
class ReLURule(Monotone[nn.Module]):
    """y = max(x, a·x) with 0 ≤ a ≤ 1; the ReLU is a = 0.

    On [l, u] with l < 0 < u it lies below the chord through its end points and above every line α·x, a ≤ α ≤ 1.
    The default α is the slope at the box's anchor, or, without one, at the middle of the interval, which loses the
    smaller area (CROWN's choice).
    """

    exact = True

    def leak(self, layer: nn.Module) -> float:
        leak = float(getattr(layer, "negative_slope", 0.0))
        if not 0 <= leak <= 1:
            raise UnsupportedLayer(f"LeakyReLU has a bound only for slopes between 0 and 1, not {leak}")
        return leak

    def interval(self, layer: nn.Module, box: Box) -> Box:
        leak = self.leak(layer)
        if box.sound:
            return self._sound_interval(box, leak)
        if leak == 0:
            if torch.compiler.is_compiling():
                return box.onto(*box_relu(*parts(box.centre, box.radius), box.radius))
            return box.onto(*_BoxReLU.apply(widen(box.centre), widen(box.radius)))  # type: ignore[no-untyped-call]
        # Not the layer itself: an in-place one would overwrite the box that the pullback still needs.
        return box.monotone(lambda x: F.leaky_relu(x, leak))

    def _sound_interval(self, box: Box, leak: float) -> Box:
        if leak == 0:
            # As `_BoxReLU`, but with the sum itself: of h a rounding is lost at most, where c + r cancels as well.
            half = (box.middle + box.radius).relu_().mul_(0.5)
            middle, radius = torch.maximum(box.middle, half), torch.minimum(box.radius, half)
            own = unit(radius)
            grown = torch.add(radius * (1 + 8 * own), middle, alpha=8 * own)
            return replace(box.onto(torch.cat([box.points.relu(), middle]), grown), positive=True)
        if 0 < leak < torch.finfo(torch.float32).tiny:
            raise UnsupportedLayer(f"LeakyReLU's slope {leak} is too small for float32: choose 0, or one above 1e-37")
        result = box.monotone(lambda x: F.leaky_relu(x, leak))
        # The network rounds the slope and the product; we do so in our own arithmetic.
        rounding = up(2 * (UNIT + unit(result.radius)) * result.size) + SMALLEST
        return result.onto(result.centre, up(result.radius + rounding))

    def relax(self, layer: nn.Module, box: Box, slopes: Slopes) -> tuple[Box, Pullback]:
        simple = not (box.sound or box.anchored or box.exact_upper is not None or self.leak(layer))
        if not (simple and torch.compiler.is_compiling()):
            return super().relax(layer, box, slopes)
        points, middle = parts(box.centre, box.radius)
        eagerly = self.pullback(layer, box, slopes)
        given = slopes.get(layer)
        if given is not None:
            unstable, kind = (box.lower < 0) & (box.upper > 0), box.lower.dtype
            given = torch.where(unstable, given.to(kind), (middle > 0).to(kind)).detach().clamp(0, 1)

        def pull(plane: Plane) -> Plane:
            if plane.slopes or plane.owner is not None:
                return eagerly(plane)
            slope, paid = plane_relu(plane.slope, middle, box.radius, None if plane.middle else given)
            return plane.onto(slope, plane.offset + paid)

        return box.onto(*box_relu(points, middle, box.radius)), pull

    def pullback(self, layer: nn.Module, box: Box, slopes: Slopes) -> Pullback:
        leak = self.leak(layer)
        if box.sound:
            return self._sound_pullback(layer, box, slopes, leak)
        below, above = box.lower.clamp(max=0), box.upper.clamp(min=0)
        # An interval on one side of zero has below = 0 or above = 0, and the chord is then the function itself.
        chord = above / span(below, above)
        if leak:
            chord = chord + leak * (1 - chord)
        gap = (leak - chord) * below  # the chord's height over zero
        alpha = _lower_slopes(layer, box, slopes, (box.middle > 0).to(chord.dtype).clamp(min=leak))

        def pull(plane: Plane) -> Plane:
            up, lower = plane.slope.clamp(min=0), alpha(plane).clamp(leak, 1)
            # up · chord + (slope − up) · lower, in one operation less
            slope = plane.slope * lower + up * (plane.of(chord) - lower)
            return plane.onto(slope, plane.offset + (up * plane.of(gap)).flatten(1).sum(1))

        return pull

    def _sound_pullback(self, layer: nn.Module, box: Box, slopes: Slopes, leak: float) -> Pullback:
        """Any lines will do as long as they lie where they should: rounding may tilt them, and the gap pays for it."""
        if leak:
            raise NoLinearRule("a leaky ReLU has no sound linear bound: use method='ibp', or arithmetic='plain'")
        lower, upper, size = box.lower, box.upper, box.size
        active, reach = (lower >= 0).to(lower.dtype), torch.where(upper <= 0, 0, size)
        unstable = (lower < 0) & (upper > 0)
        chord = torch.where(unstable, upper / (upper - lower), active).clamp(0, 1)
        # Over [l, u] the ReLU exceeds the line chord·x the most at one of the ends.
        gap = torch.where(unstable, up(torch.maximum(-chord * lower, (1 - chord) * upper), 2), 0)
        alpha = _lower_slopes(layer, box, slopes, torch.where(unstable, box.middle > 0, active > 0).to(lower.dtype))
        own = 4 * unit(lower)

        def pull(plane: Plane) -> Plane:
            steep = plane.slope > 0
            slope = plane.slope * torch.where(steep, plane.of(chord), alpha(plane).clamp(0, 1))
            # The product is rounded once; that error meets values of at most `size`.
            slack = (slope.abs() * own + SMALLEST) * plane.of(reach)
            paid = positive_sum(up(plane.slope.clamp(min=0) * plane.of(gap) + slack, 4))
            return plane.onto(slope, plane.offset + paid)

        return pull


def _lower_slopes(layer: nn.Module, box: Box, slopes: Slopes, middle: Tensor) -> Callable[[Plane], Tensor]:
    """The slope of the lower line for each row of a plane: as chosen, or at the anchor, or at the middle."""
    unstable = (box.lower < 0) & (box.upper > 0)
    given = slopes.get(layer, box.points > 0 if box.anchored else None)
    anchored = middle if given is None else torch.where(unstable, given.to(middle.dtype), middle)

    def choose(plane: Plane) -> Tensor:
        if layer in plane.slopes:
            return torch.where(plane.of(unstable), plane.slopes[layer].to(middle.dtype), plane.of(middle))
        return plane.of(middle if plane.middle else anchored)

    return choose


# A compiler makes one pass over memory of `box_relu` and of `plane_relu` by itself: they need neither the tricks of the
# eager form nor gradients of their own. (A torch.autograd.Function would be the natural place for those, but some
# versions of torch.compile get its gradients silently wrong.) Outputs have the type of the inputs, so that what is kept
# for the backward pass is what the convolutions have made, in half precision where they are.


def box_relu(points: Tensor, middle: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Points, and centres and radii of boxes → centres (points first) and radii behind a ReLU.

    With h = relu(c + r)/2 they are c and r if c > r, else h and h; see `_BoxReLU`.
    """
    half = (widen(middle) + radius).clamp(min=0) * 0.5
    # Not by maximum and minimum, whose gradients are not channels last.
    active = middle > radius
    moved = torch.where(active, middle, half.to(middle.dtype))
    return torch.cat([points.clamp(min=0), moved]), torch.where(active, radius, half.to(radius.dtype))


def plane_relu(slope: Tensor, middle: Tensor, radius: Tensor, alpha: Tensor | None) -> tuple[Tensor, Tensor]:
    """The slopes of planes over the output → over the input [c − r, c + r] of a ReLU, and what is added to the offsets.

    Positive slopes take the chord h/(h − l) with l = min(c − r, 0) and h = max(c + r, 0), which lies −hl/(h − l) above
    zero at zero; negative ones the line `alpha`, or 1 where c > 0 and 0 elsewhere.
    """
    middle = widen(middle)
    low, high = (middle - radius).clamp(max=0), (middle + radius).clamp(min=0)
    chord = high / span(low, high)
    lower = (middle > 0).to(chord.dtype) if alpha is None else alpha
    # In the type of the slopes, which the next convolution takes: a copy in another type would be one pass more.
    behind = (torch.where(slope > 0, chord, lower) * slope).to(slope.dtype)
    if behind.ndim == 4:
        behind = behind.contiguous(memory_format=torch.channels_last)
    return behind, (-widen(slope).clamp(min=0) * chord * low).flatten(1).sum(1)


def span(low: Tensor, high: Tensor) -> Tensor:
    """high − low, or 1 where both are zero: divided by something tiny instead, gradients would overflow there."""
    width = high - low
    return torch.where(width > 0, width, 1)


def parts(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The points and the middles of the boxes.

    Cut once for all that follows, so that the gradient is put together once, channels last like its parts. That of one
    part alone would be filled up with zeros in another order.
    """
    points, middle = torch.split(centre, [len(centre) - len(radius), len(radius)])
    return points, middle


class _BoxReLU(torch.autograd.Function):
    """The ReLU of a box in few passes: with h = relu(c + r)/2, its centre is max(c, h) and its radius min(r, h).

    If c ≥ r, h = (c + r)/2 lies between r and c and the box stays as it is; if c ≤ −r, h = 0 and it shrinks to the
    point 0; in between, it becomes [0, c + r], whose centre and radius are both h. Passes over memory are what a bound
    costs on top of its convolutions, and what autograd would make of these lines needs twice as many.
    """

    @staticmethod
    def forward(ctx: Any, centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        points = len(centre) - len(radius)
        new_centre, new_radius = torch.empty_like(centre), torch.empty_like(radius)
        torch.clamp_min(centre[:points], 0, out=new_centre[:points])
        middle, new_middle = centre[points:], new_centre[points:]
        for rows in _pieces(radius):
            half = torch.lerp(middle[rows], radius[rows], 0.5).relu_()
            torch.maximum(middle[rows], half, out=new_middle[rows])
            torch.minimum(radius[rows], half, out=new_radius[rows])
        ctx.save_for_backward(new_centre, new_radius)
        return new_centre, new_radius

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (to_centre, to_radius), (new_centre, new_radius) = gradients, ctx.saved_tensors
        points = len(new_centre) - len(new_radius)
        of_centre, of_radius = torch.empty_like(to_centre), torch.empty_like(to_radius)
        _where_positive(new_centre[:points], to_centre[:points], out=of_centre[:points])
        to_middle, of_middle, new_middle = to_centre[points:], of_centre[points:], new_centre[points:]
        for rows in _pieces(new_radius):
            # Of an unstable or dead unit both outputs are h, with derivative 1/2 by c and by r where h > 0: the mean of
            # the gradients goes to both. An active one also gets back their difference.
            mean = torch.lerp(to_middle[rows], to_radius[rows], 0.5)
            rest = to_middle[rows] - mean
            _where_positive(new_middle[rows], mean, out=mean)
            _where_positive(new_middle[rows] - new_radius[rows], rest, out=rest)
            torch.add(mean, rest, out=of_middle[rows])
            torch.sub(mean, rest, out=of_radius[rows])
        return of_centre, of_radius


def _where_positive(condition: Tensor, values: Tensor, *, out: Tensor) -> None:
    """out = values where condition > 0, else 0, in one pass: the derivative of a ReLU."""
    torch.ops.aten.threshold_backward.grad_input(values, condition, 0, grad_input=out)


def _pieces(rows: Tensor) -> list[slice]:
    """On a CPU a few rows at a time, so that what one operation writes is still in the cache when the next reads it."""
    size = len(rows) if rows.is_cuda else max(1, (1 << 17) * len(rows) // max(1, rows.numel()))
    return [slice(start, start + size) for start in range(0, len(rows), size)]


@register(nn.MaxPool2d)
class MaxPoolRule(Monotone[nn.MaxPool2d]):
    """Below, the maximum is bounded by the entry with the largest lower bound; above, by the largest upper bound.

    Where that entry beats all others for certain, it *is* the maximum, and no slack arises.
    """

    exact = True

    def interval(self, layer: nn.MaxPool2d, box: Box) -> Box:
        if layer.return_indices:
            raise UnsupportedLayer("MaxPool2d with return_indices=True has no bound: switch it off")
        return box.monotone(layer)

    def pullback(self, layer: nn.MaxPool2d, box: Box, slopes: Slopes) -> Pullback:
        if box.sound:
            raise NoLinearRule("maximum pooling has no sound linear bound: use method='ibp', or arithmetic='plain'")
        lower, upper = box.lower, box.upper
        how = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
        best, index = F.max_pool2d(lower, *how, return_indices=True)
        ceiling, certain = F.max_pool2d(upper, *how), best >= _runner_up(layer, upper, index)
        shape = lower.shape

        def pull(plane: Plane) -> Plane:
            up, down = plane.slope.clamp(min=0), plane.slope.clamp(max=0)
            sure = plane.of(certain)
            routed = torch.where(sure, plane.slope, down)
            slope = routed.new_zeros(len(routed), shape[1], shape[2] * shape[3])
            slope = slope.scatter_add(2, plane.of(index).flatten(2), routed.flatten(2)).reshape(-1, *shape[1:])
            constant = torch.where(sure, 0, up * plane.of(ceiling))
            return plane.onto(slope, plane.offset + constant.flatten(1).sum(1))

        return pull


def _runner_up(layer: nn.MaxPool2d, upper: Tensor, index: Tensor) -> Tensor:
    """The largest upper bound in each window among the entries other than `index`."""
    (height, width), (high, wide) = upper.shape[2:], pair(layer.kernel_size)
    (down, across), (top, left), (below, beside) = map(pair, (layer.stride, layer.padding, layer.dilation))
    rows, columns = (torch.arange(size, device=upper.device) for size in index.shape[2:])
    runner_up = torch.full(index.shape, -torch.inf, dtype=upper.dtype, device=upper.device)
    for place in itertools.product(range(high), range(wide)):  # in the window, at every output position
        row = (rows * down - top + place[0] * below)[:, None]
        column = (columns * across - left + place[1] * beside)[None]
        other = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (row * width + column != index)
        values = upper[:, :, row.clamp(0, height - 1), column.clamp(0, width - 1)]
        runner_up = torch.where(other, torch.maximum(runner_up, values), runner_up)
    return runner_up
