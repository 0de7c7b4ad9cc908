"""What one process does: train and judge a job, or judge finished ones on the test sets."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch
from images import held_back, outliers, test_sets, training_set
from judge import HIGH, judge
from settings import Settings, as_table
from trial import train

from prood.data import ImageSet
from prood.models import Discriminator, load

CROWN = 400  # images of each held-back set that averaged weights are judged on by `crown`


def _device() -> torch.device:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(4 if device.type == "cuda" else 1)
    torch.backends.cudnn.benchmark = device.type == "cuda"
    return device


def work(chosen: argparse.Namespace, cut_off: int) -> int:
    """Train the job and append its line; the exit status."""
    settings = Settings(**json.loads(chosen.settings))
    began = time.monotonic()
    device = _device()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    def few(images: ImageSet) -> ImageSet:
        return images.select(range(min(chosen.limit, len(images)))) if chosen.limit else images

    inside = few(training_set(chosen.data, settings.inside))
    outside = outliers(chosen.data, settings.inside, settings.natural, settings.procedural, settings.seed)
    if chosen.limit:
        outside = outside.subset(chosen.limit, 0)
    say(f"{len(inside)} and {len(outside)} images")
    folder = chosen.out / chosen.worker
    until = began + chosen.until
    result = train(settings, inside, outside, folder, device, until=until, say=say)
    if result is None:
        return cut_off
    made, facts = result
    since = time.monotonic()
    sets = {name: few(images) for name, images in held_back(chosen.data, settings.inside, settings.crop).items()}
    radii = [0.01, HIGH] if settings.eps_high or settings.eps > 0.02 else [0.01]
    judged = {
        kind: judge(model, sets, radii, device, method="crown-ibp", arithmetic="plain") for kind, model in made.items()
    }
    first = {
        name: images if name == settings.inside else images.select(range(min(CROWN, len(images))))
        for name, images in sets.items()
    }
    judged["crown"] = judge(made["averaged"], first, radii, device, method="crown", arithmetic="plain")
    facts |= {"judged_seconds": round(time.monotonic() - since, 1), "outliers": len(outside)}
    _append(
        chosen.results, {"name": chosen.worker, "settings": as_table(settings), **facts, **judged, **_machine(device)}
    )
    say("judged")
    return 0


def final(chosen: argparse.Namespace) -> None:
    """Raw and averaged weights of these jobs, or the kind that NAME/KIND says, on the test sets."""
    device = _device()
    torch.backends.cudnn.benchmark = False
    sets = test_sets(chosen.data)
    if chosen.limit:
        sets = {name: images.select(range(min(chosen.limit, len(images)))) for name, images in sets.items()}
    for entry in chosen.final:
        name, _, kind = entry.partition("/")
        for one in [kind] if kind else ["averaged", "raw"]:
            model = read(chosen.out / name / f"{one}.safetensors").to(device)
            for outside in (other for other in sets if other != "cifar10"):
                since = time.monotonic()
                pair = {"cifar10": sets["cifar10"], outside: sets[outside]}
                judged = judge(
                    model, pair, [0.01, HIGH] if "both" in name else [0.01], device, method="crown", arithmetic="sound"
                )
                line = {"name": name, "weights": one, "bound": "crown", "inside": len(sets["cifar10"]), "test": judged}
                line["seconds"] = round(time.monotonic() - since, 1)
                _append(chosen.results.with_name("final.jsonl"), line | _machine(device))
                print(json.dumps(line), flush=True)


def read(path: Path) -> Discriminator:
    model, _ = load(path)
    assert isinstance(model, Discriminator)
    return model


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _machine(device: torch.device) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    words = [word for word in sys.argv[1:] if not word.startswith("{")]
    return {"machine": name, "torch": torch.__version__, "command": " ".join(["benchmarks/campaign", *words])}
