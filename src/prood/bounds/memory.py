"""How many images are bounded at once: as many as memory bears, whatever the size of the images and of the network."""

import copy
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from prood.bounds.options import Budget

HELD = 8
"""Tensors of every layer's size that a bound holds at once, about."""

_KNOWN: WeakKeyDictionary[nn.Module, dict[torch.Size, int]] = WeakKeyDictionary()


def parts(network: nn.Module, images: Tensor, budget: Budget) -> list[Tensor]:
    """The rows of the images, in parts that the budget allows at once; at least one image each."""
    rows = torch.arange(len(images), device=images.device)
    if len(images) < 2:
        return [rows]
    known = _KNOWN.setdefault(network, {})
    shape = images.shape[1:]
    if shape not in known:
        known[shape] = values(network, images[:1])
    count = budget.values_on(images.device) // (HELD * max(1, known[shape]))
    return list(torch.split(rows, max(1, count)))


def values(network: nn.Module, image: Tensor) -> int:
    """The numbers that all layers together give for one image; no more than those that enter, where that is not known.

    Nothing is computed: a copy without numbers tells the shapes. It has hooks, which the network itself must not have.
    """
    weights = (*network.parameters(), *network.buffers())
    hollow = copy.deepcopy(network, {id(weight): _hollow(weight) for weight in weights})
    total = image.numel()

    def count(layer: nn.Module, given: object, result: object) -> None:
        nonlocal total
        total += result.numel() if isinstance(result, Tensor) else 0

    for layer in hollow.modules():
        if not list(layer.children()):
            layer.register_forward_hook(count)
    try:
        with torch.no_grad():
            hollow(image.to("meta"))
    except (RuntimeError, TypeError, NotImplementedError):  # a layer of somebody's own that looks at numbers
        return image.numel()
    return total


def _hollow(weight: Tensor) -> Tensor:
    empty = weight.detach().to("meta")
    return nn.Parameter(empty, requires_grad=False) if isinstance(weight, nn.Parameter) else empty
