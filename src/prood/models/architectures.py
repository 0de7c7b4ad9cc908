"""What a file says about its model beside the weights, and networks by name: to build it again without foreign code."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from torch import nn

from prood.errors import BadValue, UnknownName, Unsupported, first_line
from prood.version import __version__

FORMAT = 1
Spec = Mapping[str, Any]
"""`{"name": "resnet18", "classes": 10, …}`: a builder's name and its arguments."""

P = ParamSpec("P")
M = TypeVar("M", bound=nn.Module)
_BUILDERS: dict[str, Callable[..., nn.Module]] = {}


def architecture(name: str) -> Callable[[Callable[P, M]], Callable[P, M]]:
    """Decorator: what this function builds can be saved, and built again by `build` under this name."""

    def decorate(builder: Callable[P, M]) -> Callable[P, M]:
        signature = inspect.signature(builder)

        @functools.wraps(builder)
        def building(*args: P.args, **kwargs: P.kwargs) -> M:
            model = builder(*args, **kwargs)
            if not hasattr(type(model), "architecture"):  # a joint model describes itself, by its two parts
                spec = {"name": name, **signature.bind(*args, **kwargs).arguments}
                model.architecture = spec  # type: ignore[assignment]
            return model

        _BUILDERS[name] = building
        return building

    return decorate


def build(spec: Spec) -> nn.Module:
    """The network that `spec` describes, freshly initialised."""
    if not isinstance(spec, Mapping):
        raise BadValue(f"an architecture is a name and its arguments, not {spec!r}")
    arguments = dict(spec)
    name = arguments.pop("name", None)
    if not isinstance(name, str) or name not in _BUILDERS:
        advice = "or register it with @prood.models.architecture in a module that --module names"
        raise UnknownName(f"unknown architecture {name!r}: choose one of {', '.join(sorted(_BUILDERS))}, {advice}")
    try:
        return _BUILDERS[name](**arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadValue(f"architecture {name!r} does not take these arguments: {first_line(error)}") from None


def takes(spec: Spec, argument: str) -> bool:
    """Whether the builder that `spec` names has this argument, so that a caller who knows its value can give it."""
    name = spec.get("name")
    builder = _BUILDERS.get(name) if isinstance(name, str) else None
    return builder is not None and argument in inspect.signature(builder).parameters


def spec_of(model: nn.Module) -> dict[str, Any]:
    """The spec from which `build` makes a model like this one."""
    spec = getattr(model, "architecture", None)
    if not isinstance(spec, dict):
        fault = f"cannot save a {type(model).__name__} that no registered architecture built"
        raise Unsupported(f"{fault}: decorate the function that makes it with @prood.models.architecture")
    return spec


@dataclass(frozen=True)
class Metadata:
    """Facts about a model. The normalisation stands among the architecture's arguments.

    An image whose confidence is below `threshold` is rejected; the share `accept` of the in-distribution is not.
    `provable` is the share of the false rejections that g may spend, where the model was calibrated with one.
    `image` is the shape of the images that a classifier was trained on; a discriminator's stands in its architecture.
    `inside` is the name of the in-distribution, one of the keys of `data`; older files state it as the first of them.
    """

    architecture: dict[str, Any]
    classes: list[str] | None = None
    shift: float | None = None
    eps: float | None = None
    threshold: float | None = None
    accept: float | None = None
    provable: float | None = None
    recipe: dict[str, Any] | None = None
    seed: int | None = None
    inside: str | None = None
    image: list[int] | None = None
    data: dict[str, str] = field(default_factory=dict)  # name of each set used → fingerprint
    version: str = __version__
    format: int = FORMAT

    @property
    def tpr(self) -> float | None:
        """`accept` by its name before."""
        return self.accept

    def __post_init__(self) -> None:
        # Nothing is below NaN: such a threshold would accept everything.
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ValueError(f"a threshold is a finite number, not {self.threshold}")
        names = self.classes
        if names is not None and not (isinstance(names, list | tuple) and all(isinstance(one, str) for one in names)):
            raise ValueError("classes are a list of names")


def check_kinds(about: Metadata) -> None:
    """A ValueError for facts of another kind than they should be, as a damaged file may have them."""
    kinds: dict[str, Any] = {"eps shift tpr seed": int | float | None, "inside": str | None}
    kinds |= {"architecture data": dict, "recipe": dict | None, "version": str}
    for name, kind in ((name, kind) for names, kind in kinds.items() for name in names.split()):
        value = getattr(about, name)
        if not isinstance(value, kind) or (isinstance(value, int | float) and not abs(value) < math.inf):
            raise ValueError(f"{name} is {value!r:.40}")
