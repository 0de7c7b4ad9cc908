"""Restricted ImageNet in small: archives that `benchmarks/rimgnet.py` makes out of public repositories.

Training images have 64×64 pixels, the others 224×224. A fifth of the validation images of ImageNet, by a fixed seed and
each group's share, is the split `validation`, for choices; the rest is the split `test`. The split `without-turtles` is
the test's, without the group that has no training images.
"""

from functools import partial
from pathlib import Path

from prood.data.images import ImageSet, Shape
from prood.data.public.known import known
from prood.data.sources import load
from prood.errors import NotFound

SHARES = {"validation": 0.2, "test": 0.8}
_FOR_CHOICES = 80  # the last images of NotR.ImgNet


def _read(name: str, folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    file = folder / f"{name}-{'train' if split == 'train' else 'test'}.npz"
    if not file.is_file():
        raise NotFound(f"there is no {file}: make it with benchmarks/rimgnet.py")
    images = load(f"npz:{file}")
    chosen = images
    if name == "rimgnet" and split != "train":
        chosen = images.parted(SHARES, seed=0)["validation" if split == "validation" else "test"]
        if split == "without-turtles":
            assert chosen.labels is not None
            assert chosen.classes is not None
            chosen = chosen.select((chosen.labels != chosen.classes.index("turtle")).nonzero()[:, 0])
    elif name == "notrimgnet" and split != "train":
        rows = range(len(images))
        chosen = images.select(list(rows[-_FOR_CHOICES:] if split == "validation" else rows[:-_FOR_CHOICES]))
    return ImageSet(f"{_PUBLIC[name]}:{split}", chosen.images, chosen.labels, chosen.classes)


_PUBLIC = {"rimgnet": "rimgnet-mini", "notrimgnet": "not-rimgnet-mini", "flowers": "flowers-mini", "cars": "cars-mini"}
for _file, _name in _PUBLIC.items():
    known(_name)(partial(_read, _file))
