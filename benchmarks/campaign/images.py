"""The campaign's images: sets as arrays, what is held back of them, and made patterns."""

from __future__ import annotations

import math
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from prood.data import ImageSet, made_outliers
from prood.data.made import PATTERNS
from prood.data.noise import smooth_noise, uniform_noise

HELD = 2_000
HELD_SEED = 0
WAIT = 240.0  # seconds for a set that is still on its way
SHAPE = (3, 32, 32)
NOISE_SEED = 20_261  # of the held-back noise; the test sets' is 0


def unpack(folder: Path) -> None:
    """FOLDER/SET/SPLIT-NN.webp → FOLDER/SET-SPLIT.npy, for each set whose sheets are new; and so rimgnet-mini/*.npz."""
    for archive in sorted(folder.glob("rimgnet-mini/*-train.npz")):
        if not (target := folder / f"{archive.stem}.npy").exists():
            with np.load(archive) as content, (part := target.with_suffix(".part")).open("wb") as file:
                np.save(file, content["images"])
            part.rename(target)
    splits = {path.parent / path.stem.rpartition("-")[0] for path in folder.glob("*/*-[0-9][0-9].webp")}
    with ProcessPoolExecutor() as pool:
        for split in sorted(splits):
            target = folder / f"{split.parent.name}-{split.name}.npy"
            if target.exists():
                continue
            images = np.concatenate(list(pool.map(_sheet, sorted(split.parent.glob(f"{split.name}-[0-9][0-9].webp")))))
            count = int(np.flatnonzero(images.any((1, 2, 3)))[-1]) + 1  # the last row is filled up with black
            part = target.with_suffix(".part")
            with part.open("wb") as file:
                np.save(file, images[:count])
            part.rename(target)
            print(f"{target.name}: {count} images", flush=True)


def _sheet(path: Path) -> NDArray[np.uint8]:
    Image.MAX_IMAGE_PIXELS = None
    pixels = np.asarray(Image.open(path).convert("RGB"))
    return pixels.reshape(-1, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32)


def load(folder: Path, name: str, split: str) -> ImageSet:
    path = folder / f"{name}-{split}.npy"
    end = time.monotonic() + WAIT
    while not path.exists() and time.monotonic() < end:
        time.sleep(1)
    return ImageSet(f"{name}:{split}", torch.from_numpy(np.load(path)))


def training_set(folder: Path, name: str) -> ImageSet:
    """What jobs may train on."""
    return load(folder, name, "train").divided(HELD, HELD_SEED)[0]


def held_set(folder: Path, name: str) -> ImageSet:
    """What no job trains on."""
    return load(folder, name, "train").divided(HELD, HELD_SEED)[1]


def outliers(folder: Path, inside: str, natural: float, procedural: float, seed: int) -> ImageSet:
    """The training outliers of `inside` with these shares of natural32, repeated as often as it takes, and of patterns.

    Against CIFAR-10 the patterns are textures alone; against Restricted ImageNet noise is among them.
    """
    base = training_set(folder, "cifar100" if inside == "cifar10" else "notrimgnet")
    if natural and base.shape != SHAPE:
        raise SystemExit(f"natural32 has images of {SHAPE}, the outliers of {inside} have not: leave natural out")
    parts = [base.images]
    rest = 1 - natural - procedural
    if natural:
        images = training_set(folder, "natural32").images
        parts.append(_repeated(images, round(len(base) * natural / rest)))
    if procedural:
        count = round(len(base) * procedural / rest)
        kinds = PATTERNS if inside == "cifar10" else (*PATTERNS, "noise")
        parts.append(made_outliers(base.shape, count, seed, kinds).load().images)
    return ImageSet("outliers", torch.cat(parts))


def _repeated(images: Tensor, count: int) -> Tensor:
    return images.repeat(math.ceil(count / len(images)), 1, 1, 1)[:count]


def held_back(folder: Path, inside: str = "cifar10", crop: int = 0) -> dict[str, ImageSet]:
    """The held-back images, of each the square of side `crop` at its centre; `inside` is the in-distribution."""
    names = ("rimgnet", "notrimgnet") if inside == "rimgnet" else ("cifar10", "cifar100", "natural32")
    sets = {name: _centre(held_set(folder, name), crop) for name in names}
    shape = sets[inside].shape
    sets["smooth"] = smooth_noise(1000, shape, NOISE_SEED)
    sets["uniform"] = uniform_noise(500, shape, NOISE_SEED)
    return sets


def _centre(images: ImageSet, side: int) -> ImageSet:
    margin = (images.shape[1] - side) // 2 if side else 0
    return ImageSet(images.name, images.images[..., margin:, margin:][..., : side or None, : side or None].contiguous())


def test_sets(folder: Path) -> dict[str, ImageSet]:
    """The test sets; `cifar10` is the in-distribution."""
    sets = {name: load(folder, name, "test") for name in ("cifar10", "cifar100", "svhn", "textures", "places")}
    sets["smooth"] = smooth_noise(1000, SHAPE, 0)
    sets["uniform"] = uniform_noise(1000, SHAPE, 0)
    return sets
