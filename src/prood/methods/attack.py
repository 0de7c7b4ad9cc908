"""The inner attack of adversarial training: a few sign-gradient steps in a ball, such as a compiler can follow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood.methods.base import Batch, Objective, Step, ramp
from prood.methods.declaring import option


def climb(height: Callable[[Tensor], Tensor], batch: Batch, eps: Tensor, *, steps: int, step_size: float) -> Tensor:
    """Sign-gradient steps on `height`, a number for each image, from a random start in the ball, inside [0, 1].

    `step_size` is in units of ε.
    """
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


@dataclass(frozen=True)
class Adversarial(Objective):
    """Base of the objectives that train on attacked images: how they are attacked."""

    eps: float = option(0.01, "radius of the ball around the images that are attacked, in the maximum norm", high=1)
    eps_ramp: float = option(0.0, "epochs over which ε grows linearly from 0")
    attack_steps: int = option(5, "gradient steps of the attack")
    attack_step_size: float = option(0.25, "length of a step, in units of ε")

    @property
    def needs_noise(self) -> bool:
        return True

    def radius(self, step: Step) -> Tensor:
        """ε, growing linearly from 0."""
        return self.eps * ramp(step, self.eps_ramp)

    def attack(self, model: nn.Module, batch: Batch, eps: Tensor, height: Callable[[Tensor], Tensor]) -> Tensor:
        """Points in the balls around the batch's images where `height` is large.

        The network is attacked as it will be deployed, so batch norm takes no notice of points on the way.
        """
        with deployed(model):
            return climb(height, batch, eps, steps=self.attack_steps, step_size=self.attack_step_size)
