"""Robust accuracy: how often the class stays right when an attacker may change the image."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood import processes
from prood.attacks import Attack, preset
from prood.data import ImageSet
from prood.errors import Mismatch, Unsupported
from prood.models import Score, score_of

BATCH = 250


class Margin(Score):
    """max_{k≠y} f_k(x) − f_y(x) for one label y: how far the classifier is from it, above 0 where the class is wrong.

    An attack maximises any score, so it needs no notion of a label; images are attacked label by label instead.
    """

    def __init__(self, score: Score, label: int) -> None:
        super().__init__(score.model)
        self.score, self.label = score, label

    def __call__(self, images: Tensor) -> Tensor:
        logits = self.score.logits(images)
        assert logits is not None
        own = torch.arange(logits.shape[1], device=logits.device) == self.label
        return logits.masked_fill(own, -torch.inf).double().amax(1) - logits[:, self.label].double()


@dataclass(frozen=True)
class Robustness:
    """Fractions of the images that are classified rightly: as they are, and whatever the attack did within eps."""

    eps: float
    images: int
    accuracy: float
    robust_accuracy: float


@torch.no_grad()
def robust_accuracy(
    model: nn.Module | Score,
    inside: ImageSet,
    eps: float,
    *,
    attacks: str | Attack = "fast",
    limit: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Robustness:
    """Attack the class of in-distribution images in ℓ∞ balls of radius eps: the margin of the wrong classes is raised.

    The classes are those of the model's logits. An image is lost as soon as any wrong class draws level. Under
    torchrun each process takes a part of the images.
    """
    score = model if isinstance(model, Score) else score_of(model)
    score.model.to(device).eval()
    attack = preset(attacks) if isinstance(attacks, str) else attacks
    chosen = inside if limit is None else inside.subset(limit, seed)
    logits = score.logits(chosen.floats([0]).to(device))
    if logits is None:
        raise Unsupported("a model that does not classify has no robust accuracy")
    labels = chosen.labels_of(logits.shape[1])
    if labels is None:
        raise Mismatch(f"{inside.name} has no labelled images: robust accuracy needs them")
    clean, attacked = torch.zeros(2, len(chosen), dtype=torch.float64)
    for label in sorted(set(labels.tolist())):
        rows = processes.own_rows((labels == label).nonzero().squeeze(1))
        for part in torch.split(rows, BATCH):
            images = chosen.floats(part).to(device)
            # What is wrong already need not be attacked, and a search ends where the class changes.
            found = attack(Margin(score, label), images, eps, goal=0.0, seed=seed, numbers=part)
            clean[part] = (found.clean < 0).double().cpu()
            attacked[part] = (found.scores < 0).double().cpu()
    right = processes.total(torch.stack([clean, attacked]).to(device)).cpu()
    return Robustness(float(eps), len(chosen), right[0].mean().item(), right[1].mean().item())
