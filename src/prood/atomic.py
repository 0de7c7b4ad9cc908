"""Write aside, then rename: a reader, or a run that is killed, never meets half a file. And one writer at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prood.errors import AlreadyThere

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes `path`'s place, on failure it is removed.

    A link stays one, and what it points to is replaced.
    """
    check(path)
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(aside, path)
    except OSError as error:
        if error.errno is not None:  # a disk that is full does not say which file it was
            error.filename = error.filename or str(path)
        raise
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep other processes from what they would do under the same lock, where the system has locks for that.

    If another has it, wait, or raise BlockingIOError.
    """
    if fcntl is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)  # of the folder itself, so that no file is left behind
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(lock)


def check(path: Path) -> None:
    """Refuse a path that a file cannot take the place of: a folder, or a device such as /dev/stdout."""
    if path.exists() and not path.is_file():
        raise AlreadyThere(f"{path} is {'a folder' if path.is_dir() else 'a device'}: give the name of a file")


def write_bytes(path: Path, content: bytes) -> None:
    """Tensors, too: what safetensors' save_file puts beside a file while it writes, a kill leaves there."""
    with replacing(path) as aside:
        aside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")
