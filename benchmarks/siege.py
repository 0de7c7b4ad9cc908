"""Attacks on a running `prood serve`, one after the other, and what they do to it: memory, latency, answers, the end.

    python benchmarks/siege.py cifar10 --rounds 10

Every server is started here, on the loopback interface, with `--threads 1` and the defaults otherwise; each attack is
bounded in its number of requests and in time. A row passes if the service stayed within its promise:

- memory: the largest resident size since the start (VmHWM) below 1.5 GB;
- no 5xx other than 503 with Retry-After, which is a refusal;
- a predict beside the attack within 3 s in 99 of 100 cases (it starts every 0.1 s, each on a connection of its own);
- the end at most 2 s behind `--drain-s`, with proofs waiting;
- no request dropped while servers replace each other under load, as behind a balancer that looks at readiness.

The numbers are of the machine and of what else it has to do.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

MEMORY_MB, WAIT_S, MORE_S = 1500, 3.0, 2.0
JSON = {"Content-Type": "application/json"}


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def memory(self) -> float:
        """The most megabytes that it ever had."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def forget(self) -> None:
        """The memory is measured anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def post(self, path: str, body: bytes, headers: dict[str, str], seconds: float = 90) -> int:
        """The status; 0 where the connection failed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request("POST", path, body, headers | {"Host": "localhost"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except OSError:
            return 0
        finally:
            connection.close()

    def ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/v2/health/ready", headers={"Host": "10.0.0.1"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self, sig: int = signal.SIGTERM) -> float:
        begun = time.monotonic()
        self.process.send_signal(sig)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return time.monotonic() - begun


def start(options: argparse.Namespace, folder: Path, *words: str) -> Server:
    command = [sys.executable, "-m", "prood", "serve", options.model, "--port", "0", "--threads", "1", *words]
    log = folder / f"server-{time.monotonic_ns()}.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
    assert process.stdout is not None
    port = next(int(found[1]) for line in process.stdout if (found := re.search(r"http://localhost:(\d+)/\n", line)))
    server = Server(process, port, log)
    until = time.monotonic() + 120
    while not server.ready():
        if time.monotonic() > until or process.poll() is not None:
            sys.exit(f"the server does not become ready: {log.read_text()}")
        time.sleep(0.1)
    return server


@dataclass
class Beside:
    """A predict every 0.1 s, however long the others take."""

    server: Server
    body: bytes
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @contextmanager
    def running(self) -> Iterator[None]:
        stop, pool = threading.Event(), ThreadPoolExecutor(64)

        def one() -> None:
            begun = time.monotonic()
            self.statuses[self.server.post("/v1/predict", self.body, {"Content-Type": "image/png"})] += 1
            self.seconds.append(time.monotonic() - begun)

        def every() -> None:
            while not stop.wait(0.1):
                pool.submit(one)

        thread = threading.Thread(target=every)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            pool.shutdown()

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[int(0.99 * (len(self.seconds) - 1))] if self.seconds else float("nan")


def picture(size: int, kind: str = "PNG", mode: str = "RGB", **given: object) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((size, size)).convert(mode).save(file, kind, **given)
    return file.getvalue()


def many(count: int, send: Callable[[], int], at_once: int) -> Counter[int]:
    with ThreadPoolExecutor(at_once) as pool:
        return Counter(pool.map(lambda _: send(), range(count)))


def webp_bombs(server: Server) -> Counter[int]:
    """32 pictures of a kilobyte and 25 million pixels in each of five requests, and then one a request."""
    file = io.BytesIO()
    Image.new("RGBA", (5000, 5000)).save(file, "WEBP", lossless=True)
    body = json.dumps({"images": [base64.b64encode(file.getvalue()).decode()] * 32}).encode()
    found = many(5, lambda: server.post("/v1/predict", body, JSON), 5)
    return found + many(5, lambda: server.post("/v1/predict", file.getvalue(), {"Content-Type": "image/webp"}), 5)


def text_in_pixels(server: Server) -> Counter[int]:
    """A string of 1.6 MB among the pixels, which NumPy would make of every entry."""
    model = get(server, "/v1/model")
    channels, height, width = model["image"]
    image = [[[0.5] * width for _ in range(height)] for _ in range(channels)]
    image[0][0][0] = "x" * 1_600_000
    flat = ["x" * 3_000_000, *[0.5] * (channels * height * width - 1)]
    tensor = {"name": "images", "shape": [1, *model["image"]], "datatype": "FP32", "data": flat}
    v1, v2 = json.dumps({"images": [image]}).encode(), json.dumps({"inputs": [tensor]}).encode()
    found = many(4, lambda: server.post("/v1/predict", v1, JSON), 4)
    return found + many(4, lambda: server.post(f"/v2/models/{model['name']}/infer", v2, JSON), 4)


def long_json(server: Server) -> Counter[int]:
    """8 MB of empty lists."""
    body = b'{"images": [' + b"[]," * 2_700_000 + b"[]]}"
    return many(8, lambda: server.post("/v1/predict", body, JSON), 4)


def png_chunks(server: Server) -> Counter[int]:
    """A PNG of 683,000 empty chunks."""
    file, empty = picture(32), struct.pack(">I", 0) + b"teXt" + struct.pack(">I", zlib.crc32(b"teXt"))
    body = file[:-12] + 683_000 * empty + file[-12:]
    return many(8, lambda: server.post("/v1/predict", body, {"Content-Type": "image/png"}), 4)


def held_bodies(server: Server) -> Counter[int]:
    """100 bodies of almost 8 MiB, whose last byte does not come for ten seconds."""
    connections, length = [], 8 * 2**20 - 1
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: {length}\r\n\r\n"
    )
    statuses: Counter[int] = Counter()
    for _ in range(100):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        connections.append(connection)
        with suppress(OSError):  # refused meanwhile: the answer lies there
            connection.sendall(head.encode() + bytes(length - 1))
    time.sleep(10)
    for connection in connections:
        with suppress(OSError):
            connection.sendall(b"\0")
        try:
            statuses[int(connection.recv(100).split(b" ", 2)[1])] += 1
        except (OSError, IndexError):
            statuses[0] += 1
        connection.close()
    return statuses


def connections(server: Server) -> Counter[int]:
    """3,000 connections that send nothing, for five seconds."""
    found = []
    for _ in range(3000):
        try:
            found.append(socket.create_connection(("127.0.0.1", server.port), timeout=5))
        except OSError:
            break
    time.sleep(5)
    for connection in found:
        connection.close()
    return Counter({200: len(found)})


def worst_certify(server: Server) -> Counter[int]:
    """The largest certify that is accepted, as a client finds it: images are halved while it takes too long."""
    file = base64.b64encode(picture(32)).decode()
    for count in (32, 16, 8, 4, 2, 1):
        body = json.dumps({"images": [file] * count, "eps": [0.01]}).encode()
        statuses = many(1, lambda body=body: server.post("/v1/certify", body, JSON), 1)  # type: ignore[misc]
        if 413 not in statuses:
            print(f"           the worst allowed certify has {count} images", flush=True)
            return statuses
    return Counter({413: 6})


def hang_ups(server: Server) -> Counter[int]:
    """50 certifies of eight images, whose clients hang up at once; and how many of them are in work five seconds on."""
    body = json.dumps({"images": [base64.b64encode(picture(32)).decode()] * 8, "eps": [0.01]}).encode()
    head = (
        f"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(f"{head}\r\n\r\n".encode() + body)
            time.sleep(0.02)
    time.sleep(5)
    ended = re.findall(r'prood_requests_total\{path="/v1/certify",status="\d+"\} (\d+)', text(server, "/metrics"))
    left = 50 - sum(map(int, ended))
    return Counter({200: 50 - left}) + Counter({0: left})


def smuggling(server: Server) -> Counter[int]:
    """Content-Length and Transfer-Encoding in one request, with another one behind it."""
    sent = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent += b"0\r\n\r\n"
    sent += b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\n\r\n"
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(sent)
        while part := connection.recv(65536):
            received += part
    return Counter(map(int, re.findall(rb"HTTP/1\.1 (\d+)", received)))


def text(server: Server, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", path)
    found = connection.getresponse().read().decode()
    connection.close()
    return found


def get(server: Server, path: str) -> dict[str, list[int] | str]:
    found: dict[str, list[int] | str] = json.loads(text(server, path))
    return found


ATTACKS = (
    webp_bombs,
    text_in_pixels,
    long_json,
    png_chunks,
    held_bodies,
    connections,
    hang_ups,
    smuggling,
    worst_certify,
)


def besiege(options: argparse.Namespace, folder: Path) -> bool:
    server, passed = start(options, folder), True
    print(f"{'attack':18} {'MB':>6} {'p99 s':>6} {'predicts':>9}  statuses", flush=True)
    for attack in ATTACKS:
        if options.only and attack.__name__ not in options.only:
            continue
        server.forget()
        beside = Beside(server, picture(32))
        with beside.running():
            time.sleep(3)  # so that there are some
            statuses = attack(server)
        wrong = [one for one in (*statuses, *beside.statuses) if one == 0 or (one >= 500 and one != 503)]
        fine = server.memory < MEMORY_MB and beside.p99 < WAIT_S and not wrong
        passed &= fine
        said = " ".join(f"{status}×{count}" for status, count in sorted(statuses.items()))
        others = {status: count for status, count in beside.statuses.items() if status != 200}
        print(
            f"{attack.__name__:18} {server.memory:6.0f} {beside.p99:6.2f} {len(beside.seconds):9}  {said}"
            f"{f', predicts {others}' if others else ''}{'' if fine else '   FAILED'}",
            flush=True,
        )
    server.stop()
    size = server.log.stat().st_size
    print(f"the log has {size} bytes", flush=True)
    return passed and size < 100_000


def stopping(options: argparse.Namespace, folder: Path) -> bool:
    """SIGTERM with proofs and attacks in work that nobody could finish in time."""
    drain = 5
    server = start(options, folder, "--drain-s", str(drain), "--grace-s", "1")
    file = picture(32)
    body = json.dumps({"images": [base64.b64encode(file).decode()] * 4, "eps": [0.01]}).encode()
    send = [
        threading.Thread(target=server.post, args=("/v1/certify", body, JSON)),
        threading.Thread(target=server.post, args=("/v1/certify", body, JSON)),
        threading.Thread(
            target=server.post, args=("/v1/attack?steps=200&eps=0.01", file, {"Content-Type": "image/png"})
        ),
    ]
    for thread in send:
        thread.start()
    time.sleep(2)
    seconds = server.stop()
    for thread in send:
        thread.join()
    traceback = "Traceback" in server.log.read_text()
    fine = seconds < drain + MORE_S and not traceback
    print(
        f"stop with work waiting: {seconds:.1f} s with --drain-s {drain}{', a traceback' if traceback else ''}",
        flush=True,
    )
    return fine


def rolling(options: argparse.Namespace, folder: Path) -> bool:
    """Eight clients without a retry, and servers that replace each other behind what looks at their readiness."""
    words, file, statuses = ("--grace-s", "1", "--drain-s", "10"), picture(32), Counter[int]()
    serving = [start(options, folder, *words)]
    over = threading.Event()

    def client() -> None:
        connection, port = None, None
        while not over.is_set():
            server = serving[0]
            if connection is None or port != server.port:
                connection, port = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30), server.port
            try:
                connection.request("POST", "/v1/predict", file, {"Content-Type": "image/png", "Host": "localhost"})
                answer = connection.getresponse()
                answer.read()
                statuses[answer.status] += 1
            except (OSError, http.client.HTTPException):
                statuses[0] += 1
                connection = None
            time.sleep(0.02)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    for _ in range(options.rounds):
        fresh, old = start(options, folder, *words), serving[0]
        old.process.send_signal(signal.SIGTERM)
        while old.ready():  # the balancer looks five times a second
            time.sleep(0.2)
        serving[0] = fresh
        old.process.wait(60)
    over.set()
    for thread in clients:
        thread.join()
    serving[0].stop()
    dropped = sum(count for status, count in statuses.items() if status != 200)
    print(f"{options.rounds} rolling restarts: {dropped} of {sum(statuses.values())} requests dropped", flush=True)
    return not dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a run, a model file or the name of a shipped model")
    parser.add_argument("--rounds", type=int, default=10, help="Rolling restarts; 0: none.")
    parser.add_argument("--only", nargs="*", help="Names of attacks.")
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")), help="For the logs.")
    options = parser.parse_args()
    parts = [besiege, stopping] + [rolling] * bool(options.rounds)
    found = [part(options, options.folder) for part in parts]
    sys.exit(not all(found))


if __name__ == "__main__":
    main()
