"""What a method declares, and what an objective is: a function (model, batch_in, batch_out, step) → loss, logs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from prood.data import Images
from prood.methods.declaring import Options, option
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
        assert self.labels is not None
        return self.labels


@dataclass(frozen=True)
class Step:
    """Where training stands, in epochs, as a tensor: a compiled objective need not be compiled again for each value."""

    epoch: Tensor


Logs = dict[str, Tensor]
Loss = tuple[Tensor, Logs]


@dataclass(frozen=True)
class Method(Options):
    """What a method declares about itself, once; its fields, made by `option`, are the keys of its table in a recipe.

    `name` is its word on the command line and in recipes, `title` its row in tables, `summary` its line in
    `prood train --help`. `kind` is what it makes: a classifier (or a model around one), a bare discriminator, or a
    joint model of the two, whose discriminator was trained before and is held fixed. `score` is how its model detects.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    kind: ClassVar[Literal["classifier", "discriminator", "joint"]] = "classifier"
    score: ClassVar[type[Score]] = Confidence
    needs_outside: ClassVar[bool] = True

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

    def hopeless(self, logs: dict[str, float], epoch: float) -> bool:
        """Whether what `diagnose` complains about will not mend itself: training stops where that is so for long."""
        return False


@dataclass(frozen=True)
class Adversarial(Objective):
    """Base of the objectives that train on attacked images: how they are attacked."""

    needs_noise = True

    eps: float = option(0.01, "radius of the ball around the images that are attacked, in the maximum norm", high=1)
    eps_ramp: float = option(0.0, "epochs over which ε grows linearly from 0")
    attack_steps: int = option(5, "gradient steps of the attack")
    attack_step_size: float = option(0.25, "length of a step, in units of ε")

    def radius(self, step: Step) -> Tensor:
        return self.eps * ramp(step, self.eps_ramp)

    def attack(self, model: nn.Module, batch: Batch, eps: Tensor, height: Callable[[Tensor], Tensor]) -> Tensor:
        """Points in the batch's balls where `height` is large; batch norm takes no notice of points on the way."""
        with deployed(model):
            return climb(height, batch, eps, steps=self.attack_steps, step_size=self.attack_step_size)


def climb(height: Callable[[Tensor], Tensor], batch: Batch, eps: Tensor, *, steps: int, step_size: float) -> Tensor:
    """Steps of `step_size`·ε by the sign of ∇height, a number an image, from a random start in the ball in [0, 1]."""
    assert batch.noise is not None
    clean = batch.images
    low, high = (clean - eps).clamp(0, 1), (clean + eps).clamp(0, 1)
    # Not torch.autograd.grad, which a compiler cannot follow.
    ascent = torch.func.grad(lambda images: height(images).sum())
    with torch.no_grad():
        images = torch.clamp(clean + eps * batch.noise, low, high)
        for _ in range(steps):
            images = torch.clamp(images + step_size * eps * ascent(images).sign(), low, high)
    return images


@contextmanager
def deployed(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, and afterwards each of its parts in the mode that it was in."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def train_mode(model: nn.Module) -> None:
    """Train mode for what is trained; a frozen part stays in eval mode, its batch statistics untouched."""
    model.train()
    for part in model.children():
        trained = [parameter.requires_grad for parameter in part.parameters()]
        if trained and not any(trained):  # a part without parameters, such as a dropout, is not frozen
            part.eval()


def ramp(step: Step, epochs: float) -> Tensor:
    """Grows linearly from 0 to 1 over the first `epochs`."""
    return (step.epoch / epochs).clamp(max=1.0) if epochs > 0 else torch.ones_like(step.epoch)


def interlace(inside: Tensor, outside: Tensor) -> Tensor:
    """x₀, z₀, x₁, z₁, …: however a batch is cut for several devices, each batch norm sees both kinds (App. D)."""
    return torch.stack([inside, outside], 1).flatten(0, 1)


def separate(values: Tensor) -> tuple[Tensor, Tensor]:
    """Undo `interlace`."""
    return values[0::2], values[1::2]


def accuracy(logits: Tensor, batch: Batch) -> Tensor:
    return (logits.detach().argmax(1) == batch.targets).float().mean()
