"""Write aside, then rename: a reader, or a run that is killed, never meets half a file. And one writer at a time."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prood.errors import AlreadyThere, Busy


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes `path`'s place, on failure it is removed.

    A link stays one, and what it points to is replaced.
    """
    check(path)
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Containers on several machines may all have the same process id, and share a folder.
    aside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(3).hex()}.part")
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
def locked(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Keep other processes from what they would do under the lock of `path`, which need not exist.

    If another has the lock, wait, or raise `Busy` with the message `busy`. The lock is on an empty file beside `path`
    named `.NAME.lock`, which is removed afterwards. A kill leaves the file behind, but not the lock.
    """
    import filelock  # which takes as long as everything else that `import prood` does

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=-1 if busy is None else 0, poll_interval=0.01)
    except filelock.Timeout:
        raise Busy(busy) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
            raise
    try:
        yield
    finally:
        with suppress(OSError):  # where this fails, `release` removes it; who waits for it then opens a new one
            os.unlink(lock.lock_file)
        lock.release()


def check(path: Path) -> None:
    """Refuse a path that a file cannot take the place of: a folder, or a device such as /dev/stdout."""
    if path.exists() and not path.is_file():
        raise AlreadyThere(f"{path} is {'a folder' if path.is_dir() else 'a device'}: give the name of a file")


def write_bytes(path: Path, content: bytes) -> None:
    """Tensors, too: what safetensors' save_file puts beside a file while it writes, a kill leaves there."""
    with replacing(path) as aside:
        aside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """In UTF-8; a name on disk may be bytes other than text, which are kept."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")
