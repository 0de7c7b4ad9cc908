"""Pictures in a tar archive, as WebDataset writes them, read from front to end."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

from prood.data.formats.folder import ENDINGS
from prood.data.formats.members import INSIDE, Entry
from prood.data.formats.pictures import LARGEST
from prood.errors import first_line
from prood.scoring.pictures import Fault

ARCHIVES = (".tar", ".tar.gz", ".tgz")


def pictures(path: str, size: int) -> Iterator[tuple[list[tuple[str, int | None]], list[Any]]]:
    """All members that are pictures by their names. Where the archive is cut short, a last row says so."""
    names: list[tuple[str, int | None]] = []
    images: list[Any] = []
    fault: Fault | None = None
    held = 0  # bytes
    try:
        with tarfile.open(path, "r|*", tarinfo=Entry) as archive:
            for member in archive:
                if not member.isfile() or not member.name.lower().endswith(ENDINGS):
                    continue
                names.append((f"{path}{INSIDE}{member.name}", None))
                if member.size > LARGEST:  # a few kilobytes may unpack to as much as they like
                    images.append(Fault(f"the picture has {member.size:,} bytes: at most {LARGEST:,} are read"))
                else:
                    file = archive.extractfile(member)
                    images.append(b"" if file is None else file.read())
                    held += member.size
                if len(names) == size or held > LARGEST:
                    yield names, images
                    names, images, held = [], [], 0
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        fault = Fault(f"the archive {path} is damaged here ({first_line(error)}): what follows is lost")
    if fault is not None:
        names.append((path, None))
        images.append(fault)
    if names:
        yield names, images
