"""Picture files whose few bytes, or many tiny parts, would keep a decoder busy for minutes."""

import re

SCANS = 100
"""A progressive JPEG has about ten. Each is a pass over all pixels, and a small file may have thousands."""
SEGMENTS = 10_000
"""A JPEG has a few dozen, at most 64 KiB each, as a PNG has chunks. Pillow walks through them one by one."""
NOTES = 32
"""Segments of a JPEG with EXIF or Photoshop's data, where one is usual. For each, Pillow copies all before it."""
PNG = b"\x89PNG\r\n\x1a\n"
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
"""Those of a JPEG with a length behind them, and the end. libjpeg walks over all others as over the pixels' bits."""


def overlong(file: bytes) -> str:
    """What is wrong with the file, or nothing."""
    if file[:2] == b"\xff\xd8" and overlong_jpeg(file):
        return f"a JPEG of more than {SCANS} scans, {NOTES} segments of EXIF data, or {SEGMENTS} in all"
    if file[:8] == PNG and overlong_png(file):
        return f"a PNG of more than {SEGMENTS} chunks"
    return ""


def overlong_jpeg(file: bytes) -> bool:
    """Whether a JPEG has too many scans up to its end; behind it a phone may keep a whole film."""
    scans, notes, place = 0, 0, 2
    for _ in range(SEGMENTS):
        marker = _MARKER.search(file, place)
        if marker is None or marker[0] == b"\xff\xd9":
            return False
        scans += marker[0] == b"\xff\xda"
        notes += file.startswith((b"Exif", b"Photoshop"), marker.end() + 2)
        if scans > SCANS or notes > NOTES:
            return True
        # The length counts its own two bytes; libjpeg takes one that is too small for these two.
        place = marker.end() + max(2, int.from_bytes(file[marker.end() : marker.end() + 2]))
    return True


def overlong_png(file: bytes) -> bool:
    """Whether a PNG has too many chunks up to its end: an empty one is twelve bytes."""
    place = len(PNG)
    for _ in range(SEGMENTS):
        if file[place + 4 : place + 8] in (b"IEND", b""):
            return False
        place += 12 + int.from_bytes(file[place : place + 4])  # length, kind and checksum
    return True
