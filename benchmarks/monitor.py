"""The monitor on many streams: how often it raises a false alarm, and after how many images it finds a shift.

    python benchmarks/monitor.py [--streams 200] [--length 20000]
    PROOD_DATA=DIR python benchmarks/monitor.py --scores FILE.npz --model cifar10 --inside cifar10:test
        --outside cifar100:test,svhn,textures

Without a model, scores are simulated: those of the in-distribution are normal, those of outliers four deviations lower.
With one, its scores of the images are computed once, which takes minutes, and kept in FILE. Every stream is then a new
draw without repetition: so many for calibration, the rest arrive. A shift begins with the first image or after 2,000.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from prood import data
from prood.atomic import replacing
from prood.detector import Calibration, Detector, Monitor, Standing
from prood.detector.calibration import calibrated
from prood.models.confidence import Floats

LATE = 2000
Draw = Callable[[np.random.Generator, int], Floats]
"""So many scores, of which none comes twice."""


def watched(before: Floats, stream: Floats, seed: int) -> Standing:
    value = 1 / (1 + np.exp(-before))
    found: Calibration = calibrated(before, value, accept=0.95, level=0.95)
    return Monitor(found, seed=seed).observe(stream, 1 / (1 + np.exp(-stream)) >= found.threshold)


def delays(inside: Draw, shifted: Draw, calibration: int, late: int, streams: int) -> str:
    """After how many images the first alarm comes: the median, and what 95% of the streams need at most."""
    found = []
    for seed in range(streams):
        random = np.random.default_rng([7, seed])
        scores, after = inside(random, calibration + late), shifted(random, 3000)
        told = watched(scores[:calibration], np.concatenate([scores[calibration:], after]), seed)
        at = min((one for one in (told.shift_at, told.promise_at) if one is not None), default=np.inf)
        found.append(at - late if at > late else np.inf)
    middle, most = np.quantile(found, [0.5, 0.95], method="higher")
    return f"{middle:8.0f}{most:8.0f}"


def simulated() -> tuple[Draw, dict[str, Draw]]:
    def lower(share: float) -> Draw:
        return lambda random, n: np.where(random.random(n) < share, random.normal(-4, 1, n), random.normal(size=n))

    def moved(by: float) -> Draw:
        return lambda random, n: random.normal(by, size=n)

    shifts = {"10% outliers": lower(0.1), "30% outliers": lower(0.3), "all 0.5 lower": moved(-0.5)}
    return lambda random, n: random.normal(size=n), shifts | {"all 0.5 higher": moved(0.5)}


def real(file: Path, model: str, inside: str, outside: list[str]) -> tuple[Draw, dict[str, Draw]]:
    if not file.exists():
        detector, found = Detector.load(model), {}
        known = data.load(inside)
        for name in (inside, *outside):
            images = known if name == inside else data.load(name, like=known)
            found[name] = detector.predict(images).score
        with replacing(file) as aside, aside.open("wb") as written:
            np.savez(written, **found, labels=np.asarray(known.labels), classes=np.asarray(known.classes))
    with np.load(file) as read:
        scores = {name: read[name] for name in (inside, *outside)}
        labels, classes = read["labels"], read["classes"]

    def drawn(rows: Floats) -> Draw:
        return lambda random, n: random.permutation(rows)[:n]

    def mixed(name: str, share: float) -> Draw:
        def draw(random: np.random.Generator, n: int) -> Floats:
            n = min(n, int(len(scores[name]) / share), len(second))
            strange = random.random(n) < share
            found = random.permutation(second)[:n].copy()
            found[strange] = random.permutation(scores[name])[: strange.sum()]
            return found

        return draw

    # Those that come after a shift are never among those that were drawn before it.
    first, second = np.split(np.random.default_rng(0).permutation(len(labels)), 2)
    kinds = labels[second]
    first, second = scores[inside][first], scores[inside][second]
    shifts = {f"10% {name}": mixed(name, 0.1) for name in outside}
    shifts |= {f"only class {name}": drawn(second[kinds == place]) for place, name in enumerate(classes)}
    return drawn(first), shifts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--length", type=int, default=20_000, help="images of a stream without a shift")
    parser.add_argument("--calibration", type=int, default=1000)
    parser.add_argument("--scores", type=Path, default=None)
    parser.add_argument("--model", default="cifar10")
    parser.add_argument("--inside", default="cifar10:test")
    parser.add_argument("--outside", default="cifar100:test,svhn:test,textures:test")
    given = parser.parse_args()
    n, outside = given.calibration, given.outside.split(",")
    inside, shifts = simulated() if given.scores is None else real(given.scores, given.model, given.inside, outside)
    alarms = np.zeros(2, dtype=int)
    for seed in range(given.streams):
        scores = inside(np.random.default_rng(seed), n + given.length)
        told = watched(scores[:n], scores[n:], seed)
        alarms += [told.shift_at is not None, told.promise_at is not None]
    print(f"{given.streams} streams of {told.seen:,} images after {n:,} of calibration, 1% of false alarms allowed:")
    print(f"false alarms: {alarms[0]} of shift, {alarms[1]} of promise")
    print(f"{'images until the alarm':28}{'at once':>16}{f'after {LATE:,}':>16}")
    print(f"{'':28}{'median':>8}{'95%':>8}{'median':>8}{'95%':>8}")
    for name, shifted in shifts.items():
        cells = [delays(inside, shifted, n, late, given.streams) for late in (0, LATE)]
        print(f"{name:28}{''.join(cells)}")


if __name__ == "__main__":
    main()
