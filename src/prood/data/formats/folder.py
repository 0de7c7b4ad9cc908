"""`folder:PATH`: a tree of pictures, the user's own or a public set's."""

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from prood.data.formats.keeping import Own, own_set
from prood.data.formats.pictures import (
    BILINEAR,
    ClosedPicture,
    DamagedPicture,
    Unreadable,
    crop,
    decode,
    fit,
    own_shape,
)
from prood.data.images import Shape, fingerprint
from prood.data.sources import picture_source
from prood.data.stored import Damage, StoredSet
from prood.errors import Damaged, Mismatch, NoAccess, NotFound, Unsupported

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")


class OtherShape(Mismatch):
    """A good picture of another shape than the first one of its set."""


class Names:
    """A fixed list of strings as one run of bytes.

    A million file names take 40 MB instead of the 90 of a list, and are pickled for a worker process in milliseconds.
    """

    def __init__(self, names: Iterable[str]) -> None:
        text, ends = bytearray(), array("q")
        for name in names:
            text += os.fsencode(name)
            ends.append(len(text))
        self._text, self._ends = bytes(text), ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return os.fsdecode(self._text[self._ends[row - 1] if row else 0 : self._ends[row]])

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def digest(self) -> str:
        return hashlib.sha256(self._ends.tobytes() + self._text).hexdigest()


@dataclass(frozen=True, eq=False)
class Tree:
    """Reads pictures below a folder, named relative to it; a damaged one is refused by name.

    `size` says how a picture gets its shape: fitted, cut from the centre, or as it is (any other is refused).
    """

    root: Path
    files: Names
    shape: Shape
    size: Literal["fit", "crop", "own"] = "fit"
    filters: tuple[Image.Resampling, ...] = (BILINEAR,)  # of several, one is drawn by a hash of the name
    cut: int = 0  # rows of pixels that are cut off at the bottom
    own: bool = False  # the user's: turned as the EXIF data say, looked at for changes, and closed files are left out

    def __len__(self) -> int:
        return len(self.files)

    @property
    def left_out(self) -> tuple[type[Unreadable], ...]:
        return (DamagedPicture, ClosedPicture) if self.own else (DamagedPicture,)

    def title(self, row: int) -> str:
        return self.files[row]

    def read(self, row: int) -> Tensor:
        name = self.files[row]
        image = self.picture(row)
        if self.cut:
            if image.height <= self.cut:
                raise Damaged(
                    f"the image {self.root / name} has {image.height} rows of pixels, {self.cut} of which are cut off"
                )
            image = image.crop((0, 0, image.width, image.height - self.cut))
        if self.size == "own":
            shape = own_shape(image)
            # A grey picture in a colour set loses nothing; a colour picture in a grey set would.
            if shape[1:] != self.shape[1:] or shape[0] > self.shape[0]:
                raise OtherShape(
                    f"the image {self.root / name} has the shape {shape}, but others have {self.shape}: to fit all of "
                    "them, write data.image = [3, 64, 64] in the recipe, shape=(3, 64, 64) in Python, or --like NAME "
                    "in 'prood data preview'"
                )
        draw = int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:4], "little")
        how = self.filters[draw % len(self.filters)]
        return (crop if self.size == "crop" else fit)(image, self.shape, how)

    def picture(self, row: int) -> Image.Image:
        path = self.root / self.files[row]
        image = decode(path, upright=self.own)
        if image.size == (1, 1):
            raise DamagedPicture(str(path), "it is a single pixel, which shows nothing")
        return image

    def fingerprint(self) -> str:
        """Over the names, the sizes of the files and what is done to the pictures."""
        return self._fingerprint

    def origin(self) -> str:
        """Of the user's own pictures also over when each was changed: they are edited, public sets are not."""
        if not self.own:
            return self._fingerprint
        stats = torch.tensor([self._stat(name) for name in self.files])
        return fingerprint(self.files.digest(), stats, self.shape, self.size, [int(f) for f in self.filters])

    def _stat(self, name: str) -> tuple[int, int, int]:
        try:
            stat = os.stat(self.root / name)
        except OSError:
            return -1, -1, -1  # reading it will say why
        return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns  # the last one sees a change of permissions

    @cached_property
    def _fingerprint(self) -> str:
        try:
            sizes = torch.tensor([os.stat(os.path.join(self.root, name)).st_size for name in self.files])
        except OSError as error:
            raise NoAccess(f"cannot read the image {error.filename}: {error.strerror}") from error
        return fingerprint(self.files.digest(), sizes, self.shape, self.size, [int(f) for f in self.filters], self.cut)


