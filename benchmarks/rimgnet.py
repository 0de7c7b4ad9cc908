"""Restricted ImageNet in small: makes the image sets rimgnet-mini, not-rimgnet-mini, flowers-mini and cars-mini.

    python benchmarks/rimgnet.py CLONES $PROOD_DATA/rimgnet-mini

CLONES is a folder with clones of these public repositories, by the names after the slash (bare clones are enough):
    Deo0330/split_minidataset                                 mini-ImageNet, 100 classes × 600, 84×84
    seshuad/IMagenet                                          Tiny ImageNet, 200 classes × 500, 64×64
    ndb796/Small-ImageNet-Validation-Dataset-1000-Classes     5 validation images of each of 1,000 classes
    3ba2ii/Flower-Classifier                                  Flowers-102
    cyizhuo/Stanford-Cars-dataset                             Stanford Cars

The second folder gets uint8 NCHW archives with `images` and, of the in-distribution, `labels` and `classes`:
    rimgnet-train.npz      64×64, the paper's nine groups of animals except turtles, which neither source has
    notrimgnet-train.npz   64×64, classes of the same two sources that belong to no group
    rimgnet-test.npz       224×224, ImageNet validation images of all nine groups (shorter side 256, centre crop)
    notrimgnet-test.npz    224×224, 480 validation images of classes in no group; the last 80 are for choices
    flowers-test.npz, cars-test.npz   224×224, 400 images each, as many as the paper takes

Training images are shrunk with a filter drawn for each, in and out alike, so that no filter gives a side away. A
centre crop of 224 that is averaged by 4 has the geometry of a 56×56 crop of a 64×64 training image.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from prood.data.public.known import GROUPS

NAMES = list(GROUPS)
FILTERS = [
    Image.Resampling.BOX,
    Image.Resampling.BILINEAR,
    Image.Resampling.HAMMING,
    Image.Resampling.BICUBIC,
    Image.Resampling.LANCZOS,
]
EACH, FOR_CHOICES = 400, 80
SOURCES = (  # of training images: repository, folder, and where in a path the class stands
    ("split_minidataset", "train", 1),
    ("split_minidataset", "val", 1),
    ("IMagenet", "tiny-imagenet-200/train", 2),
)
VALIDATION = "Small-ImageNet-Validation-Dataset-1000-Classes"
Pixels = NDArray[np.uint8]


def git(clone: Path, *words: str) -> list[str]:
    place = clone if (clone / "HEAD").is_file() else clone / ".git"
    return ["git", f"--git-dir={place}", *words]


def listing(clone: Path, *under: str) -> list[str]:
    command = git(clone, "ls-tree", "-r", "-z", "--name-only", "HEAD", *under)
    out = subprocess.run(command, capture_output=True, check=True).stdout
    return [name for name in out.decode().split("\0") if name.lower().endswith((".jpg", ".jpeg"))]


def contents(clone: Path, names: list[str]) -> Iterator[bytes]:
    """The bytes of these files, one after the other, through one git process."""
    with subprocess.Popen(git(clone, "cat-file", "--batch"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name in names:
            process.stdin.write(f"HEAD:{name}\n".encode())
            process.stdin.flush()
            size = int(process.stdout.readline().split()[-1])
            yield process.stdout.read(size)
            process.stdout.read(1)
        process.stdin.close()


def small(raw: bytes, random: np.random.RandomState) -> Pixels:
    image = Image.open(io.BytesIO(raw)).convert("RGB")
    if image.size != (64, 64):
        image = image.resize((64, 64), FILTERS[random.randint(len(FILTERS))])
    return np.asarray(image).transpose(2, 0, 1)


def large(raw: bytes) -> Pixels:
    image = Image.open(io.BytesIO(raw)).convert("RGB")
    scale = 256 / min(image.size)
    size = max(224, round(image.width * scale)), max(224, round(image.height * scale))
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    return np.asarray(image.crop((left, top, left + 224, top + 224))).transpose(2, 0, 1)


def write(file: Path, images: list[Pixels], labels: list[int] | None = None) -> None:
    more: dict[str, Any] = {} if labels is None else {"labels": np.array(labels), "classes": np.array(NAMES)}
    np.savez(file, images=np.stack(images), **more)
    print(file.name, len(images), *(f"{name} {labels.count(i)}" for i, name in enumerate(NAMES)) if labels else "")


def write_training(clones: Path, out: Path, group: dict[int, int], number: dict[str, int]) -> None:
    random = np.random.RandomState(0)
    inside: list[Pixels] = []
    outside: list[Pixels] = []
    labels: list[int] = []
    for repository, under, depth in SOURCES:
        names = listing(clones / repository, under)
        chosen = [(name, group.get(number.get(name.split("/")[depth], -1))) for name in names]
        keep = [(name, label) for name, label in chosen if label is not None or random.rand() < 0.3]
        found = contents(clones / repository, [name for name, _ in keep])
        for (_, label), raw in zip(keep, found, strict=True):
            (outside if label is None else inside).append(small(raw, random))
            labels += [] if label is None else [label]
    order = random.permutation(len(inside))
    write(out / "rimgnet-train.npz", [inside[i] for i in order], [labels[i] for i in order])
    write(out / "notrimgnet-train.npz", [outside[i] for i in random.permutation(len(outside))])


def main(clones: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    validation = clones / VALIDATION
    index = json.loads(next(contents(validation, ["imagenet_class_index.json"])))
    number = {entry[0]: int(key) for key, entry in index.items()}
    group = {n: place for place, (first, last) in enumerate(GROUPS.values()) for n in range(first, last + 1)}
    write_training(clones, out, group, number)
    known = [(name, group.get(int(name.split("/")[1]))) for name in listing(validation, "ILSVRC2012_img_val_subset")]
    mine = [(name, label) for name, label in known if label is not None]
    images = [large(raw) for raw in contents(validation, [name for name, _ in mine])]
    write(out / "rimgnet-test.npz", images, [label for _, label in mine])
    others = [name for name, label in known if label is None]
    others = [others[i] for i in np.random.RandomState(1).permutation(len(others))[: EACH + FOR_CHOICES]]
    write(out / "notrimgnet-test.npz", [large(raw) for raw in contents(validation, others)])
    for repository, under, name in (
        ("Flower-Classifier", "flowers", "flowers"),
        ("Stanford-Cars-dataset", "test", "cars"),
    ):
        names = listing(clones / repository, under)
        names = [names[i] for i in np.random.RandomState(2).permutation(len(names))[:EACH]]
        write(out / f"{name}-test.npz", [large(raw) for raw in contents(clones / repository, names)])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
