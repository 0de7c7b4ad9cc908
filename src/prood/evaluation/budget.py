"""How many images are certified, and how many of these attacked, where all of them would take too long.

An attack on fewer images is another evaluation, with an identity of its own: beside the evaluation of all images that
are certified, without attacks, there is one of the first few with them.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from prood import processes
from prood.data import ImageSet
from prood.errors import BadValue
from prood.evaluation.options import EvaluateOptions
from prood.evaluation.results import Evaluation, read_results
from prood.models import Score, fingerprint, score_of

MINUTES = 5.0
"""Minutes for bounds, and as many for attacks, by default on a CPU."""
STEPS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
"""Numbers of images that a budget may give: measured speeds vary, and so they hardly change what is evaluated."""
NEAR = 3.0
"""An evaluation that was begun with a number of images within this factor goes on with it."""
TRIED = 8  # images that are timed


@dataclass(frozen=True)
class Budget:
    """`images` of each out-distribution are attacked; or bounds and attacks each take about `minutes` at most."""

    images: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.images is not None and self.minutes is not None:
            raise BadValue("--attack-limit and --minutes exclude each other: give one of them")
        if self.images is not None and self.images < 1:
            raise BadValue(f"at least 1 image is attacked, not {self.images}: --attacks none attacks none")
        if self.minutes is not None and not self.minutes > 0:
            raise BadValue(f"a budget of minutes is above 0, not {self.minutes}: --attacks none takes none")

    def shares(
        self, model: nn.Module, options: EvaluateOptions, inside: ImageSet, sets: int, eps: Sequence[float]
    ) -> tuple[int | None, int | None]:
        """Images of each set to certify, and of these to attack; None: all of them."""
        if self.minutes is None:
            return None, self.images
        score, parts = score_of(model.to(options.place).eval()), sets * len(eps)
        stored = None if options.folder is None else read_results(options.folder)
        before = partial(_begun, stored or (), fingerprint(model))
        bound, search = _seconds_an_image(score, options, inside, max(eps))
        certified = max(STEPS[0], self.affordable(bound, parts, before(None)))
        if options.attack is None:
            return certified, None
        return certified, self.affordable(search, parts, before(options.identity["attacks"]))

    def affordable(self, each: float, parts: int, begun: Sequence[int] = ()) -> int:
        """The number of images where one takes `each` seconds in a part; `begun` are numbers that were used before.

        0 where not even the smallest number of STEPS is affordable.
        """
        most = 60 * (self.minutes or 0.0) * processes.world_size() / (parts * each)
        if near := [number for number in begun if most / NEAR <= number <= most * NEAR]:
            return max(near)
        return max((step for step in STEPS if step <= most), default=0)

    def left_out(self, certified: int | None, attacked: int | None, sets: Sequence[ImageSet]) -> str:
        """How many of the images of these sets count, and how to take more."""
        most = max(map(len, sets))
        size = f"{most:,}" if most == min(map(len, sets)) else f"up to {most:,}"
        some = "all" if certified is None or certified >= most else f"{certified:,}"
        few = "all" if attacked is None else f"{attacked:,}" if attacked else "none"
        sentence = f"of {size} images of each set, {some} are certified and {few} attacked"
        within = "" if self.minutes is None else f", for about {self.minutes:g} minutes each"
        return f"{sentence}{within}; --minutes, --limit and --attack-limit take more"


def _seconds_an_image(score: Score, options: EvaluateOptions, images: ImageSet, eps: float) -> tuple[float, float]:
    """What its bound and an attack that never stops early take; of several processes the first one's clock counts."""
    found = torch.zeros(2, dtype=torch.float64, device=options.place)
    if processes.is_main():
        some = images.floats(list(range(min(TRIED, len(images))))).to(options.place)
        method = options.bound or "best"
        score.upper_bound(some[:1], eps, method=method)  # the first one is slower
        began = time.perf_counter()
        score.upper_bound(some, eps, method=method)
        found[0] = (time.perf_counter() - began) / len(some)
        found[1] = 0.0 if options.attack is None else options.attack.passes * _seconds_a_pass(score, some)
    bound, search = processes.total(found).tolist()
    return max(bound, 1e-6), max(search, 1e-6)


def _seconds_a_pass(score: Score, some: Tensor) -> float:
    """One pass of one image, forward or backward."""
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
    return min(seconds) / (2 * len(some))


def _begun(stored: Iterable[Evaluation], weights: str, attacks: str | None) -> list[int]:
    """On how many images of a set these weights were attacked in this way before, or not at all for None."""
    found = [one.limit for one in stored if one.fingerprints.get("model") == weights and one.attacks == attacks]
    return [limit for limit in found if limit]


def budget_for(images: int | None, minutes: float | None, default_on: torch.device | None) -> Budget | None:
    """The budget that was asked for, or the default one on a CPU; None without a device."""
    if images is not None or minutes is not None:
        return Budget(images, minutes)
    return Budget(minutes=MINUTES) if default_on is not None and default_on.type == "cpu" else None
