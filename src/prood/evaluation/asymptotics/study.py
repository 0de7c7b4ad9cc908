"""All that can be said of one model far away: the theorem, random directions, and those of an adversary."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prood import data, processes
from prood.data import ImageSet
from prood.errors import BadValue, Mismatch, UnknownName, Unsupported
from prood.evaluation.asymptotics.adversary import FAR, SCHEDULES, Stage, adversarial_directions
from prood.evaluation.asymptotics.far import CURVE, KINDS, confidence, far_away, mean_confidence, random_directions
from prood.evaluation.asymptotics.theorem import Theorem, check_theorem, fates, layers_of
from prood.evaluation.sets import fitting_of
from prood.models import Discriminator, ProoD, load


@dataclass(frozen=True)
class FarOptions:
    """How thoroughly one looks: random `directions` of each kind, those that an adversary searches for by a `schedule`
    (as many as in the paper), and the distances of the curves."""

    directions: int = 1000
    adversarial: int = 100
    schedule: tuple[Stage, ...] = FAR
    alphas: Sequence[float] = CURVE
    seed: int = 0
    device: str | torch.device = "cpu"


@dataclass(frozen=True)
class Asymptotics:
    """What `prood reproduce asymptotics` prints.

    `random` has a summary of fates by the kind of directions, and `adversarial` a summary for the directions found;
    both have no fates for a classifier without discriminator. The curves run over `alphas`: `mean` the mean confidence
    along x + α·n (of a bare discriminator p(in)), `maximum` the largest p(in) of all adversarial directions at that
    scale (of a classifier without discriminator the largest confidence). `auc`: the in-distribution against x + α·n.
    """

    theorem: Theorem
    random: dict[str, dict[str, Any]]
    adversarial: dict[str, Any]
    outside: str
    alphas: tuple[float, ...]
    mean: tuple[float, ...]
    maximum: tuple[float, ...]
    auc: tuple[float, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"theorem": asdict(self.theorem) | {"holds": self.theorem.holds}}


def study(
    model: nn.Module,
    outside: ImageSet,
    *,
    inside: ImageSet | None = None,
    options: FarOptions | None = None,
    **more: Any,
) -> Asymptotics:
    """Check the theorem, follow random directions to infinity, seek some that stay; `more` are fields of `options`."""
    how = replace(options or FarOptions(), **more)
    model.to(how.device).eval()
    follows = isinstance(model, Discriminator | ProoD) and layers_of(model) is not None
    random = {}
    for kind in KINDS if follows else ():
        drawn = random_directions(how.directions, outside.shape, kind, how.seed).to(how.device)
        random[kind] = fates(model, drawn).summary()
    same: dict[str, Any] = {"seed": how.seed, "device": how.device}
    found = adversarial_directions(model, outside.shape, count=how.adversarial, schedule=how.schedule, **same)
    directions_on = found.directions.to(how.device)
    about: dict[str, Any] = {"directions": how.adversarial, "steps": found.steps, "flat": int(found.flat.sum())}
    return Asymptotics(
        theorem=check_theorem(model),
        random=random,
        adversarial=about | (fates(model, directions_on).summary() if follows else {}),
        outside=outside.name,
        alphas=tuple(map(float, how.alphas)),
        mean=mean_confidence(model, outside, alphas=how.alphas, **same),
        maximum=scale_wise_maximum(model, directions_on, how.alphas),
        auc=None if inside is None else far_away(model, inside, outside, alphas=how.alphas, **same).auc,
    )


@torch.no_grad()
def scale_wise_maximum(model: nn.Module, directions: Tensor, alphas: Sequence[float] = CURVE) -> tuple[float, ...]:
    """max over the directions d of p(in | α·d) for each α; of a model without discriminator its confidence."""
    parts = torch.split(directions, 250)
    return tuple(max(_sureness(model, alpha * part).max().item() for part in parts) for alpha in alphas)


def _sureness(model: nn.Module, points: Tensor) -> Tensor:
    return model.in_logit(points).double().sigmoid() if isinstance(model, ProoD) else confidence(model, points)


def study_run(
    path: Path | str,
    *,
    outside: str = "uniform",
    inside: str | None = None,
    far_penalty: float | None = None,
    search: str = "far",
    device: str | None = None,
    **more: Any,
) -> Asymptotics:
    """The same for a model and image sets by name; `far_penalty` replaces the model's own weight, 0 removes it."""
    if search not in SCHEDULES:
        raise UnknownName(f"unknown search {search!r}: choose one of {', '.join(SCHEDULES)}")
    target = processes.device(device)
    model, about = load(path, device=target)
    if far_penalty is not None:
        model = with_far_penalty(model, far_penalty)
    inside_set = None if inside is None else data.load(inside, split="test", **fitting_of(about.recipe))
    shape = _shape(model) if inside_set is None else inside_set.shape
    if isinstance(model, Discriminator | ProoD) and shape != _shape(model):
        raise Mismatch(f"{inside} has images of shape {shape}, but the model takes {_shape(model)}")
    others = data.load(outside, shape=shape, split="test")
    if others.shape != shape:
        raise Mismatch(f"{outside} has images of shape {others.shape}, but the model takes {shape}")
    return study(model, others, inside=inside_set, schedule=SCHEDULES[search], device=target, **more)


def with_far_penalty(model: nn.Module, weight: float = 1.0) -> nn.Module:
    """A discriminator or joint model with this far penalty outside [0, 1]^d; the weights and outputs on images stay."""
    if isinstance(model, ProoD):
        copied = copy.copy(model)
        copied._modules = dict(model._modules)  # of its own: the copy shares everything else
        copied.discriminator = model.discriminator.with_far_penalty(weight)
        return copied
    if isinstance(model, Discriminator):
        return model.with_far_penalty(weight)
    raise Unsupported("only a discriminator or a joint model has a far penalty: leave out --far-penalty")


def _shape(model: nn.Module) -> tuple[int, int, int]:
    g = model.discriminator if isinstance(model, ProoD) else model
    if not isinstance(g, Discriminator):
        raise BadValue("a plain classifier does not state the size of its images: name some with --inside")
    return g.image
