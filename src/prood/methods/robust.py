"""Adversarial training of the classifier on the in-distribution (App. K of the paper combines one with ProoD)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.methods.base import Adversarial, Batch, Logs, Loss, Step, accuracy, deployed, interlace, separate
from prood.methods.declaring import option, register


@register
@dataclass(frozen=True)
class Robust(Adversarial):
    """A classifier whose class an attacker cannot change easily; the out-distribution has no part in it.

    loss = "trades" (Zhang et al., ICML 2019):  −log p(y|x) + weight · max_{‖u−x‖∞ ≤ ε} KL(p(·|x) ‖ p(·|u)).
    loss = "pgd" (Madry et al., ICLR 2018):     max_{‖u−x‖∞ ≤ ε} −log p(y|u).

    The paper takes such a classifier from elsewhere, for App. K. The score is its confidence, without a certificate;
    combined with a discriminator (`prood combine`) it has one, and the same class for every image, attacked or not.
    """

    name = "robust"
    title = "Robust"
    summary = "a classifier that keeps its class under attack, by adversarial training on the in-distribution"
    needs_outside = False

    loss: Literal["trades", "pgd"] = option("trades", "trades, or pgd: the cross-entropy of attacked images alone")
    weight: float = option(6.0, "trades only: weight of the divergence between clean and attacked predictions")

    def __call__(self, model: nn.Module, batch_in: Batch, batch_out: Batch | None, step: Step) -> Loss:
        eps = self.radius(step)
        loss, logs = (self._trades if self.loss == "trades" else self._pgd)(model, batch_in, eps)
        return loss, logs | {"eps": eps}

    def _trades(self, model: nn.Module, batch: Batch, eps: Tensor) -> tuple[Tensor, Logs]:
        with deployed(model), torch.no_grad():
            clean = model(batch.images)
        attacked = self.attack(model, batch, eps, lambda images: divergence(clean, model(images)))
        logits, moved = separate(model(interlace(batch.images, attacked)))
        loss_in = F.cross_entropy(logits, batch.targets)
        loss_attacked = divergence(logits, moved).mean()
        logs = {"loss_in": loss_in, "loss_attacked": loss_attacked}
        logs |= {"accuracy": accuracy(logits, batch), "robust_accuracy": accuracy(moved, batch)}
        return loss_in + self.weight * loss_attacked, logs

    def _pgd(self, model: nn.Module, batch: Batch, eps: Tensor) -> tuple[Tensor, Logs]:
        attacked = self.attack(model, batch, eps, lambda u: F.cross_entropy(model(u), batch.targets, reduction="none"))
        moved = model(attacked)
        return F.cross_entropy(moved, batch.targets), {"robust_accuracy": accuracy(moved, batch)}


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p ‖ q) of the distributions with these logits, for each image."""
    p = F.log_softmax(logits, 1)
    return (p.exp() * (p - F.log_softmax(others, 1))).sum(1)
