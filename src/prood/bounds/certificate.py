"""Upper bounds of a scalar network over a ball: by intervals, by CROWN-IBP, or by what `tighter` makes of them."""

import copy
from dataclasses import replace
from typing import TypeVar, Unpack, get_args

import torch
from torch import Tensor, nn

from prood.bounds.arithmetic import check_deployed, strict
from prood.bounds.box import Ball, Box, Clip, Norm
from prood.bounds.concrete import concretise, finish, maximum, scalar
from prood.bounds.memory import parts
from prood.bounds.options import Arithmetic, Budget, FullOptions, Method, Options
from prood.bounds.registry import NoLinearRule, Slopes, interval, relax
from prood.bounds.tighter.pipeline import in_ball, tighten
from prood.errors import BadValue, UnknownName

__all__ = ["Arithmetic", "Budget", "Method", "concretise", "crown_ibp", "maximum", "upper_bound"]

V = TypeVar("V")
_TIGHTER = ("alpha-crown", "crown", "bab", "auto")


def upper_bound(
    network: nn.Module,
    images: Tensor,
    eps: float | Tensor,
    *,
    clip: Clip = (0.0, 1.0),
    threshold: float | Tensor | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """b with network(u) ≤ b for every u with ‖u − x‖ ≤ eps inside `clip`, per image; shape (N,).

    `network` maps a batch to one number per image, shape (N, 1). Options are the `method` (by default "best"), the
    `arithmetic` ("sound" or "plain"), the `norm` ("linf", "l2" or "l1") and the `budget` of the tighter methods.

    "ibp" passes a box forwards (Eq. 6); "crown-ibp" takes those boxes as pre-activation bounds and passes one linear
    relaxation backwards; "best" is the smaller of the two, or the interval bound alone where a layer has no linear
    rule. Behind it, each at most the one before, with what `budget` allows and without gradients: "alpha-crown"
    optimises the lower slopes, "crown" also tightens the bounds of hidden units and relaxes those of the first
    convolution together, "bab" also splits units. "auto" goes on with an image only while its verdict is open, that is,
    whether all values are below `threshold` (a number, or one per image); without a threshold it is "alpha-crown".
    "bab" stops where the bound is below the threshold.

    In the ℓ2 and ℓ1 norms a plane is bounded over the ball inside the box (`Ball`), and so are the units of the first
    layer; "ibp" knows only the box around the ball.

    "sound" arithmetic covers every value that the network may return in float32, in any order of summation
    (docs/soundness.md), and has no gradient. "plain" is the arithmetic of the tensors: rounding errors are not
    accounted for, except that the bound is never below the network's own value at the image.
    """
    way = FullOptions(**options)
    check_options(eps, **options)
    if way.method not in _TIGHTER:
        return _bounds(network, images, eps, way, clip, threshold)
    # Their search differentiates, whatever mode the caller is in.
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        network = copy.deepcopy(network).requires_grad_(False)
        return _bounds(network, images.clone(), eps, way, clip, threshold)


def check_options(
    eps: float | Tensor, *, method: str = "best", arithmetic: str = "sound", norm: str = "linf", budget: object = None
) -> None:
    """Whatever is bounded: a wrong word must not be taken for another one, nor a radius for one that proves more."""
    words = {"bound method": (method, Method), "arithmetic": (arithmetic, Arithmetic), "norm": (norm, Norm)}
    for what, (word, known) in words.items():
        if word not in get_args(known):
            raise UnknownName(f"unknown {what} {word!r}: choose one of {', '.join(get_args(known))}")
    if not torch.as_tensor(eps).ge(0).all():
        raise BadValue("eps is a radius: it must not be negative or NaN")


def _region(images: Tensor, eps: float | Tensor, norm: Norm, clip: Clip, *, sound: bool) -> Box:
    """The ball: a box, or the part of one inside another ball."""
    if sound:
        box = Box.sound_ball(images, eps, clip=clip)
    else:
        anchors = images if clip is None else images.clamp(*clip)
        box = replace(Box.ball(images, eps, clip=clip, points=anchors), anchored=True)
    if norm == "linf":
        return box
    radii = torch.as_tensor(eps, dtype=torch.float64, device=images.device).reshape(-1).expand(len(images))
    return replace(box, within=Ball(norm, images.detach().double(), radii))


def _bounds(
    network: nn.Module,
    images: Tensor,
    eps: float | Tensor,
    way: FullOptions,
    clip: Clip,
    threshold: float | Tensor | None,
) -> Tensor:
    if way.arithmetic == "plain":
        return _by_method(network, network, _region(images, eps, way.norm, clip, sound=False), way, threshold)
    check_deployed(network, images)
    with strict(images.device), torch.no_grad():
        # In float64, where our own rounding does not count: there is more of it in linear bounds.
        proof = network if way.method == "ibp" else copy.deepcopy(network).double()
        found = []
        for rows in parts(network, images, way.budget or Budget()):
            box = _region(images[rows], _of(eps, rows, len(images)), way.norm, clip, sound=True)
            box = box if proof is network else box.double()
            found.append(_down(_by_method(proof, network, box, way, _of(threshold, rows, len(images)))))
        return torch.cat(found)


def _of(value: V, rows: Tensor, count: int) -> V | Tensor:
    """What belongs to some of `count` images, of one number for all or one for each, which may be a list."""
    if value is None or isinstance(value, int | float):
        return value
    each = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    if each.numel() not in (1, count):
        raise BadValue(f"expected one number, or one per image: got {each.numel()} for {count} images")
    return each if each.numel() == 1 else each.reshape(-1)[rows.to(each.device)]


def _by_method(
    network: nn.Module, fast: nn.Module, box: Box, way: FullOptions, threshold: float | Tensor | None
) -> Tensor:
    """`fast` is the same network, to search with."""
    bound = _bound(network, box, "best" if way.method in _TIGHTER else way.method, way.budget or Budget())
    if way.method in _TIGHTER:
        try:
            return tighten(network, fast, box, bound, way, threshold)
        except NoLinearRule:
            if way.method != "auto":
                raise
    return bound


def _bound(network: nn.Module, box: Box, method: Method, budget: Budget) -> Tensor:
    try:
        if box.within is not None and method != "ibp":
            linear = in_ball(network, box, budget)
            if linear is not None:
                return linear
        output, pullback = (interval(network, box), None) if method == "ibp" else relax(network, box)
    except NoLinearRule:
        if method == "crown-ibp":
            raise
        output, pullback = interval(network, box), None
    bound = scalar(output.upper)
    if pullback is not None:
        # Neither choice of the lower slopes wins always: the image's wins for small radii, the middle one for large
        # radii.
        linear = torch.minimum(*(concretise(box, pullback, output.radius, middle=middle) for middle in (False, True)))
        bound = linear if method == "crown-ibp" else torch.minimum(linear, bound)
    return finish(output, bound)


def _down(bound: Tensor) -> Tensor:
    """The largest float32 number that is not above the bound: what the network returns is one, so none is lost."""
    rounded = bound.float()
    return torch.where(rounded > bound, torch.nextafter(rounded, rounded.new_full((), -torch.inf)), rounded)


def crown_ibp(network: nn.Module, box: Box, slopes: Slopes | None = None) -> Tensor:
    """The CROWN-IBP upper bound of a scalar network over given boxes, differentiable; shape (B,)."""
    output, pullback = relax(network, box, slopes)
    return concretise(box, pullback, output.radius)
