"""CIFAR-10 and CIFAR-100."""

from pathlib import Path

from prood.data.formats.cifar import read_cifar10, read_cifar100
from prood.data.images import ImageSet
from prood.data.public.known import known
from prood.data.sources import Shape


@known("cifar10")
def cifar10(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    return read_cifar10(folder, split)


@known("cifar100")
def cifar100(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    return read_cifar100(folder, split)
