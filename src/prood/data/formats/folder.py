"""`folder:PATH`: a tree of pictures, the user's own or a public set's."""

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import torch
from PIL import Image
from torch import Tensor

from prood.data.formats.keeping import Own, own_set
from prood.data.formats.pictures import BILINEAR, DamagedPicture, crop, decode, fit
from prood.data.images import Shape, fingerprint
from prood.data.sources import picture_source
from prood.data.stored import Damage, StoredSet
from prood.errors import Damaged, NoAccess, NotFound, Unsupported

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")


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

    `size` says how a picture gets its shape: fitted, or cut from the centre.
    """

    root: Path
    files: Names
    shape: Shape
    size: Literal["fit", "crop"] = "fit"
    filters: tuple[Image.Resampling, ...] = (BILINEAR,)  # of several, one is drawn by a hash of the name
    cut: int = 0  # rows of pixels that are cut off at the bottom

    left_out: ClassVar = (DamagedPicture,)

    def __len__(self) -> int:
        return len(self.files)

    def title(self, row: int) -> str:
        return self.files[row]

    def read(self, row: int) -> Tensor:
        name = self.files[row]
        path = self.root / name
        image = decode(path, upright=False)
        if self.cut:
            if image.height <= self.cut:
                raise Damaged(f"the image {path} has {image.height} rows of pixels, {self.cut} of which are cut off")
            image = image.crop((0, 0, image.width, image.height - self.cut))
        draw = int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:4], "little")
        how = self.filters[draw % len(self.filters)]
        return (crop if self.size == "crop" else fit)(image, self.shape, how)

    def origin(self) -> str:
        return self._fingerprint

    def fingerprint(self) -> str:
        """Over the names, the sizes of the files and what is done to the pictures."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        sizes = _sizes(self.root, self.files)
        return fingerprint(self.files.digest(), sizes, self.shape, self.size, [int(f) for f in self.filters], self.cut)


@dataclass(frozen=True, eq=False)
class Files:
    """The user's own pictures, named relative to a folder, or anywhere."""

    root: Path
    files: Names

    def __len__(self) -> int:
        return len(self.files)

    def title(self, row: int) -> str:
        return self.files[row]

    def picture(self, row: int) -> Image.Image:
        return decode(self.root / self.files[row])

    def fingerprint(self) -> str:
        """Over the names and the sizes of the files."""
        return fingerprint(self.files.digest(), _sizes(self.root, self.files))

    def origin(self) -> str:
        """Also over when each file was changed, which moves with it to no other machine."""
        return fingerprint(self.files.digest(), torch.tensor([_stat(self.root, name) for name in self.files]))


def _sizes(root: Path, files: Names) -> Tensor:
    try:
        return torch.tensor([os.stat(os.path.join(root, name)).st_size for name in files])
    except OSError as error:
        raise NoAccess(f"cannot read the image {error.filename} ({error.strerror}): check its permissions") from error


def _stat(root: Path, name: str) -> tuple[int, int, int]:
    try:
        stat = os.stat(os.path.join(root, name))
    except OSError:
        return -1, -1, -1  # reading it will say why
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns  # the last one sees a change of permissions


@picture_source("folder", description="your own: a folder of pictures, perhaps with a subfolder for each class")
def read_folder(path: Path, shape: Shape | None = None, damaged: Damage = "refuse") -> StoredSet:
    """All pictures below `path`, sorted by name. If every one lies in a subfolder, these are the classes.

    A folder without pictures is a class like the others, so that sets with the same folders agree on the labels. With a
    `shape`, pictures of any size are fitted to it. Those that cannot be read are refused, or left out by
    `damaged="skip"`: the set's `skipped` lists them.
    """
    files = find_pictures(path)
    own = Own(Files(path, files), f"folder:{path}", os.path.abspath(path), shape)
    if any("/" not in file for file in files):
        return own_set(own, damaged)
    classes = subfolders(path)
    label = {folder: number for number, folder in enumerate(classes)}
    return own_set(own, damaged, torch.tensor([label[file.partition("/")[0]] for file in files]), classes)


def find_pictures(root: Path, *parts: str) -> Names:
    """The pictures below `root`, or below these folders in it, by name: folder by folder, by code points."""
    names = Names(name for part in parts or ("",) for name in _walk(root, part))
    if not len(names):
        raise NotFound(f"the folder {root} holds no pictures: files that end in {' '.join(ENDINGS)}")
    return names


def listed(root: Path, names: list[str], source: Path) -> Names:
    """The pictures of a published list, all of which must be there."""
    existing = set(find_pictures(root))
    if missing := [name for name in names if name not in existing]:
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
