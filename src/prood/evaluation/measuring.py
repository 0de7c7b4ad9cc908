"""Whole image sets, shared among processes: clean ≤ attacked ≤ certified, for every image that is ever evaluated."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from prood.evaluation.parts import Part, Shelf, highest, joined
from prood.evaluation.scores import Scores
from prood.models import Score

PIXELS = 2**23
"""Maximum values in a batch of images, which has 250 images at most: an attack keeps dozens of copies."""
CERTIFIED = 16
"""Images certified at once on a CPU: linear bounds of many more take gigabytes, and longer, as no cache holds them."""


def images_at_once(shape: Sequence[int]) -> int:
    """The number of images of this shape in a batch."""
    return max(1, min(250, PIXELS // math.prod(shape)))


class BoundViolated(ProodError):
    """A point with a score above the certified bound was found: there is a bug in a bound."""


@dataclass(frozen=True)
class Evaluator:
    """A score, and how it is to be tried."""

    score: Score
    options: EvaluateOptions
    searched: Score | None = None  # what is attacked, if it is not the score itself but a faster form of it

    def batches(self, images: ImageSet) -> tuple[Tensor, ...]:
        """The rows that are this process's, a few at a time."""
        return torch.split(processes.own_rows(torch.arange(len(images))), self._at_once(images))

    def _at_once(self, images: ImageSet) -> int:
        return self.options.batch or images_at_once(images.shape)

    def shelf(self, images: ImageSet, folder: Path) -> Shelf:
        """Where the parts of all processes lie."""
        world, size = processes.world_size(), self._at_once(images)
        counts = (len(range(rank, len(images), world)) for rank in range(world))
        return Shelf(folder, tuple(max(1, -(-count // size)) for count in counts))

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

    def run(
        self,
        images: ImageSet,
        eps: float,
        inside: Tensor,
        reached: Callable[[float], None],
        bounds_of_part: Tensor | None = None,
    ) -> tuple[Scores, dict[str, Any]]:
        """Score, certify and attack the images, given the scores of the in-distribution; returns scores and costs.

        `reached` gets the number of finished images; those under attack count in parts. `bounds_of_part` are bounds of
        the score's part that exist already.
        """
        return self.together(images, inside, self.measured(images, eps, inside, reached, bounds_of_part=bounds_of_part))

    def measured(
        self,
        images: ImageSet,
        eps: float,
        inside: Tensor,
        reached: Callable[[float], None],
        *,
        bounds_of_part: Tensor | None = None,
        shelf: Shelf | None = None,
    ) -> list[Part]:
        """This process's parts; with a shelf, parts that lie there are reused."""
        before, world = 0, processes.world_size()
        share = world / self.options.attack.passes if self.options.attack else world
        parts = []
        for number, rows in enumerate(self.batches(images)):
            part = None if shelf is None else shelf.own(number, rows)
            if part is None:
                watch = partial(lambda before, passes: reached(before + share * passes), before)
                part = self._part(
                    images, rows, eps, inside, watch, None if bounds_of_part is None else bounds_of_part[rows]
                )
                if shelf is not None:
                    shelf.put(number, part)
            parts.append(part)
            before += world * len(rows)
            reached(before)
        return parts

    def _part(
        self,
        images: ImageSet,
        rows: Tensor,
        eps: float,
        inside: Tensor,
        watch: Callable[[int], None],
        bounds_of_part: Tensor | None,
    ) -> Part:
        options = self.options
        attack = options.attack
        x = images.floats(rows).to(options.place)
        clean = self.score(x).double()
        if bounds_of_part is None:
            bound = self._bounds(x, eps, watch if attack is None else lambda _: None)
        else:
            bound = self.score.bound_from(bounds_of_part.to(options.place))
        points, attacked, settled = x, clean, torch.zeros_like(clean)
        costs = torch.zeros(3 + len(self._names), dtype=torch.float64)
        if attack is not None:
            began = time.monotonic()
            goal = goals(options.stop, bound, inside.to(options.place))
            searched = self.searched or self.score
            outcome = attack(searched, x, eps, goal=goal, seed=options.seed, numbers=rows, watch=watch)
            # Scored among other images, an image may round differently: never let that look like a fall.
            points = torch.where((outcome.scores > clean).view(-1, 1, 1, 1), outcome.images, x)
            attacked, settled = torch.maximum(outcome.scores, clean), outcome.settled.double()
            found_by = [outcome.found_by.count(name) for name in self._names]
            costs += torch.tensor([outcome.forward, outcome.backward, time.monotonic() - began, *found_by])
        confirm(x, points, attacked, bound, eps, options.folder or "")
        return Part.of(rows, torch.stack([clean, attacked, bound, settled]).cpu(), costs, points)

    @property
    def _names(self) -> tuple[str, ...]:
        return ("clean", *(self.options.attack.names if self.options.attack else ()))

    def together(
        self, images: ImageSet, inside: Tensor, parts: Sequence[Part], *, all_of_them: bool = False
    ) -> tuple[Scores, dict[str, Any]]:
        """The scores of all images, and what the attack did; the parts of others come from them, if not given."""
        columns, costs, pictures = joined(parts, len(images))
        seen = torch.zeros(len(images), dtype=torch.float64)
        seen[list(pictures)] = 1.0
        if not all_of_them:
            columns, costs, seen = self._total(columns), self._total(costs), self._total(seen)
        clean, attacked, certified, settled = columns
        places = seen.nonzero().squeeze(1)
        gallery = places[highest(attacked[places], certified[places])]
        shown = torch.zeros_like(images.images[gallery].cpu(), dtype=torch.int64)
        for number, place in enumerate(gallery.tolist()):
            if place in pictures:
                shown[number] = torch.from_numpy(pictures[place])
        forward, backward, seconds, *found_by = costs.tolist()
        by = {name: count / len(images) for name, count in zip(self._names, found_by, strict=True)}
        statistics = {"forward": int(forward), "backward": int(backward), "settled": settled.mean().item()}
        statistics |= {"raised": (attacked > clean).double().mean().item(), "by": by, "seconds": round(seconds, 3)}
        found = Scores(
            inside=inside.numpy(),
            clean=clean.numpy(),
            certified=certified.numpy(),
            attacked=attacked.numpy() if self.options.attack else None,
            gallery=gallery.numpy(),
            gallery_clean=images.images[gallery].cpu().numpy(),
            gallery_attacked=(shown if all_of_them else self._total(shown)).to(torch.uint8).numpy(),
        )
        return found, statistics if self.options.attack else {}

    def _bounds(self, images: Tensor, eps: float, watch: Callable[[int], None]) -> Tensor:
        """Certified bounds; `watch` is told how many images have one before each part but the first."""
        method, found = self.options.bound or "best", [torch.zeros(0, dtype=torch.float64, device=images.device)]
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
