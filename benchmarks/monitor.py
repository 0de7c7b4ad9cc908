"""The monitor on many streams: how often it raises a false alarm, and after how many images it finds a shift.

    python benchmarks/monitor.py [--streams 200] [--length 20000]
    python benchmarks/monitor.py --model small --calibration 400 --late 200 --length 600
    python benchmarks/monitor.py --model RUN --inside SET --outside SET,SET

Without a model, scores are simulated: those of the in-distribution are normal, those of outliers four deviations lower.
`small` is a classifier that is trained on digits in seconds, behind a discriminator that lets everything pass. With a
model, they are its scores of the images of these sets. Every stream is then a new draw without repetition: the first
of the images inside calibrate, the next ones arrive, and what arrives after a shift comes from those that are left. A
shift begins with the first image, or after `--late`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

from prood import data
from prood.detector import Calibration, Detector, Monitor, Standing
from prood.detector.calibration import calibrated
from prood.models import ProoD, discriminator, small
from prood.models.confidence import Floats

Draw = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""The scores of so many images inside, and those of what arrives after the shift; of real images none comes twice."""
MOST = 3000
"""Images after a shift."""


def watched(before: Floats, stream: Floats, seed: int) -> Standing:
    value = 1 / (1 + np.exp(-before))
    found: Calibration = calibrated(before, value, accept=0.95, level=0.95)
    return Monitor(found, seed=seed).observe(stream, 1 / (1 + np.exp(-stream)) >= found.threshold)


def delays(draw: Draw, calibration: int, late: int, streams: int) -> str:
    """After how many images the first alarm comes: the median, and what 95% of the streams need at most."""
    found = []
    for seed in range(streams):
        before, after = draw(np.random.default_rng([7, seed]), calibration + late)
        told = watched(before[:calibration], np.concatenate([before[calibration:], after]), seed)
        at = min((one for one in (told.shift_at, told.promise_at) if one is not None), default=np.inf)
        found.append(at - late if at > late else np.inf)
    middle, most = np.quantile(found, [0.5, 0.95], method="higher")
    return f"{middle:8.0f}{most:8.0f}"


def simulated() -> tuple[Draw, dict[str, Draw]]:
    def lower(share: float) -> Draw:
        def draw(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
            before, after = random.normal(size=n), random.normal(size=MOST)
            return before, after - 4 * (random.random(MOST) < share)

        return draw

    def moved(by: float) -> Draw:
        return lambda random, n: (random.normal(size=n), random.normal(by, size=MOST))

    shifts = {"10% outliers": lower(0.1), "30% outliers": lower(0.3), "all 0.5 lower": moved(-0.5)}
    return moved(0.0), shifts | {"all 0.5 higher": moved(0.5)}


def small_model() -> Detector:
    """Its score is the classifier's: with so large a shift, p(in) is 1."""
    torch.manual_seed(0)
    known, classifier = data.load("digits:train"), small(8, width=8)
    images, labels = known.images.float() / 255, known.labels
    steps = torch.optim.Adam(classifier.parameters(), 3e-3)
    for _ in range(4):
        for rows in torch.randperm(len(images)).split(64):
            loss = torch.nn.functional.cross_entropy(classifier(images[rows]), labels[rows])
            steps.zero_grad()
            loss.backward()
            steps.step()
    return Detector(ProoD(classifier, discriminator("digits", image=(1, 28, 28)), 40.0))


def real(model: str, inside: str, outside: list[str]) -> tuple[Draw, dict[str, Draw]]:
    detector, known = small_model() if model == "small" else Detector.load(model), data.load(inside)
    scores = detector.predict(known).score
    strange = {name: detector.predict(data.load(name, like=known)).score for name in outside}

    def mixed(name: str, share: float) -> Draw:
        def draw(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
            order = random.permutation(scores)
            after = order[n:][: min(MOST, int(len(strange[name]) / share))].copy()
            outlier = np.flatnonzero(random.random(len(after)) < share)[: len(strange[name])]
            after[outlier] = random.permutation(strange[name])[: len(outlier)]
            return order[:n], after

        return draw

    def alone(label: int) -> Draw:
        def draw(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
            order = random.permutation(len(scores))
            return scores[order[:n]], scores[[place for place in order[n:] if known.labels[place] == label]]

        return draw

    shifts = {f"{share:.0%} {name}": mixed(name, share) for name in outside for share in (0.1, 0.3, 1.0)}
    shifts |= {f"only class {name}": alone(label) for label, name in enumerate(known.classes)}
    return lambda random, n: (random.permutation(scores)[:n], np.zeros(0)), shifts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--length", type=int, default=20_000, help="images of a stream without a shift")
    parser.add_argument("--calibration", type=int, default=1000)
    parser.add_argument("--late", type=int, default=2000)
    parser.add_argument("--model")
    parser.add_argument("--inside", default="digits:test")
    parser.add_argument("--outside", default="left-out,faces")
    given = parser.parse_args()
    n, outside = given.calibration, given.outside.split(",")
    inside, shifts = simulated() if given.model is None else real(given.model, given.inside, outside)
    alarms = np.zeros(2, dtype=int)
    for seed in range(given.streams):
        scores, _ = inside(np.random.default_rng(seed), n + given.length)
        told = watched(scores[:n], scores[n:], seed)
        alarms += [told.shift_at is not None, told.promise_at is not None]
    print(f"{given.streams} streams of {told.seen:,} images after {n:,} of calibration, 1% of false alarms allowed:")
    print(f"false alarms: {alarms[0]} of shift, {alarms[1]} of promise")
    print(f"{'images until the alarm':28}{'at once':>16}{f'after {given.late:,}':>16}")
    print(f"{'':28}{'median':>8}{'95%':>8}{'median':>8}{'95%':>8}")
    for name, draw in shifts.items():
        cells = [delays(draw, n, late, given.streams) for late in (0, given.late)]
        print(f"{name:28}{''.join(cells)}")


if __name__ == "__main__":
    main()
