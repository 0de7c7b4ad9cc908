"""Networks by name: what a file on disk needs to build the model again without running foreign code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from prood.errors import ProodError
from prood.models.classifiers import resnet18, resnet50, small
from prood.models.discriminators import discriminator
from prood.models.joint import ProoD

Spec = Mapping[str, Any]
"""`{"name": "resnet18", "classes": 10, …}`: a builder's name and its arguments."""

_BUILDERS: dict[str, Callable[..., nn.Module]] = {}


def architecture(name: str) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Decorator: let `build` and saved files know a network of yours under this name."""

    def decorate(builder: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        _BUILDERS[name] = builder
        return builder

    return decorate


@architecture("prood")
def _joint(*, classifier: Spec, discriminator: Spec) -> ProoD:
    g = build(discriminator)
    return ProoD(build(classifier), g)  # type: ignore[arg-type]  # the constructor checks it


for _builder in (discriminator, resnet18, resnet50, small):
    architecture(_builder.__name__)(_builder)


def build(spec: Spec) -> nn.Module:
    """The network that `spec` describes, freshly initialised."""
    if not isinstance(spec, Mapping):
        raise ProodError(f"an architecture is a name and its arguments, not {spec!r}")
    arguments = dict(spec)
    name = arguments.pop("name", None)
    if not isinstance(name, str) or name not in _BUILDERS:
        raise ProodError(
            f"unknown architecture {name!r}: choose one of {', '.join(sorted(_BUILDERS))}, "
            "or register it with @prood.models.architecture"
        )
    try:
        model = _BUILDERS[name](**arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProodError(f"architecture {name!r} does not take these arguments: {error}") from None
    model.architecture = dict(spec)  # type: ignore[assignment]
    return model


def spec_of(model: nn.Module) -> dict[str, Any]:
    """The spec that `build` made this model from; a joint model is described by its two parts."""
    if isinstance(model, ProoD):
        return {
            "name": "prood",
            "classifier": spec_of(model.classifier),
            "discriminator": spec_of(model.discriminator),
        }
    spec = getattr(model, "architecture", None)
    if not isinstance(spec, dict):
        raise ProodError(
            f"cannot save a {type(model).__name__} that was not made by prood.models.build: "
            "register its constructor with @prood.models.architecture and build it by name"
        )
    return spec
