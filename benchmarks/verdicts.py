"""The decision rule of the shipped models: without a gate, and with the gates of both points, on the test sets.

    PROOD_DATA=DIR python benchmarks/verdicts.py --pairs FOLDER [--device cuda] [--crown 200] [--write FILE.json]
        [--gate]    write MODEL-gated.safetensors with the gate of the point `default` into FOLDER, to be shipped
        [--curve]    nothing but the seconds from stored scores to the price of proof, drawn

First s, g and ḡ of every image go into FOLDER/pairs-MODEL.npz, once: this is what takes time (half a minute a model on
an H200, about an hour on two cores). The gates are fitted on held-back images of both kinds that `prood reproduce` fits
them on: the 1,000 that the recipe holds back of each training set, and 2,000 of natural32. All 1,000 inside make one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prood import data
from prood.atomic import write_text
from prood.data import ImageSet
from prood.evaluation.metrics import auc, fpr, threshold
from prood.evaluation.price import SHARES, at_shares
from prood.evaluation.results import Evaluation, Results, read_results
from prood.evaluation.runs import part_of
from prood.evaluation.scores import Scores
from prood.models import Gate, ProoD, load, save
from prood.models.files import rounded
from prood.report.charts import price_curves
from prood.studies import Pairs, fit_schedule
from prood.studies.gating import ACCEPTED, PRICES, Schedule, at_point, gate_from, verdicts
from prood.studies.pairs import pairs_of
from prood.training import held_back, load_recipe

EPS = 0.01
OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}
SETS = ("svhn", "textures", "places365", "smooth", "uniform")
BROAD = "natural32"
FIELDS = ("s_in", "g_in", "s_out", "g_out", "bound_out")


def sets_of(name: str) -> dict[str, tuple[ImageSet, dict[str, ImageSet]]]:
    """The images inside and outside that gates are fitted on, and those of the test."""
    inside, outside = held_back(load_recipe(f"{name}-fast"))
    held = {OTHER[name]: outside, BROAD: data.open_set(f"{BROAD}:train", like=inside).subset(2 * len(inside), 0).load()}
    known = data.load(f"{name}:test")
    return {
        "held": (inside, held),
        "test": (known, {other: part_of(other, known, 1000, 0) for other in (OTHER[name], *SETS)}),
    }


def compute(name: str, file: Path, device: str, crown: int) -> None:
    model, _ = load(name, device=device)
    made: dict[str, Any] = {"shift": model.shift.item()}
    for group, (inside, outside) in sets_of(name).items():
        for bound, rows in (("best", 10_000), ("crown", crown)):
            some = {key: images.select(range(min(rows, len(images)))) for key, images in outside.items()}
            found = pairs_of(model.classifier, model.discriminator, inside, some, EPS, method=bound, device=device)
            for key, pair in found.items():
                for field in FIELDS:
                    place = f"{group}/{field}" if field.endswith("_in") else f"{group}/{key}/{bound}/{field}"
                    made[place] = getattr(pair, field).cpu().numpy()
            print(f"{name}: {group} by {bound}", flush=True)
    np.savez_compressed(file, **made)


def pair(archive: Any, group: str, outside: str, bound: str = "best") -> Pairs:
    places = [f"{group}/{one}" if one.endswith("_in") else f"{group}/{outside}/{bound}/{one}" for one in FIELDS]
    return Pairs(*(torch.from_numpy(archive[place]) for place in places))


def judged(name: str, archive: Any) -> dict[str, Any]:
    """What was chosen, and the verdicts on the test sets: the mean, and each set by itself."""
    shift = float(archive["shift"])
    samples = [pair(archive, "held", other) for other in (OTHER[name], BROAD)]
    rules: dict[str, tuple[Schedule, Gate]] = {"no gate": (Schedule(0.0), Gate())}
    for point, most in PRICES.items():
        schedule = fit_schedule(samples, shift, most).schedule
        rules[point] = schedule, gate_from(samples[0], shift, schedule)
    lines = []
    for rule, (schedule, gate) in rules.items():
        for bound in ("best", "crown"):
            parts = {one: pair(archive, "test", one, bound).scores(shift, gate) for one in (OTHER[name], *SETS)}
            sets = {"mean": verdicts(list(parts.values()))} | {key: verdicts([part]) for key, part in parts.items()}
            values = {
                key: {"auc": one.auc, "gauc": one.gauc, "fpr": one.fpr, "gfpr": one.gfpr} for key, one in sets.items()
            }
            images = len(next(iter(parts.values()))[1])
            line = {"rule": rule, "provable": schedule.provable, "last": schedule.end, "bound": bound, "images": images}
            rounded_values = json.loads(json.dumps(values), parse_float=lambda text: round(float(text), 5))
            lines.append(line | {"sets": rounded_values})
    return {"model": name, "eps": EPS, "accepted": ACCEPTED, "rules": lines}


def gated(name: str, archive: Any, folder: Path) -> None:
    """The shipped weights with the gate of `default`, and the threshold that accepts 95% of the held-back images."""
    model, about = load(name)
    assert isinstance(model, ProoD)
    samples = [pair(archive, "held", other) for other in (OTHER[name], BROAD)]
    bare = ProoD(model.classifier, model.discriminator, model.shift.item())
    found, provable = at_point(bare, samples, "default")
    made = rounded(found)
    inside, _ = held_back(load_recipe(f"{name}-fast"))
    with torch.no_grad():
        rows = torch.arange(len(inside)).split(250)
        confidence = torch.cat([made.confidence(inside.floats(some)) for some in rows])
    kept = {key: getattr(about, key) for key in ("classes", "eps", "recipe", "seed", "inside", "data")}
    file = folder / f"{name}-gated.safetensors"
    save(made, file, half=True, threshold=threshold(confidence.numpy(), 0.95), accept=0.95, provable=provable, **kept)
    print(f"wrote {file}")


def curve(inside: int = 10_000, outside: int = 1000) -> float:
    """The seconds from a run's stored scores to what a report draws of them, and `prood info` prints, for six sets."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for name in (*SETS, BROAD):
            clean = random.normal(0, 2, outside)
            attacked = clean + random.exponential(0.5, outside)
            known = Scores(random.normal(5, 2, inside), clean, attacked + random.exponential(0.5, outside), attacked)
            values = auc(known.inside, clean), auc(known.inside, known.certified)
            rates = fpr(known.inside, clean), fpr(known.inside, known.certified)
            made.append(Evaluation("model", "inside", name, 0.01, outside, *values, *rates, scores=known))
        Results(tuple(made)).save(folder)
        began = time.perf_counter()
        found = read_results(folder)
        assert found is not None
        assert all(price_curves([one], one.outside, {"model": "m0"}) is not None for one in found)
        assert len(at_shares(found)) == len(SHARES)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, help="folder of what is computed")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--crown", type=int, default=200, help="images of each set that are bounded by crown, too")
    parser.add_argument("--write", type=Path, help="the file of the verdicts")
    parser.add_argument("--gate", action="store_true", help="write the gated models, too")
    parser.add_argument("--curve", action="store_true", help="measure how fast the price of proof is drawn")
    chosen = parser.parse_args()
    if chosen.curve:
        print(f"{curve():.2f} s from stored scores to six curves and their table")
        return
    if chosen.pairs is None:
        parser.error("--pairs says where to keep what is computed")
    chosen.pairs.mkdir(parents=True, exist_ok=True)
    found = []
    for name in OTHER:
        file = chosen.pairs / f"pairs-{name}.npz"
        if not file.exists():
            compute(name, file, chosen.device, chosen.crown)
        with np.load(file) as archive:
            found.append(judged(name, archive))
            if chosen.gate:
                gated(name, archive, chosen.pairs)
    for model in found:
        print(f"\n{model['model']}, ε = {EPS}, mean of six sets")
        print("| rule | bound | AUC / GAUC | FPR / GFPR at 95% accepted | at 90% | at 80% |\n|---|---|---|---|---|---|")
        for line in model["rules"]:
            one = line["sets"]["mean"]
            rates = [f"{100 * a:.1f} / {100 * b:.1f}" for a, b in zip(one["fpr"], one["gfpr"], strict=True)]
            cells = [line["rule"], line["bound"], f"{100 * one['auc']:.1f} / {100 * one['gauc']:.1f}", *rates]
            print(f"| {' | '.join(cells)} |")
    if chosen.write:
        write_text(chosen.write, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
