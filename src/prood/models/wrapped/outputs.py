"""From what a classifier returns to logits of shape (images, classes)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from prood.errors import BadValue, UnknownName, Unsupported


def logits_of(returned: Any, *, output: str | int | None = None) -> Tensor:
    """The logits, or probabilities, among what was returned: a tensor, or the entry `output` of a mapping or a tuple.

    Without `output` it is the tensor itself, the entry called logits, or the only one there is. Axes of length one
    behind the classes, as a fully convolutional network leaves them, are dropped.
    """
    values = _chosen(returned, output)
    while values.ndim > 2 and values.shape[-1] == 1:
        values = values.squeeze(-1)
    if values.ndim != 2 or not values.is_floating_point():
        raise Unsupported(
            f"the classifier returns {values.dtype} of shape {tuple(values.shape)}: it must return logits or "
            "probabilities of shape (images, classes)"
        )
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def look_like_probabilities(values: Tensor) -> bool:
    """Whether every row is a distribution. Logits of several images are not, but by a miracle."""
    within = bool(((values >= 0) & (values <= 1 + 1e-3)).all())
    return within and bool(((values.double().sum(1) - 1).abs() < 1e-2).all())


def _chosen(returned: Any, output: str | int | None) -> Tensor:
    if isinstance(returned, Tensor):
        if output is not None:
            raise UnknownName(f"the classifier returns one tensor, and none that is called {output!r}")
        return returned
    entries = _entries(returned)
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    if output is not None:
        name = int(output) if str(output).isdigit() and output not in tensors else output
        if name not in tensors:
            raise UnknownName(f"the classifier returns nothing that is called {output!r}, but {_listed(tensors)}")
        return tensors[name]
    if "logits" in tensors:
        return tensors["logits"]
    if len(tensors) != 1:
        raise BadValue(f"the classifier returns {_listed(tensors)}: say which are the logits with --output")
    return next(iter(tensors.values()))


def _entries(returned: Any) -> dict[Any, Any]:
    if isinstance(returned, Mapping):
        return dict(returned)
    if isinstance(returned, tuple | list):
        return dict(enumerate(returned))
    return dict(vars(returned)) if hasattr(returned, "__dict__") else {}


def _listed(tensors: Mapping[Any, Tensor]) -> str:
    named = [f"{name} of shape {tuple(value.shape)}" for name, value in tensors.items()]
    return ", ".join(named) if named else "no tensor"
