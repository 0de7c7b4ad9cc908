"""What a method declares, and what an objective is: a function (model, batch_in, batch_out, step) → loss, logs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from prood.data import Images
from prood.methods.declaring import check
from prood.models import Confidence, Score, build
from prood.models.architectures import Spec


@dataclass(frozen=True)
class Batch:
    """Images in [0, 1] with, where the objective needs them, labels or numbers drawn uniformly from [−1, 1]."""

    images: Tensor
    labels: Tensor | None = None
    noise: Tensor | None = None

    @property
    def targets(self) -> Tensor:
        """The labels of a batch that must have them."""
        assert self.labels is not None
        return self.labels


@dataclass(frozen=True)
class Step:
    """Where training stands, in epochs, as a tensor: a compiled objective need not be compiled again for each value."""

    epoch: Tensor


Logs = dict[str, Tensor]
Loss = tuple[Tensor, Logs]

Kind = Literal["classifier", "discriminator", "joint"]
"""What a method makes: a classifier (or a model around one), a bare discriminator, or a joint model of the two."""


@dataclass(frozen=True)
class Method:
    """What a method declares about itself, once; its fields, made by `option`, are the keys of its table in a recipe.

    `name` is its word on the command line and in recipes, `title` its row in tables, `summary` its line in
    `prood train --help`. `score` is how its model detects. A joint model has a trained discriminator, held fixed.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    kind: ClassVar[Kind] = "classifier"
    score: ClassVar[type[Score]] = Confidence
    needs_outside: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    @property
    def needs_noise(self) -> bool:
        """Whether out-distribution batches, or all there is, come with the noise that an attack starts from."""
        return False

    def network(self, spec: Spec, inside: Images, outside: Images | None) -> nn.Module:
        """What is trained, freshly initialised: the recipe's network itself, or a model around it.

        `spec` is complete, with the number of classes. A method that detects by something else than the confidence of
        a classifier wraps it into a model with a score of its own.
        """
        return build(spec)

    def prepare(self, model: nn.Module, batches: Callable[[int], tuple[Batch, Batch | None]]) -> None:
        """Before the first step: fit parts of the model to batches of the training sets, augmented as in training."""


@dataclass(frozen=True)
class Objective(Method):
    """A method that is trained: frozen options and a loss. The loop around it is written once."""

    def __call__(self, model: Any, batch_in: Batch, batch_out: Any, step: Step) -> Loss:
        """The loss, and numbers to log. `batch_out` is a Batch, or None if the method needs no out-distribution."""
        raise TypeError(f"{type(self).__name__} does not define the loss")

    def diagnose(self, logs: dict[str, float]) -> str | None:
        """A complaint about a run that has gone wrong, with what to change; None while all is well."""
        return None


def train_mode(model: nn.Module) -> None:
    """Train mode for what is trained; a frozen part stays in eval mode, its batch statistics untouched."""
    model.train()
    for part in model.children():
        parameters = list(part.parameters())  # a part without any, such as a dropout, is not frozen
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            part.eval()


def ramp(step: Step, epochs: float) -> Tensor:
    """Grows linearly from 0 to 1 over the first `epochs`."""
    if epochs <= 0:
        return torch.ones_like(step.epoch)
    return (step.epoch / epochs).clamp(max=1.0)


def interlace(inside: Tensor, outside: Tensor) -> Tensor:
    """x₀, z₀, x₁, z₁, …: however a batch is cut for several devices, each batch norm sees both kinds (App. D)."""
    return torch.stack([inside, outside], 1).flatten(0, 1)


def separate(values: Tensor) -> tuple[Tensor, Tensor]:
    """Undo `interlace`."""
    return values[0::2], values[1::2]
