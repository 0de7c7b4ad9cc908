"""Unpacking archives that somebody else made: nothing leaves the folder, and nothing but files and folders is made.

Refused are absolute paths, `..`, links of either kind, devices and pipes. Files get the mode 0644 and folders 0755. Of
a name that comes twice the last one stays, as with `tar`. We do this ourselves, as not every Python 3.11 has tarfile's
filters, and as tarfile takes a header cut short for the end of the archive.
"""

import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, cast

from prood.errors import Damaged, ProodError

ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
_CHUNK = 1 << 20
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


def is_archive(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def unpack(archive: Path, folder: Path, *, limit: int | None = None) -> None:
    """Unpack a tar, perhaps gzipped, or a zip into a folder, which is made if it is not there.

    It may hold at most `limit` bytes: by default 50 times the archive's own size or a gigabyte, whichever is more. That
    is more than images ever shrink by, and stops a small file from filling the disk.
    """
    limit = max(50 * archive.stat().st_size, 10**9) if limit is None else limit
    target = _Target(archive, folder, limit)
    try:
        (_unzip if archive.name.lower().endswith(".zip") else _untar)(archive, target)
    except _DAMAGE as error:
        raise target.fault(f"is damaged or cut short ({error})") from None
    # zipfile's words for what it cannot do: an unknown method of compression, or a password.
    except (NotImplementedError, RuntimeError) as error:
        raise target.fault(f"is of a kind that cannot be unpacked ({error})") from None


class _Target:
    """The folder that an archive is unpacked into, and the bytes that may still go there."""

    def __init__(self, archive: Path, folder: Path, limit: int) -> None:
        self.archive, self.folder, self.limit, self.left = archive, folder, limit, limit
        _make_folder(folder)

    def fault(self, what: str) -> ProodError:
        return Damaged(f"the archive {self.archive.name} {what}: it was not used")

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise self.fault(f"is suspiciously big when unpacked (more than {self.limit:,} bytes)")

    def place(self, member: str) -> Path:
        """Where a member goes. A backslash separates folders, as it does on the machines that write it."""
        name = member.replace("\\", "/")
        parts = PurePosixPath(name).parts
        if name.startswith("/") or PureWindowsPath(name).drive or ".." in parts or "\0" in name:
            raise self.fault(f"holds {member!r}, a path that leads out of the folder")
        return self.folder.joinpath(*parts)

    def make_folder(self, member: str) -> None:
        try:
            _make_folder(self.place(member))
        except (FileExistsError, NotADirectoryError):
            raise self.fault(f"holds {member!r}, a folder in the place of a file") from None

    def write(self, member: str, read: Callable[[int], bytes], size: int) -> None:
        path = self.place(member)
        if path == self.folder or path.is_dir():
            raise self.fault(f"holds {member!r}, a file in the place of a folder")
        self.make_folder(str(PurePosixPath(member.replace("\\", "/")).parent))
        path.unlink(missing_ok=True)
        with path.open("xb") as file:  # never through something that is there already
            while size:
                chunk = read(min(size, _CHUNK))
                if not chunk:
                    raise EOFError(f"{member!r} is too short")
                file.write(chunk)
                size -= len(chunk)
        path.chmod(0o644)


def _make_folder(path: Path) -> None:
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir()
        path.chmod(0o755)


class _Forward:
    """What tarfile reads from: never backwards, and every byte is counted, also those of headers and of padding."""

    def __init__(self, file: IO[bytes], target: _Target) -> None:
        self.file, self.target, self.position, self.last = file, target, 0, b""

    def read(self, size: int) -> bytes:
        self.target.spend(size)  # before it is read: a header may claim to be bigger than the memory
        self.last = self.file.read(size)
        self.position += len(self.last)
        return self.last

    def tell(self) -> int:
        return self.position

    def seek(self, position: int) -> None:
        while self.position < position and self.read(min(position - self.position, _CHUNK)):
            pass


def _untar(archive: Path, target: _Target) -> None:
    with archive.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if zipped else raw
        stream = _Forward(file, target)
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
            while (member := tar.next()) is not None:
                if member.isdir():
                    target.make_folder(member.name)
                elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    target.write(member.name, stream.read, member.size)
                else:
                    raise target.fault(f"holds {member.name!r}, which is neither a plain file nor a folder")
                tar.members = []  # type: ignore[attr-defined]  # or it would remember a million of them
        if stream.last != bytes(tarfile.BLOCKSIZE):
            raise EOFError("it has no end")
        while file.read(_CHUNK):  # to the end, where gzip has its checksum
            target.spend(_CHUNK)


def _unzip(archive: Path, target: _Target) -> None:
    with zipfile.ZipFile(archive) as zipped:
        for member in zipped.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.filename.replace("\\", "/").endswith("/"):
                target.make_folder(member.filename)
            elif kind in (0, stat.S_IFREG):
                target.spend(member.file_size)
                with zipped.open(member) as file:  # which compares the checksum with the last byte
                    target.write(member.filename, file.read, member.file_size)
            else:
                raise target.fault(f"holds {member.filename!r}, which is neither a plain file nor a folder")
