"""What is measured of a model besides its evaluations: robust accuracy, and what it says far away from all data."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prood import data, processes
from prood.atomic import write_text
from prood.attacks import Attack, preset
from prood.data import ImageSet
from prood.errors import Damaged, Mismatch, Unsupported
from prood.evaluation.asymptotics.far import TRAJECTORIES, Far, far_away
from prood.evaluation.results import Evaluation
from prood.evaluation.sets import fitting_of, part_of
from prood.models import Score, load, score_of
from prood.reading import json_of, text

FILE = "measured.json"


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
    right = torch.zeros(2, len(chosen), dtype=torch.float64)  # as they are, and attacked
    for label in sorted(set(labels.tolist())):
        rows = processes.own_rows((labels == label).nonzero().squeeze(1))
        for part in torch.split(rows, 250):
            images = chosen.floats(part).to(device)
            # What is wrong already need not be attacked, and a search ends where the class changes.
            found = attack(Margin(score, label), images, eps, goal=0.0, seed=seed, numbers=part)
            right[:, part] = torch.stack([found.clean < 0, found.scores < 0]).double().cpu()
    right = processes.total(right.to(device)).cpu()
    return Robustness(float(eps), len(chosen), right[0].mean().item(), right[1].mean().item())


@dataclass(frozen=True)
class Measured:
    """`of` names the evaluation that they go with: the same weights, images, radius and attacks."""

    of: str
    far: Far
    robustness: Robustness | None  # None for a model that does not classify


def measured(run: Path, evaluation: Evaluation, device: str | None = None) -> Measured:
    """The measurements that are in the run's folder if they go with this evaluation, else new ones."""
    if (found := read_measured(run)) is not None and found.of == evaluation.identity:
        return found
    target = processes.device(device)
    model, about = load(run, device=target)
    fitting = fitting_of(about.recipe)
    inside = data.load(evaluation.inside, **fitting).numbered_as(about.classes)
    outside = part_of(evaluation.outside, inside, TRAJECTORIES, evaluation.seed, fitting["damaged"])
    robustness = None
    if evaluation.accuracy is not None:
        options: dict[str, Any] = {"attacks": evaluation.attacks, "limit": evaluation.limit, "seed": evaluation.seed}
        robustness = robust_accuracy(model, inside, evaluation.eps, device=target, **options)
    far = far_away(model, inside, outside, seed=evaluation.seed, device=target)
    result = Measured(evaluation.identity, far, robustness)
    if processes.is_main():
        write_text(run / FILE, json.dumps(asdict(result), indent=2) + "\n")
    return result


def read_measured(run: Path | str) -> Measured | None:
    file = Path(run) / FILE
    if not file.is_file():
        return None
    try:
        return from_json(json_of(text(file)))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{file} is damaged or of another format: remove it and compare again") from None


def from_json(content: dict[str, Any]) -> Measured:
    """What `dataclasses.asdict` made of it, and JSON of that."""
    lines = content["far"].items()
    far: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in lines}
    robustness = content["robustness"]
    return Measured(content["of"], Far(**far), None if robustness is None else Robustness(**robustness))