@picture_source("folder", description="your own: a folder of pictures, perhaps with a subfolder for each class")
def read_folder(path: Path, shape: Shape | None = None, damaged: Damage = "refuse") -> StoredSet:
    """All pictures below `path`, sorted by name. If every one lies in a subfolder, these are the classes.

    A folder without pictures is a class like the others, so that sets with the same folders agree on the labels. With a
    `shape`, pictures of any size are fitted to it. Those that cannot be read are refused, or left out by
    `damaged="skip"`: the set's `skipped` lists them.
    """
    files = find_pictures(path)
    name = f"folder:{path}"
    if any("/" not in file for file in files):
        return tree_set(name, path, files, shape, damaged)
    classes = subfolders(path)
    label = {folder: number for number, folder in enumerate(classes)}
    labels = torch.tensor([label[file.partition("/")[0]] for file in files])
    return tree_set(name, path, files, shape, damaged, labels, classes)


def tree_set(
    name: str,
    root: Path,
    files: Names,
    shape: Shape | None,
    damaged: Damage,
    labels: Tensor | None = None,
    classes: tuple[str, ...] | None = None,
) -> StoredSet:
    """The set of these pictures of the user's own, decoded once; without a shape it is that of the first good one."""
    tree = Tree(root, files, shape or (1, 2, 2), "fit" if shape else "own", own=True)
    if shape is None:
        tree = replace(tree, shape=_first_shape(tree))
    return own_set(Own(tree, name, os.path.abspath(root), tree.size), damaged, labels, classes)


def _first_shape(tree: Tree) -> Shape:
    fault = None
    for row in range(len(tree)):
        try:
            return own_shape(tree.picture(row))
        except Unreadable as error:
            fault = fault or error
    raise fault or NotFound(f"{tree.root} holds no pictures")


def find_pictures(root: Path, *parts: str) -> Names:
    """The pictures below `root`, or below these folders in it, by name: folder by folder, by code points."""
    names = Names(name for part in parts or ("",) for name in _walk(root, part))
    if not len(names):
        raise NotFound(f"the folder {root} holds no pictures: files that end in {' '.join(ENDINGS)}")
    return names


def listed(root: Path, names: list[str], source: Path) -> Names:
    """The pictures of a published list, all of which must be there."""
    there = set(find_pictures(root))
    if missing := [name for name in names if name not in there]:
        raise NotFound(f"{source} lists {missing[0]} ({len(missing)} missing of {len(names)}), which {root} lacks")
    if not names:
        raise NotFound(f"{source} lists no pictures")
    return Names(names)


def subfolders(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(_scan(os.fspath(folder))[1]))


def _scan(folder: str) -> tuple[list[str], list[str]]:
    """The names of the pictures and the folders in a folder; what is hidden does not count.

    A million files are one pass over the folder, without a look at each file.
    """
    files, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                # A dangling link counts, too: it is refused when it is read, not passed over.
                elif entry.name.lower().endswith(ENDINGS):
                    files.append(entry.name)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Damaged(f"cannot read the folder {folder}: {reason}") from error
    return files, folders


def _walk(root: Path, within: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    place = os.path.join(root, within) if within else os.fspath(root)
    files, folders = _scan(place)
    real = os.path.realpath(place)
    if real in above:
        raise Unsupported(f"the folder {place} is a link to a folder that contains it: remove the link")
    inside = set(folders)
    for name in sorted(files + folders):
        path = f"{within}/{name}" if within else name
        if name in inside:
            yield from _walk(root, path, (*above, real))
        else:
            yield path
