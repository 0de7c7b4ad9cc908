"""How many images are attacked where attacks on all of them would take too long; all are certified.

An attack on fewer images is another evaluation, with an identity of its own: beside the evaluation of all images
without attacks there is one of the first few with them.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from prood import processes
from prood.attacks import Attack
from prood.data import ImageSet
from prood.errors import BadValue
from prood.evaluation.options import EvaluateOptions
from prood.evaluation.results import Evaluation, read_results
from prood.models import Score, fingerprint, score_of

MINUTES = 5.0
"""Of the default attacks on a CPU."""
STEPS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
"""Numbers of images that a budget may give: measured speeds vary, and so they hardly change what is evaluated."""
NEAR = 3.0
"""An evaluation that was begun with a number of images within this factor goes on with it."""
TRIED = 8  # images whose passes are timed


@dataclass(frozen=True)
class Budget:
    """`images` of each out-distribution are attacked, or so many that all attacks take about `minutes` at most."""

    images: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.images is not None and self.minutes is not None:
            raise BadValue("a number of images and minutes are two budgets: give one of --attack-limit and --minutes")
        if self.images is not None and self.images < 1:
            raise BadValue(f"at least 1 image is attacked, not {self.images}: --attacks none attacks none")
        if self.minutes is not None and not self.minutes > 0:
            raise BadValue(f"a budget of minutes is above 0, not {self.minutes}: --attacks none takes none")

    def images_to_attack(self, model: nn.Module, options: EvaluateOptions, inside: ImageSet, parts: int) -> int | None:
        """Images of each set to attack, in so many `parts` (sets times radii); None: all of them."""
        if self.minutes is None or options.attack is None:
            return self.images
        score = score_of(model.to(options.place).eval())
        each = _seconds_an_image(options.attack, score, inside, options.place)
        stored = None if options.folder is None else read_results(options.folder)
        return self.affordable(each, parts, _begun(stored or (), fingerprint(model), options.identity["attacks"]))

    def affordable(self, each: float, parts: int, begun: Sequence[int] = ()) -> int:
        """The number of images where one takes `each` seconds in a part; `begun` are numbers that were used before.

        0 where not even the smallest number of STEPS is affordable.
        """
        most = 60 * (self.minutes or 0.0) * processes.world_size() / (parts * each)
        if near := [number for number in begun if most / NEAR <= number <= most * NEAR]:
            return max(near)
        return max((step for step in STEPS if step <= most), default=0)

    def left_out(self, count: int, sets: Sequence[ImageSet]) -> str:
        """What is not attacked, and how to attack more."""
        most = max(map(len, sets))
        up_to = "" if most == min(map(len, sets)) else "up to "
        some = f"{count:,} of {up_to}{most:,} images of each set are attacked" if count else "no image is attacked"
        within = "" if self.minutes is None else f" within about {self.minutes:g} minutes"
        return f"{some}{within}, all are certified; --minutes M or --attack-limit N attacks more"


def _seconds_an_image(attack: Attack, score: Score, images: ImageSet, place: torch.device) -> float:
    """What an attack that never stops early takes for an image; of several processes the first one's clock counts."""
    found = torch.zeros(1, dtype=torch.float64, device=place)
    if processes.is_main():
        found += attack.passes * _seconds_a_pass(score, images, place)
    return float(processes.total(found))


def _seconds_a_pass(score: Score, images: ImageSet, place: torch.device) -> float:
    """One pass of one image, forward or backward, as measured on a few."""
    some = images.floats(list(range(min(TRIED, len(images))))).to(place)
    seconds = []
    for _ in range(3):  # the first one is slower
        began = time.perf_counter()
        with torch.enable_grad():
            points = some.clone().requires_grad_()
            value = score(points).sum()
            if value.requires_grad:
                torch.autograd.grad(value, points, allow_unused=True)
        value.item()  # waits for a GPU
        seconds.append(time.perf_counter() - began)
    return max(min(seconds), 1e-6) / (2 * len(some))


def _begun(stored: Iterable[Evaluation], weights: str, attacks: str | None) -> list[int]:
    """On how many images of a set these weights were attacked in this way before."""
    found = [one.limit for one in stored if one.fingerprints.get("model") == weights and one.attacks == attacks]
    return [limit for limit in found if limit]


def budget_for(images: int | None, minutes: float | None, default_on: torch.device | None) -> Budget | None:
    """The budget that was asked for; else, on a CPU, the default one, unless there is no device to have one on."""
    if images is not None or minutes is not None:
        return Budget(images, minutes)
    return Budget(minutes=MINUTES) if default_on is not None and default_on.type == "cpu" else None
