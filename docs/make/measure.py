"""Measure what the figures of docs/idea.md show, with the model that comes with Prood, into docs/assets/measured.json.

    PROOD_DATA=… python docs/make/measure.py        # needs cifar10 and svhn; some minutes on two cores

The figures are drawn from that file alone, so that the site is built without the data.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import prood
from prood import data
from prood.attacks import PGD
from prood.evaluation import auc
from prood.models import ProoD, score_of

FILE = Path(__file__).parent.parent / "assets" / "measured.json"
RADII = [round(0.0025 * step, 4) for step in range(11)]
ATTACK = PGD(steps=60, uniform=1, gaussian=1)
EPS, COUNT, LINES, SEED = 0.01, 150, 12, 0


def _digits(values: Tensor | np.ndarray[Any, Any]) -> list[float]:
    """Five digits are more than a figure shows, and fewer than a machine rounds otherwise."""
    return [float(f"{value:.5g}") for value in np.asarray(values, np.float64)]


def _confidence(scores: Tensor) -> Tensor:
    return 0.9 * torch.sigmoid(scores.double()) + 0.1


def ball(model: ProoD, image: Tensor) -> dict[str, Any]:
    """Over the radius: the certified bounds, and what an attack found, which never lies above them."""
    found: dict[str, Any] = {"eps": RADII, "clean": float(model.confidence(image))}
    for method in ("ibp", "crown-ibp", "alpha-crown"):
        found[method] = _digits([model.upper_bound(image, eps, method=method).item() for eps in RADII])
    outcomes = [ATTACK(score_of(model), image, eps) for eps in RADII[1:]]
    scores = torch.stack([score_of(model)(image)[0], *(outcome.scores[0] for outcome in outcomes)])
    found["attacked"] = _digits(_confidence(scores.cummax(0).values))  # a ball holds the smaller ones
    found["ceiling"] = model.ceiling(10)
    return found


def lines(model: ProoD, image: Tensor) -> dict[str, Any]:
    """The confidence on straight ways through the ball: random corners, and the way to what an attack found."""
    generator = torch.Generator().manual_seed(SEED)
    ways = torch.randint(0, 2, (LINES, *image.shape[1:]), generator=generator) * 2.0 - 1.0
    worst = ATTACK(score_of(model), image, EPS).images - image
    ways = torch.cat([EPS * ways, worst])
    along = torch.linspace(-1, 1, 41)
    drawn = [model.confidence((image + along[:, None, None, None] * way).clamp(0, 1)) for way in ways]
    return {
        "eps": EPS,
        "along": _digits(along * EPS),
        "random": [_digits(one) for one in drawn[:-1]],
        "attack": _digits(drawn[-1]),
        "upper_bound": float(model.upper_bound(image, EPS, method="alpha-crown")),
    }


def scores(model: ProoD, inside: Tensor, outside: Tensor) -> dict[str, Any]:
    """Scores of both sets, and the certified ones: what AUC and GAUC are counted from."""
    score = score_of(model)
    seen_in, seen_out = (torch.cat([score(some) for some in images.split(50)]) for images in (inside, outside))
    certified = torch.cat([score.upper_bound(some, EPS) for some in outside.split(8)])
    return {
        "eps": EPS,
        "inside": _digits(seen_in),
        "outside": _digits(seen_out),
        "certified": _digits(certified),
        "auc": auc(seen_in.numpy(), seen_out.numpy()),
        "gauc": auc(seen_in.numpy(), certified.numpy()),
    }


@torch.no_grad()
def main() -> None:
    model: ProoD = prood.load("cifar10")
    inside = data.load("cifar10:test").subset(COUNT, seed=SEED)
    outside = data.load("svhn:test", like=inside).subset(COUNT, seed=SEED)
    pictures_in, pictures_out = (images.images.float() / 255 for images in (inside, outside))
    bounds = torch.cat([model.upper_bound(some, EPS) for some in pictures_out.split(8)])
    first = int((bounds < 0.5).nonzero()[0, 0])  # the first one that is provably below 0.5 in the ball
    image = pictures_out[first : first + 1]
    found = {
        "model": "cifar10, which comes with Prood",
        "image": f"number {first} of {COUNT} drawn from svhn:test by seed {SEED}",
        "threshold": model.threshold,
        "ball": ball(model, image),
        "lines": lines(model, image),
        "scores": scores(model, pictures_in, pictures_out),
    }
    FILE.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
