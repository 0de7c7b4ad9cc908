"""Whole image sets, shared among processes: clean ≤ attacked ≤ certified, for every image that is ever evaluated."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prood import processes
from prood.atomic import replacing
from prood.data import ImageSet
from prood.errors import ProodError
from prood.evaluation.options import EvaluateOptions, goals
from prood.evaluation.scores import Scores
from prood.models import Score

PIXELS = 2**23
"""At most so many values in a batch of images, and never more than 250 images: an attack keeps dozens of copies."""
GALLERY = 6
"""So many images with the highest attacked scores, and as many with the highest bounds, are kept to be shown."""
CERTIFIED = 16
"""Images certified at once on a CPU: linear bounds of many more take gigabytes, and longer, as no cache holds them."""


class BoundViolated(ProodError):
    """A point with a score above the certified bound was found: there is a bug in a bound."""


@dataclass(frozen=True)
class Bench:
    """A score, and how it is to be tried."""

    score: Score
    options: EvaluateOptions
    searched: Score | None = None  # what is attacked, if it is not the score itself but a faster form of it

    def batches(self, images: ImageSet) -> tuple[Tensor, ...]:
        """The rows that are this process's, a few at a time."""
        at_once = self.options.batch or max(1, min(250, PIXELS // math.prod(images.shape)))
        return torch.split(processes.own_rows(torch.arange(len(images))), at_once)

    def over(
        self, images: ImageSet, function: Callable[[Tensor], Tensor], reached: Callable[[int], None] = lambda _: None
    ) -> Tensor:
        """A number for each image, float64 on the CPU: each process computes its rows, and all get the whole."""
        values, done = torch.zeros(len(images), dtype=torch.float64), 0
        for rows in self.batches(images):
            values[rows] = function(images.floats(rows).to(self.options.place)).double().cpu()
            done += processes.world_size() * len(rows)
            reached(done)
        return self._total(values)

    def confront(
        self,
        images: ImageSet,
        eps: float,
        inside: Tensor,
        reached: Callable[[float], None],
        known: Tensor | None = None,
    ) -> tuple[Scores, dict[str, Any]]:
        """Score, certify and attack the images, given the scores of the in-distribution; what the attack did and cost.

        `reached` is told how many images are done, those under attack in parts. `known` are the bounds of the score's
        part, where they were computed before.
        """
        before, world, options = 0, processes.world_size(), self.options
        attack = options.attack
        share = world / attack.passes if attack else world
        names = ("clean", *(attack.names if attack else ()))
        columns = torch.zeros(4, len(images), dtype=torch.float64)
        shown = torch.zeros_like(images.images)
        found_by = torch.zeros(len(names), dtype=torch.float64)
        costs = torch.zeros(3, dtype=torch.float64)

        def watch(passes: int) -> None:
            reached(before + share * passes)

        for rows in self.batches(images):
            x = images.floats(rows).to(self.options.place)
            clean = self.score(x).double()
            if known is None:
                bound = self._bounds(x, eps, watch if attack is None else lambda _: None)
            else:
                bound = self.score.bound_from(known[rows].to(self.options.place))
            points, attacked, settled = x, clean, torch.zeros_like(clean)
            if attack is not None:
                began = time.monotonic()
                goal = goals(options.stop, bound, inside.to(self.options.place))
                searched = self.searched or self.score
                outcome = attack(searched, x, eps, goal=goal, seed=options.seed, numbers=rows, watch=watch)
                # Scored among other images, an image may round differently: never let that look like a fall.
                points = torch.where((outcome.scores > clean).view(-1, 1, 1, 1), outcome.images, x)
                attacked, settled = torch.maximum(outcome.scores, clean), outcome.settled.double()
                found_by += torch.tensor([outcome.found_by.count(name) for name in names])
                costs += torch.tensor([outcome.forward, outcome.backward, time.monotonic() - began])
            confirm(x, points, attacked, bound, eps, options.folder or "")
            columns[:, rows] = torch.stack([clean, attacked, bound, settled]).cpu()
            shown[rows] = (points * 255).round().to(torch.uint8).cpu()
            before += world * len(rows)
            reached(before)
        clean, attacked, certified, settled = self._total(columns)
        finite = certified.isfinite().nonzero().squeeze(1)  # none where there is no certificate
        highest = finite[certified[finite].topk(min(GALLERY, len(finite))).indices]
        top = torch.cat([attacked.topk(min(GALLERY, len(images))).indices, highest])
        gallery = torch.tensor(list(dict.fromkeys(top.tolist())), dtype=torch.int64)
        forward, backward, seconds = self._total(costs).tolist()
        by = dict(zip(names, (self._total(found_by) / len(images)).tolist(), strict=True))
        statistics = {"forward": int(forward), "backward": int(backward), "settled": settled.mean().item()}
        statistics |= {"raised": (attacked > clean).double().mean().item(), "by": by, "seconds": round(seconds, 3)}
        found = Scores(
            inside=inside.numpy(),
            clean=clean.numpy(),
            certified=certified.numpy(),
            attacked=attacked.numpy() if attack else None,
            gallery=gallery.numpy(),
            gallery_clean=images.images[gallery].cpu().numpy(),
            gallery_attacked=self._total(shown[gallery].long()).to(torch.uint8).numpy(),
        )
        return found, statistics if attack else {}

    def _bounds(self, images: Tensor, eps: float, watch: Callable[[int], None]) -> Tensor:
        """Certified bounds; `watch` is told how many images have one before each part but the first."""
        method, found = self.options.method or "best", [torch.zeros(0, dtype=torch.float64, device=images.device)]
        for part in torch.split(images, len(images) if images.is_cuda else CERTIFIED):
            if len(found) > 1:
                watch(CERTIFIED * (len(found) - 1))
            found.append(self.score.upper_bound(part, eps, method=method).double())
        return torch.cat(found)

    def _total(self, values: Tensor) -> Tensor:
        # Each process has zeros where others have values. NCCL sums on the GPU only.
        return processes.total(values.to(self.options.place)).cpu() if processes.world_size() > 1 else values


def confirm(images: Tensor, points: Tensor, found: Tensor, certified: Tensor, eps: float, folder: Path | str) -> None:
    """Stop if a score found in a ball exceeds its certified bound, and save the input.

    There is no tolerance: certificates cover every rounding of the float32 network, and scores are computed in the
    arithmetic that they cover.
    """
    exceeds = found > certified
    if not exceeds.any():
        return
    file = Path(folder, "violation.npz")
    kept = {"images": images, "points": points, "scores": found, "bounds": certified}
    arrays: dict[str, Any] = {name: values[exceeds].cpu().numpy() for name, values in kept.items()}
    with replacing(file) as aside, aside.open("wb") as opened:
        np.savez(opened, eps=eps, **arrays)
    score, bound = (values[exceeds][0].item() for values in (found, certified))
    raise BoundViolated(f"a score of {score:.9g} exceeds its certified bound {bound:.9g}: report this bug with {file}")
