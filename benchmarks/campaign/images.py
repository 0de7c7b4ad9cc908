"""The campaign's images: sets as arrays, what is held back of them, and made textures."""

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

from prood.data import ImageSet, generator
from prood.data.noise import smooth_noise, uniform_noise

HELD = 2_000
HELD_SEED = 0
WAIT = 240.0  # seconds for a set that is still on its way
SHAPE = (3, 32, 32)
NOISE_SEED = 20_261  # of the held-back noise; the test sets' is 0
_TEXTURES = int.from_bytes(b"made")


def unpack(folder: Path) -> None:
    """FOLDER/SET/SPLIT-NN.webp → FOLDER/SET-SPLIT.npy, for each set whose sheets are new."""
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


def outliers(folder: Path, natural: float, procedural: float, seed: int) -> ImageSet:
    """cifar100/train with these shares of natural32 and of made textures, each repeated as often as that takes."""
    base = training_set(folder, "cifar100")
    parts = [base.images]
    rest = 1 - natural - procedural
    if natural:
        images = training_set(folder, "natural32").images
        parts.append(_repeated(images, round(len(base) * natural / rest)))
    if procedural:
        count = round(len(base) * procedural / rest)
        parts.append(made_textures(count, seed))
    return ImageSet("outliers", torch.cat(parts))


def _repeated(images: Tensor, count: int) -> Tensor:
    return images.repeat(math.ceil(count / len(images)), 1, 1, 1)[:count]


def held_back(folder: Path) -> dict[str, ImageSet]:
    """The held-back images; `cifar10` is the in-distribution."""
    sets = {name: held_set(folder, name) for name in ("cifar10", "cifar100", "natural32")}
    sets["smooth"] = smooth_noise(1000, SHAPE, NOISE_SEED)
    sets["uniform"] = uniform_noise(500, SHAPE, NOISE_SEED)
    return sets


def test_sets(folder: Path) -> dict[str, ImageSet]:
    """The test sets; `cifar10` is the in-distribution."""
    sets = {name: load(folder, name, "test") for name in ("cifar10", "cifar100", "svhn", "textures", "places")}
    sets["smooth"] = smooth_noise(1000, SHAPE, 0)
    sets["uniform"] = uniform_noise(1000, SHAPE, 0)
    return sets


def made_textures(count: int, seed: int) -> Tensor:
    """Images that no camera took: noise of a random spectrum, gratings and their products, gradients, tiles.

    Gaussian-filtered noise is not among them: it is what one of the test sets consists of.
    """
    random = generator(seed, _TEXTURES)
    made = torch.empty(count, *SHAPE)
    for start in range(0, count, 2_000):
        rows = min(2_000, count - start)
        kinds = torch.stack(
            [_spectral(rows, random), _gratings(rows, random), _ramps(rows, random), _tiles(rows, random)]
        )
        chosen = torch.randint(0, len(kinds), (rows,), generator=random)
        images = kinds[chosen, torch.arange(rows)]
        low = images.amin((1, 2, 3), keepdim=True)
        images = (images - low) / (images.amax((1, 2, 3), keepdim=True) - low).clamp_min(1e-6)
        contrast = torch.rand(rows, 1, 1, 1, generator=random).clamp_min(0.1)
        shift = torch.rand(rows, 1, 1, 1, generator=random) * (1 - contrast)
        made[start : start + rows] = images * contrast + shift
    return (made * 255).round().to(torch.uint8)


def _colours(grey: Tensor, random: torch.Generator) -> Tensor:
    """One or three planes as a colour image: planes mixed by a random matrix."""
    mix = torch.randn(len(grey), 3, grey.shape[1], 1, 1, generator=random)
    return (mix * grey[:, None]).sum(2)


def _spectral(rows: int, random: torch.Generator) -> Tensor:
    """Noise whose amplitudes fall as 1/f^α, α ~ U[0, 3]."""
    noise = torch.randn(rows, 3, 32, 32, generator=random)
    down, right = torch.meshgrid(torch.fft.fftfreq(32), torch.fft.rfftfreq(32), indexing="ij")
    frequency = (down**2 + right**2).sqrt().clamp_min(1 / 32)
    alpha = 3 * torch.rand(rows, 1, 1, 1, generator=random)
    return _colours(torch.fft.irfft2(torch.fft.rfft2(noise) * frequency**-alpha, s=(32, 32)), random)


def _waves(rows: int, random: torch.Generator) -> Tensor:
    down, right = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    period = 2 + 30 * torch.rand(rows, 3, 1, 1, generator=random) ** 2
    angle = math.pi * torch.rand(rows, 3, 1, 1, generator=random)
    phase = 2 * math.pi * torch.rand(rows, 3, 1, 1, generator=random)
    return torch.sin(2 * math.pi / period * (angle.cos() * down + angle.sin() * right) + phase)


def _gratings(rows: int, random: torch.Generator) -> Tensor:
    """Waves, half of them with hard edges."""
    waves = _waves(rows, random)
    hard = torch.rand(rows, 1, 1, 1, generator=random) < 0.5
    return _colours(torch.where(hard, waves.sign(), waves), random)


def _ramps(rows: int, random: torch.Generator) -> Tensor:
    """Gradients in a random direction with a little noise."""
    down, right = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
    slopes = torch.randn(rows, 3, 2, 1, 1, generator=random)
    noise = torch.randn(rows, 3, 32, 32, generator=random) * 0.3 * torch.rand(rows, 1, 1, 1, generator=random) ** 2
    return _colours(slopes[:, :, 0] * down + slopes[:, :, 1] * right + noise, random)


def _tiles(rows: int, random: torch.Generator) -> Tensor:
    """Squares of 2 to 16 pixels, each of one colour."""
    made = torch.empty(rows, 3, 32, 32)
    for part in torch.arange(rows).chunk(4):
        side = int(2 ** torch.randint(1, 5, (), generator=random))
        few = torch.rand(len(part), 3, 32 // side, 32 // side, generator=random)
        made[part] = few.repeat_interleave(side, 2).repeat_interleave(side, 3)
    return made
