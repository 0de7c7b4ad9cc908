"""Write the price of proof of the shipped model into docs/assets/price.json, from an evaluation with its scores.

    prood evaluate cifar10 --outside cifar100,svhn,smooth,places365,textures,uniform \
        --eps 0.01 --attacks fast --limit 50
    python docs/make/price.py runs/shipped/cifar10

The figure is drawn from that file alone, so that the site is built without the data.
"""

import json
import sys
from pathlib import Path

import numpy as np

from prood.evaluation import read_results, rejected

FILE = Path(__file__).parent.parent / "assets" / "price.json"
ACCEPTED = [round(share / 100, 2) for share in range(50, 100)]


def main(run: str) -> None:
    found = [
        one.scores for one in read_results(run) or () if one.scores is not None and one.scores.attacked is not None
    ]
    if not found:
        sys.exit(f"{run} has no attacked evaluation with scores: run the first command of this file's head")
    kinds = [{"clean": one.clean, "attacked": one.attacked, "proved": one.certified} for one in found]
    shares = [rejected(one.inside, kind, ACCEPTED) for one, kind in zip(found, kinds, strict=True)]
    means = {key: np.mean([one[key] for one in shares], axis=0).round(4).tolist() for key in kinds[0]}
    means["images"] = [len(one.clean) for one in found]
    FILE.write_text(json.dumps({"model": Path(run).name, "accepted": ACCEPTED, **means}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
