"""`made:COUNT`: outliers for those who have none, from nothing and from the in-distribution itself.

A model trained against these alone knows patterns and noise; real photographs of other things teach it more. An image
is a function of (seed, index) and of the in-distribution, so a small set is the beginning of a bigger one.

| kind | what it is |
|---|---|
| spectra | noise whose amplitudes fall as 1/f^α, α ~ U[0, 3] |
| gratings | three waves, half of them with hard edges |
| gradients | planes in random directions, with a little noise |
| tiles | squares of one colour each |
| noise | a colour with uniform or Gaussian noise on each pixel, or with pixels that are black or white |
| rescaled | an image of the in-distribution from close up or from afar, as `Augment.rescaled` shows it |
| shuffled | an image of the in-distribution in 4 to 64 pieces that have changed places |

Gaussian-filtered noise is not among them: it is what the test set `smooth` consists of.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from prood.data.augment import Augment
from prood.data.images import Shape, fingerprint
from prood.data.order import generator
from prood.data.parallel import by_all_cores
from prood.data.sources import like_source
from prood.data.stored import Images, Reader, StoredSet
from prood.errors import BadValue

PATTERNS = ("spectra", "gratings", "gradients", "tiles")
KINDS = (*PATTERNS, "noise", "rescaled", "shuffled")
_FROM_INSIDE = ("rescaled", "shuffled")
_AUGMENT = Augment(rescaled=1)
_MADE = int.from_bytes(b"made")


def made_outliers(like: Images | Shape, count: int, seed: int, kinds: Sequence[str] = KINDS) -> StoredSet:
    """`count` images of these kinds in turn, made when they are read, of the shape of the set `like`.

    With a shape instead of a set, the kinds that are made of the in-distribution are left out. Where that is a texture,
    its shuffled pieces may well belong to it: leave the kind "shuffled" out then.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise BadValue(f"there are no made outliers of the kind {unknown[0]!r}: choose from {', '.join(KINDS)}")
    inside = None if isinstance(like, tuple) else like.prepared()
    chosen = tuple(kind for kind in KINDS if kind in kinds and not (inside is None and kind in _FROM_INSIDE))
    shape = like if isinstance(like, tuple) else like.shape
    if count < 1 or not chosen:
        raise BadValue(f"cannot make {count} outliers of the kinds {', '.join(kinds) or 'none'}: ask for at least 1")
    if len(shape) != 3 or shape[0] not in (1, 3) or min(shape[1:]) < 4:
        raise BadValue(f"cannot make outliers of shape {tuple(shape)}: give 1 or 3 channels, and sides of at least 4")
    needed = inside if any(kind in _FROM_INSIDE for kind in chosen) else None
    return StoredSet("made", Made(shape, count, seed, chosen, needed), shape)


@like_source("made", description="outliers made of patterns, noise and pieces of the in-distribution: made:COUNT")
def made(count: int, like: Images | Shape, seed: int) -> StoredSet:
    return made_outliers(like, count, seed)


@dataclass(frozen=True, eq=False)
class Made:
    """The reader of made outliers."""

    shape: Shape
    count: int
    seed: int
    kinds: tuple[str, ...]
    inside: Images | None = field(repr=False)

    def __len__(self) -> int:
        return self.count

    def read(self, row: int) -> Tensor:
        kind = self.kinds[row % len(self.kinds)]
        random = generator(self.seed, _MADE, row)
        if self.inside is not None and kind in _FROM_INSIDE:
            chosen = int(torch.randint(len(self.inside), (), generator=random))
            image = self.inside.take([chosen])
            return _rescaled(image, random) if kind == "rescaled" else _shuffled(image[0], random)
        if kind == "noise":
            return _bytes(_noise(self.shape, random))
        make = {"spectra": _spectra, "gratings": _gratings, "gradients": _gradients, "tiles": _tiles}[kind]
        planes = make(self.shape[1], self.shape[2], random)
        if kind != "tiles":  # which have a colour each already
            planes = _coloured(planes, self.shape[0], random)
        planes = planes[: self.shape[0]]
        low, high = planes.min(), planes.max()
        contrast, shift = torch.rand(2, generator=random)
        contrast = contrast.clamp_min(0.1)
        return _bytes((planes - low) / (high - low).clamp_min(1e-6) * contrast + shift * (1 - contrast))

    def read_many(self, rows: Sequence[int]) -> Tensor:
        images = torch.empty((len(rows), *self.shape), dtype=torch.uint8)
        pixels = images.numpy()
        with by_all_cores(self.read, "made outliers", len(rows)) as ordered:
            for place, image in enumerate(ordered(rows)):
                pixels[place] = image.numpy()
        return images

    def kept(self, *, make: bool) -> Reader:
        """Itself: they are made as quickly as they would be read."""
        return self

    def fingerprint(self) -> str:
        inside = None if self.inside is None else self.inside.fingerprint()
        return fingerprint("made", self.shape, self.count, self.seed, self.kinds, inside)


