"""Throughput and latency of `prood serve` with and without batching, under a load that wrk makes.

    apt-get install wrk
    python benchmarks/serve.py runs/quickstart/prood picture.png --seconds 60 --connections 64

Each setting gets a server of its own on the loopback interface; settings alternate, `--rounds` times. wrk sends the
same picture again and again over keep-alive connections, and a new request follows each answer. Every answer other than
200 counts as failed. The servers have one processor core for the model (`--threads 1`): the event loop and wrk need
some, too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

LUA = """
local file = io.open(os.getenv("PICTURE"), "rb")
wrk.method, wrk.body = "POST", file:read("*all")
wrk.headers["Content-Type"] = os.getenv("KIND")
"""
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--path", default="/v1/predict")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--wait-ms", default="5")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("the load comes from wrk: apt-get install wrk")
    rates: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for batch in options.batches.split(","):
            rates.setdefault(batch, []).append(measure(options, batch))
    mean = {batch: sum(found) / len(found) for batch, found in rates.items()}
    first = next(iter(mean))
    for batch, rate in mean.items():
        print(f"batch {batch}: {rate:.0f} requests/s on average, {rate / mean[first]:.2f} times that of batch {first}")


def measure(options: argparse.Namespace, batch: str) -> float:
    """Requests a second of one server."""
    words = ["serve", options.run, "--port", "0", "--batch", batch, "--threads", options.threads]
    words += ["--wait-ms", options.wait_ms]
    server = subprocess.Popen([sys.executable, "-m", "prood", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(line.split()[1].rstrip("/") for line in server.stdout if line.startswith("page"))
        load(options, address, 3)  # warm
        said = load(options, address, options.seconds)
        metrics = urllib.request.urlopen(f"{address}/metrics").read().decode()
    finally:
        server.terminate()
        code = server.wait(60)
    rate = float(re.search(r"Requests/sec: +([\d.]+)", said)[1])  # type: ignore[index]
    median, worst = (_milliseconds(said, share) for share in ("50%", "99%"))
    failed = sum(int(number) for number in re.findall(r"(?:Non-2xx.*: |connect |read |write |timeout )(\d+)", said))
    passed = {
        kind: sum(
            map(float, re.findall(rf'prood_batch_rows_{kind}\{{[^}}]*work="(?:predict|bound)"\}} (\S+)', metrics))
        )
        for kind in ("sum", "count")
    }
    print(
        f"batch {batch:>3}: {rate:7.1f} requests/s, p50 {median:.1f} ms, p99 {worst:.1f} ms, {failed} failed, "
        f"{passed['sum'] / passed['count']:.1f} rows a pass, exit code {code}",
        flush=True,
    )
    return rate


def load(options: argparse.Namespace, address: str, seconds: int) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA)
        script.flush()
        command = ["wrk", "-t1", f"-c{options.connections}", f"-d{seconds}s", "--timeout", "60s", "--latency"]
        environment = os.environ | {"PICTURE": str(options.picture), "KIND": KINDS[options.picture.suffix.lower()]}
        command += ["-s", script.name, address + options.path]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def _milliseconds(said: str, share: str) -> float:
    found = re.search(rf"{share} +([\d.]+)(us|ms|s)", said)
    assert found is not None
    return float(found[1]) * UNITS[found[2]]


if __name__ == "__main__":
    main()
