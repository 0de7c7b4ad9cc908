"""Malformed uploads against a running service: no crash, no answer above 499 but "busy", and memory that stays flat.

    python benchmarks/fuzz_serve.py runs/quickstart/prood --count 10000 [--rounds 4]

Pictures (PNG, JPEG, WebP, GIF, BMP), JSON and forms are made well and then broken: bytes flipped, cut out, doubled or
put in, numbers in headers replaced. The service runs in a process of its own; its memory is read from /proc after
each tenth of the uploads; after the first, everything is warm. With several rounds the same uploads come again: what
grows in the first round alone is the room that the largest of them need, and what grows in each is lost.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np
from PIL import Image

Upload = tuple[str, str, bytes]  # path, Content-Type, body
PATHS = ("/v1/predict", "/v1/certify?eps=0.01", "/v1/far", "/v1/attack?steps=2", "/v2/models/prood/infer")
KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp"}
SIZES = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\xff\xff")
ODD = (None, True, -1, 0, 1e308, 2**70, "", "x" * 300, [], [[]], {}, {"a": []}, [None], "8/0", "nan", float("inf"))


def uploads(count: int, seed: int = 0) -> Iterator[Upload]:
    """The same for the same seed."""
    choice = random.Random(seed)
    seeds = {kind: [_picture(kind, size) for size in (1, 9, 28, 60)] for kind in KINDS}
    for _ in range(count):
        path = choice.choices(PATHS, (6, 2, 1, 1, 3))[0]
        kind = choice.choice(list(KINDS))
        picture = choice.choice(seeds[kind])
        form = choice.random()
        if path.startswith("/v2"):
            yield path, "application/json", broken_json(_infer(choice), choice)
        elif form < 0.6:
            yield (
                path,
                KINDS[choice.choice(list(KINDS))] if choice.random() < 0.1 else KINDS[kind],
                broken(picture, choice),
            )
        elif form < 0.8:
            text = base64.b64encode(broken(picture, choice) if choice.random() < 0.5 else picture).decode()
            body = {"images": [text] * choice.randint(1, 3), "eps": [0.01, 0.02], "factors": [1, 2], "steps": 3}
            yield path, "application/json", broken_json(body, choice)
        else:
            yield path, *_form(picture, choice)


def broken(content: bytes, choice: random.Random) -> bytes:
    """One to four wounds."""
    data = bytearray(content)
    for _ in range(choice.randint(1, 4)):
        at = choice.randrange(len(data) + 1)
        size = choice.choice((1, 1, 2, 4, 16, 200))
        match choice.randrange(7):
            case 0:
                data[at : at + size] = choice.randbytes(size)
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = data[at : at + size] * choice.randint(1, 3)
            case 3:
                data[at:at] = choice.randbytes(size)
            case 4:
                del data[at:]
            case 5:  # in the header, where the sizes stand
                at = choice.randrange(min(len(data), 64) + 1)
                data[at : at + 4] = choice.choice(SIZES)
            case _:
                if data:
                    data[at % len(data)] ^= 1 << choice.randrange(8)
    return bytes(data)


def broken_json(body: dict, choice: random.Random) -> bytes:
    values = dict(body)
    for key in list(values):
        match choice.randrange(6):
            case 0:
                values[key] = choice.choice(ODD)
            case 1:
                del values[key]
            case 2:
                values[f"{key}s"] = values.pop(key)
            case 3 if isinstance(values[key], list):
                values[key] = [choice.choice(ODD), *values[key]]
            case 4 if isinstance(values[key], list) and values[key] and isinstance(values[key][0], dict):
                inner = dict(values[key][0])
                inner[choice.choice(list(inner))] = choice.choice(ODD)
                values[key] = [inner]
    text = json.dumps(values).encode()
    if choice.random() < 0.1:
        text = b'{"images":' + b"[" * choice.choice((10, 5000)) + text
    return broken(text, choice) if choice.random() < 0.4 else text


def _form(picture: bytes, choice: random.Random) -> tuple[str, bytes]:
    head = b'Content-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png'
    body = (b"--edge\r\n" + head + b"\r\n\r\n" + picture + b"\r\n") * choice.randint(1, 3) + b"--edge--\r\n"
    boundary = choice.choices(("; boundary=edge", "", "; boundary="), (8, 1, 1))[0]
    return f"multipart/form-data{boundary}", broken(body, choice)


def _infer(choice: random.Random) -> dict:
    count = choice.choice((1, 2))
    data = [choice.random() for _ in range(count * 784)]
    tensor = {"name": "images", "shape": [count, 1, 28, 28], "datatype": "FP32", "data": data}
    return {"id": "1", "inputs": [tensor], "parameters": {"eps": 0.01}, "outputs": [{"name": "confidence"}]}


def _picture(kind: str, size: int) -> bytes:
    pixels = np.random.default_rng(size).integers(0, 256, (size, size + 3, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1, help="how often the same uploads come")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "prood", "serve", arguments.run, "--port", "0", "--name", "prood"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        statuses, memory = attack(server, arguments.count, arguments.seed, arguments.rounds)
    finally:
        server.terminate()
        code = server.wait(60)
    print(
        f"{arguments.count * arguments.rounds} uploads: "
        + ", ".join(f"{status}: {n}" for status, n in sorted(statuses.items()))
    )
    print(f"memory after each tenth: {', '.join(str(kib // 1024) for kib in memory)} MiB; exit code {code}")
    if code or any(status >= 500 and status != 503 for status in statuses):
        sys.exit("the service failed")


def attack(server: subprocess.Popen[str], count: int, seed: int, rounds: int) -> tuple[Counter[int], list[int]]:
    assert server.stdout is not None
    addresses = (re.search(r"^page +http://localhost:(\d+)/", line) for line in server.stdout)
    port = next(int(found[1]) for found in addresses if found)
    connection = http.client.HTTPConnection("localhost", port, timeout=60)
    statuses: Counter[int] = Counter()
    memory, start = [], time.monotonic()
    sent = chain.from_iterable(uploads(count, seed) for _ in range(rounds))
    for number, (path, kind, body) in enumerate(sent):
        connection.request("POST", path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        statuses[answer.status] += 1
        if (number + 1) % max(1, count * rounds // 10) == 0:
            memory.append(resident(server.pid))
        if answer.status >= 500:
            print(number, path, kind, answer.status, body[:60])
    print(f"{time.monotonic() - start:.0f} s")
    return statuses, memory


def resident(process: int) -> int:
    """KiB of memory that a process has."""
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


if __name__ == "__main__":
    main()