def _bytes(image: Tensor) -> Tensor:
    return (image.clamp(0, 1) * 255).round().to(torch.uint8)


def _coloured(planes: Tensor, channels: int, random: torch.Generator) -> Tensor:
    """Each channel a random mixture of the planes."""
    mixture = torch.randn(channels, len(planes), 1, 1, generator=random)
    coloured: Tensor = (mixture * planes).sum(1)
    return coloured


def _grid(height: int, width: int) -> tuple[Tensor, Tensor]:
    down, right = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
    return down, right


def _spectra(height: int, width: int, random: torch.Generator) -> Tensor:
    noise = torch.fft.rfft2(torch.randn(3, height, width, generator=random))
    down, right = torch.meshgrid(torch.fft.fftfreq(height), torch.fft.rfftfreq(width), indexing="ij")
    frequency = (down**2 + right**2).sqrt().clamp_min(1 / max(height, width))
    alpha = 3 * float(torch.rand((), generator=random))
    filtered: Tensor = torch.fft.irfft2(noise * frequency**-alpha, s=(height, width))
    return filtered


def _gratings(height: int, width: int, random: torch.Generator) -> Tensor:
    down, right = _grid(height, width)
    u = torch.rand(3, 3, 1, 1, generator=random)
    period = 2 + (max(height, width) - 2) * u[0] ** 2
    angle, phase = math.pi * u[1], 2 * math.pi * u[2]
    waves: Tensor = torch.sin(2 * math.pi / period * (angle.cos() * down + angle.sin() * right) + phase)
    return waves.sign() if float(torch.rand((), generator=random)) < 0.5 else waves


def _gradients(height: int, width: int, random: torch.Generator) -> Tensor:
    down, right = _grid(height, width)
    slopes = torch.randn(2, 3, 1, 1, generator=random)
    noise = torch.randn(3, height, width, generator=random) * 0.3 * torch.rand((), generator=random) ** 2
    return slopes[0] * (2 * down / (height - 1) - 1) + slopes[1] * (2 * right / (width - 1) - 1) + noise


def _tiles(height: int, width: int, random: torch.Generator) -> Tensor:
    sides = max(2, int(math.log2(min(height, width))))  # 2, 4 … up to half of the image
    side = 2 ** int(torch.randint(1, sides, (), generator=random))
    few = torch.rand(3, math.ceil(height / side), math.ceil(width / side), generator=random)
    return few.repeat_interleave(side, 1).repeat_interleave(side, 2)[:, :height, :width]


def _noise(shape: Shape, random: torch.Generator) -> Tensor:
    colour = torch.rand(shape[0], 1, 1, generator=random)
    kind, strength = (float(draw) for draw in torch.rand(2, generator=random))
    if kind < 1 / 3:
        return colour + strength * (torch.rand(shape, generator=random) - colour)
    if kind < 2 / 3:
        return colour + 0.5 * strength * torch.randn(shape, generator=random)
    pixels = torch.rand(shape[1:], generator=random)
    return torch.where(pixels < strength / 4, 0.0, torch.where(pixels > 1 - strength / 4, 1.0, colour.expand(shape)))


def _rescaled(image: Tensor, random: torch.Generator) -> Tensor:
    return _bytes(_AUGMENT.apply(image, _AUGMENT.draw(1, random, outside=True))[0])


def _shuffled(image: Tensor, random: torch.Generator) -> Tensor:
    """Pieces of a grid change places; what the grid leaves over at the borders stays."""
    most = min(8, *(side // 2 for side in image.shape[1:]))
    pieces = int(torch.randint(2, most + 1, (), generator=random))
    high, wide = image.shape[1] // pieces, image.shape[2] // pieces
    order = torch.randperm(pieces**2, generator=random).tolist()
    if order == sorted(order):
        order = order[::-1]
    changed = image.clone()
    for place, piece in enumerate(order):
        top, left = place // pieces * high, place % pieces * wide
        above, beside = piece // pieces * high, piece % pieces * wide
        changed[:, top : top + high, left : left + wide] = image[:, above : above + high, beside : beside + wide]
    return changed
