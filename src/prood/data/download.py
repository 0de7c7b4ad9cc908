"""One file from the web to the disk. A download that broke off is continued, and never with the end of another file."""

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from prood.errors import Damaged, Unreachable

TIMEOUT = 30.0  # seconds without a byte
TRIES = 4  # in a row that bring nothing new
PAUSE = 1.0  # seconds before the second of them; then twice that, and so on
KEPT = "what has arrived is kept, and the same command continues there"
# Compressed on the way, the bytes and the sizes would not be those of the file.
_HEADERS = {"User-Agent": "prood (image sets for research)", "Accept-Encoding": "identity"}

Moved = Callable[[int, int | None], None]  # bytes that are here, and of how many


class NoConnection(Unreachable):
    """No connection at all, so that another way may be tried."""


class _Broken(Exception):
    """A connection that failed, at once or on the way; it may be tried again."""

    def __init__(self, why: object, *, reached: bool) -> None:
        super().__init__(str(why) or type(why).__name__)
        self.reached = reached


def download(url: str, file: Path, console: Console) -> None:
    """The file behind `url`, by way of `file`.part; a bar on a terminal, else a line."""
    part = file.with_name(f"{file.name}.part")
    say(console, f"{'continuing' if _size(part) else 'downloading'} {url}")
    name = TextColumn(file.name, markup=False)
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        _persist(url, part, lambda here, total: bar.update(task, completed=here, total=total))
    os.replace(part, file)
    part.with_suffix(".tag").unlink(missing_ok=True)


def verify(file: Path, checksum: str, console: Console) -> None:
    """Compare with "md5:…", "sha256:…" or "sha512:…", or just say the sha256; a file that differs is deleted."""
    algorithm, _, published = (checksum or "sha256:").partition(":")
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, algorithm).hexdigest()
    if not published:
        say(console, f"{file.name}: sha256 {found}; none is published to compare it with")
    elif found == published.lower():
        say(console, f"{file.name}: {algorithm} as published")
    else:
        file.unlink()
        differs = f"its {algorithm} is {found}, not {published}"
        raise Damaged(f"{file.name} is not the published file, so it was deleted: {differs}; try again")


def _persist(url: str, part: Path, moved: Moved) -> None:
    """Try until the file is whole, or until `TRIES` connections in a row have brought nothing new."""
    host, reached, tries, most = urlsplit(url).hostname, False, 0, _size(part)
    while True:
        try:
            return _attempt(url, part, moved)
        except _Broken as broken:
            reached |= broken.reached
            if not reached:
                raise NoConnection(f"{host} cannot be reached ({broken})") from None
            tries = 0 if _size(part) > most else tries + 1
            most = max(most, _size(part))
            if tries >= TRIES:
                raise Unreachable(f"the connection to {host} broke off ({broken}): {KEPT}") from None
            time.sleep(PAUSE * 2**tries)


def _attempt(url: str, part: Path, moved: Moved) -> None:
    """One request, for what is missing if there is a part and the server's word for which file it is a part of."""
    size, tag = _size(part), part.with_suffix(".tag")
    stored_tag = tag.read_text() if size and tag.exists() else ""
    asked = {"Range": f"bytes={size}-", "If-Range": stored_tag} if stored_tag else {}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=_HEADERS | asked), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and asked:  # the part is as long as the file or longer
            part.unlink()
            return _attempt(url, part, moved)
        if error.code < 500 and error.code not in (408, 429):
            raise Unreachable(f"the server answered {error.code} {error.reason} for {url}") from None
        raise _Broken(f"{error.code} {error.reason}", reached=True) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(getattr(error, "reason", error), reached=False) from None
    with response:
        total = _number(response.headers.get("Content-Length"))
        if asked and response.status == 206:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if span is None or int(span[1]) != size:
                part.unlink()
                return _attempt(url, part, moved)
            total = _number(span[2])
        else:
            size = 0
        with part.open("ab" if size else "wb") as file:
            if not size:  # only now that the old bytes are gone
                # What If-Range may carry. A weak ETag may not; without either, a broken download starts again.
                etag = response.headers.get("ETag", "")
                tag.write_text(etag if etag.startswith('"') else response.headers.get("Last-Modified", ""))
            moved(size, total)
            while chunk := _read(response):
                file.write(chunk)
                size += len(chunk)
                moved(size, total)
    if total is not None and size != total:
        raise _Broken(f"it ended at byte {size:,} of {total:,}", reached=True)
    return None


def _read(response: http.client.HTTPResponse) -> bytes:
    # Apart from the writing, where an OSError means that the disk is full.
    try:
        return response.read(1 << 16)
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(error, reached=True) from None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
