"""`hf:FOLDER`: a set that the package `datasets` of Hugging Face has saved with `save_to_disk`."""

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from prood.data.formats import reading
from prood.data.formats.keeping import Own, own_set
from prood.data.formats.pictures import DamagedPicture, decode
from prood.data.formats.table import numbered
from prood.data.images import Shape, fingerprint
from prood.data.sources import picture_source
from prood.data.stored import Damage, StoredSet
from prood.errors import Damaged, MissingPackage, NotFound


@picture_source("hf", description="your own: a folder that Hugging Face's `datasets` wrote with save_to_disk")
def read_datasets(path: Path, shape: Shape | None = None, damaged: Damage = "refuse") -> StoredSet:
    """The images of the first column of images, with the labels of the first column of classes, or of `label`."""
    found = find_spec("datasets")
    if found is None or found.origin is None:  # a folder of this name passes for a package without an origin
        raise MissingPackage(f"reading hf:{path} needs the package datasets: pip install datasets")
    if (path / "dataset_dict.json").is_file():
        splits = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
        raise NotFound(f"{path} holds several splits: name one, as hf:{path}/{splits[0] if splits else 'train'}")
    if not (path / "state.json").is_file():
        raise NotFound(f"{path} is not a set that datasets wrote with save_to_disk: give a folder that it wrote")
    rows = Rows(path)
    return own_set(Own(rows, f"hf:{path}", os.path.abspath(path), shape), damaged, *_labels(rows, path))


@dataclass(frozen=True, eq=False)
class Rows:
    """The images of a saved set; each process opens it when it first reads."""

    folder: Path

    def __len__(self) -> int:
        return len(self.table)

    def title(self, row: int) -> str:
        return f"row {row}"

    def picture(self, row: int) -> Image.Image:
        name = f"in row {row} of {self.folder}"
        cell = self._images[row][self.column]
        if cell is None or (cell["bytes"] is None and cell["path"] is None):
            raise DamagedPicture(name, "the row has none")
        return decode(Path(cell["path"]) if cell["bytes"] is None else cell["bytes"], name)

    @cached_property
    def table(self) -> Any:
        import datasets

        with reading(f"the set {self.folder}", "save it again with save_to_disk"):
            return datasets.load_from_disk(str(self.folder))

    @cached_property
    def column(self) -> str:
        import datasets

        features = self.table.features
        found = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
        if not found:
            hint = "name the one with images in cast_column(NAME, datasets.Image()) and save it again"
            raise Damaged(f"{self.folder} has the columns {', '.join(features)}, but no column with images: {hint}")
        return str(found[0])

    @cached_property
    def _images(self) -> Any:
        import datasets

        only = self.table.select_columns([self.column])
        return only.cast_column(self.column, datasets.Image(decode=False))

    def origin(self) -> str:
        stats = [file.stat() for file in self._files]
        times = torch.tensor([(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats])
        return fingerprint([file.name for file in self._files], times, self.column)

    def fingerprint(self) -> str:
        return fingerprint([(file.name, file.stat().st_size) for file in self._files], self.column)

    @property
    def _files(self) -> list[Path]:
        return sorted(file for file in self.folder.iterdir() if file.is_file())

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}


def _labels(rows: Rows, path: Path) -> tuple[Tensor | None, tuple[str, ...] | None]:
    import datasets

    features = rows.table.features
    named = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    plain = [name for name in ("label", "labels", "class") if name in features]
    if named:
        labels = torch.tensor(rows.table.with_format(None)[named[0]][:], dtype=torch.int64)
        if bool((labels < 0).all()):  # how published sets mark test images whose labels are secret
            return None, None
        if bool((labels < 0).any()):
            raise Damaged(
                f"{int((labels < 0).sum())} of the {len(labels)} images in {path} have no label: leave them out"
            )
        return labels, tuple(features[named[0]].names)
    if plain:
        values = rows.table.with_format(None)[plain[0]][:]
        return numbered(["" if value is None else str(value) for value in values], f"{path}")
    return None, None
