"""Kill −9 at random moments, on every engine: afterwards the rows are complete, once each, as of an undisturbed run.

    python benchmarks/kills.py --engines local-1,local-2,ray --kills 20

Each call of `prood score` is hit once, at a moment drawn from the time that an undisturbed one takes: half of the hits
are at the command itself, the others at any of its descendants, Ray's own among them. Then the same command is begun
again, in the same folder until it is complete, and in a new one after that.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from scale import family, fill, rows, untrained

LIMIT = 600
"""Seconds after which a call that was hit counts as hanging."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="local-1,local-2,ray")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = untrained(folder / "model", 28)
        (folder / "tars").mkdir()
        fill((1, 28, 28), folder / "tars", options.images)
        for engine in options.engines.split(","):
            name, _, workers = engine.partition("-")
            words = [str(folder / "tars"), "--model", model, "--eps", "0.01", "--engine", name]
            words += ["--workers", workers or "1"]
            began = time.monotonic()
            call(words, folder / f"{engine}-whole").wait()
            passed = time.monotonic() - began
            print(f"{engine}: undisturbed {passed:.1f} s", flush=True)
            hit(engine, words, passed, folder, options)


def hit(engine: str, words: list[str], passed: float, folder: Path, options: argparse.Namespace) -> None:
    draw, whole, number, ends = random.Random(options.seed), rows(folder / f"{engine}-whole"), 0, []
    hits = inner = complete = 0
    while hits < options.kills:
        out = folder / f"{engine}-{number}"
        child = call(words, out)
        with suppress(subprocess.TimeoutExpired):
            child.wait(draw.uniform(0, passed))
        if child.poll() is None:
            everyone = family(child.pid)
            deep = len(everyone) > 1 and draw.random() < 0.5
            target = draw.choice(everyone[1:]) if deep else child.pid
            with suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
                hits, inner = hits + 1, inner + deep
            ends.append(child.wait(LIMIT))
            print(f"{engine}: kill {hits}, {'a descendant' if deep else 'the command'}, exit {ends[-1]}", flush=True)
            for one in everyone:  # what a dead parent has left
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        if child.returncode == 0 or hits == options.kills:
            check(call(words, out).wait(LIMIT) == 0, f"{engine}: the last call ended with an error")
            check(rows(out).equals(whole), f"{engine}: other rows than undisturbed in {out.name}")
            left = [file.name for file in out.iterdir() if file.name.endswith(".part")]
            check(not left, f"{engine}: {left} was left")
            complete, number = complete + 1, number + 1
    codes = {code: ends.count(code) for code in sorted(set(ends))}
    print(f"{engine}: {hits} kills, {inner} of them of a descendant; calls ended with {codes};", end=" ")
    print(f"{complete} folders were completed, each with the {len(whole):,} rows of the undisturbed run", flush=True)


def check(good: bool, fault: str) -> None:
    if not good:
        sys.exit(fault)


def call(words: list[str], out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "prood", "score", *words, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
