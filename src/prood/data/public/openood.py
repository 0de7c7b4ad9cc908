"""OpenOOD v1.5 on CIFAR: its image lists as sets, and which of them are near and far.

`openood-cifar10:test` is the in-distribution, `openood-cifar10:svhn` one of the out-distributions. The lists say which
images count: without those that validation took, and without classes that the in-distribution has. They are read from
`openood/benchmark_imglist` in the data folder, or from where the package pytorch-ood keeps them; images from
`openood/images_classic`, or from `openood` itself, which pytorch-ood calls the root.

Zhang et al., OpenOOD v1.5: Enhanced Benchmark for Out-of-Distribution Detection, 2023 (arXiv 2306.09301).
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prood.data.formats import reading
from prood.data.formats.folder import Names, Tree
from prood.data.formats.pictures import BILINEAR, decode
from prood.data.images import Shape
from prood.data.public.known import known
from prood.data.stored import StoredSet
from prood.errors import Damaged, NotFound, UnknownName

FAR = ("mnist", "svhn", "texture", "places365")
SHAPE = (3, 32, 32)
KINDS = {
    "cifar10": ("cifar10",),
    "cifar100": ("cifar100",),
    "tin": ("tin", "tiny-imagenet", "natural32"),
    "mnist": ("mnist",),
    "svhn": ("svhn",),
    "texture": ("texture", "textures"),
    "places365": ("places365", "places", "natural32"),
}
"""By list, the sets of ours whose images are of the same kind; natural32 has Tiny ImageNet and MiniPlaces in it."""


@dataclass(frozen=True)
class Benchmark:
    """An in-distribution, and its out-distributions in two groups."""

    name: str
    near: tuple[str, ...]
    far: tuple[str, ...] = FAR

    @property
    def inside(self) -> str:
        return f"{self.name}:test"

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The names of the sets of each group."""
        pairs = (("near", self.near), ("far", self.far))
        return {group: tuple(f"{self.name}:{one}" for one in sets) for group, sets in pairs}

    @property
    def outside(self) -> tuple[str, ...]:
        return tuple(name for names in self.groups.values() for name in names)


BENCHMARKS = {
    one.name: one
    for one in (Benchmark("openood-cifar10", ("cifar100", "tin")), Benchmark("openood-cifar100", ("cifar10", "tin")))
}


def benchmark(name: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise UnknownName(f"there is no benchmark {name!r}: choose one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def seen_in(outside: str, trained_on: Iterable[str]) -> list[str]:
    """The training sets with images of the same kind as this out-distribution."""
    kinds = KINDS.get(outside.partition(":")[2], ())
    return [name for name in trained_on if _kind(name) in kinds]


def _kind(name: str) -> str:
    """'natural32' of natural32:train and of mosaic:data/natural32/train."""
    source, _, rest = name.partition(":")
    parts = [part for part in PurePosixPath(rest).parts if part not in ("train", "test", "/")]
    return parts[-1] if source in ("mosaic", "folder", "npz", "csv", "hf") and parts else source


class Listed(Tree):
    """As OpenOOD's own preprocessing: in colour, the shorter side to 32 with a bilinear filter, and the centre."""

    def read(self, row: int) -> Tensor:
        image = decode(self.root / self.files[row], upright=False).convert("RGB")
        _, height, width = self.shape
        if (image.width, image.height) != (width, height):
            image = _centre(_shorter(image, height), width, height)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _shorter(image: Image.Image, side: int) -> Image.Image:
    short, long = sorted(image.size)
    size = (side, int(side * long / short))
    return image.resize(size if image.width <= image.height else size[::-1], BILINEAR)


def _centre(image: Image.Image, width: int, height: int) -> Image.Image:
    left, top = round((image.width - width) / 2.0), round((image.height - height) / 2.0)
    return image.crop((left, top, left + width, top + height))


def read_list(name: str, folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    """The images of a list, in its order; labels and names of classes if it is the in-distribution's."""
    inside = name.removeprefix("openood-")
    file = _lists(folder) / inside / f"test_{inside if split == 'test' else split}.txt"
    with reading(f"the list {file}", "get OpenOOD's benchmark_imglist again"):
        lines = [line.split(" ", 1) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        numbers = [int(label) for _, label in lines]
        names = [path for path, _ in lines]
    root = folder / "images_classic" if (folder / "images_classic").is_dir() else folder
    if not names:
        raise Damaged(f"the list {file} is empty: get OpenOOD's benchmark_imglist again")
    for path in names:
        if os.path.isabs(path) or os.pardir in PurePosixPath(path).parts:
            raise Damaged(f"the list {file} leads outside of {root}, to {path}: get it again")
    if missing := [path for path in names if not (root / path).is_file()]:
        fault = f"{file} lists {missing[0]} ({len(missing)} missing of {len(names)}), which {root} lacks"
        raise NotFound(f"{fault}: unpack OpenOOD's archive of {PurePosixPath(missing[0]).parts[0]} there")
    tree = Listed(root, Names(names), SHAPE)
    if split != "test":
        return StoredSet(f"{name}:{split}", tree, SHAPE)
    return StoredSet(f"{name}:test", tree, SHAPE, torch.tensor(numbers), _classes(names, numbers))


def _lists(folder: Path) -> Path:
    """Where the lists are: with the images, or in torch's folder, where pytorch-ood puts them."""
    own = folder / "benchmark_imglist"
    other = Path(torch.hub.get_dir()) / "openood_benchmark_imglist" / "benchmark_imglist"
    if own.is_dir() or not other.is_dir():
        return own
    return other


def _classes(names: list[str], numbers: list[int]) -> tuple[str, ...] | None:
    """The folders of the classes by number, where each class has one folder and none is missing."""
    found = sorted({(number, PurePosixPath(name).parent.name) for number, name in zip(numbers, names, strict=True)})
    return tuple(name for _, name in found) if [number for number, _ in found] == [*range(len(found))] else None


for _name in BENCHMARKS:
    known(_name)(partial(read_list, _name))
