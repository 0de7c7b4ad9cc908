"""Scoring many images: images a second, memory, and the same rows from every engine.

    python benchmarks/scale.py --images 200000
    python benchmarks/scale.py --images 200000 --engines local-1,local-2,ray --model cifar10 --eps 0.01
    python benchmarks/scale.py --images 200000 --model untrained
    python benchmarks/scale.py --images 0 --records 10000000 --model untrained

Four parts. `bare`: the model's forward pass on batches that lie in memory, and a Scorer on the same ones. `engines`:
`prood score` on that many small pictures in WebDataset archives, once with a fifth of them and once with all, with the
wall time and the highest memory of all its processes together. `records`: a list of paths behind which there is no
picture, which goes through plan, shards, manifest and resumption as images would. `certificates`: as many certificates
in Parquet (copies of a thousand, of images of 8×8), a sample of which `prood verify` checks. The first line is the time
of a fixed loop of arithmetic: on a machine that others use it says how much of it there was. The model `untrained` is a
joint model of the digits' size with random weights.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from PIL import Image

from prood import Detector, Scorer
from prood.evaluation import parse_radii
from prood.models import ProoD, discriminator, save, small
from prood.scoring import Options, shards
from prood.scoring.columns import schema_of

if TYPE_CHECKING:
    import pyarrow as pa

ARCHIVE = 1000
"""Pictures of an archive."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--model", default="cifar10")
    parser.add_argument("--eps", default="")
    parser.add_argument("--engines", default="local-1,local-2,ray")
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wall, processor = calibration()
    print(f"calibration loop: {wall:.2f} s, {processor:.2f} s of processor time")
    with tempfile.TemporaryDirectory() as folder:
        if options.model == "untrained":
            options.model = untrained(Path(folder, "untrained"), 28)
        detector = Detector.load(options.model)
        if options.images:
            bare(detector, options, min(options.images, 20 * options.batch))
            if options.engines:
                engines(detector, options, Path(folder))
        if options.records:
            records(options, Path(folder))
            certificates(options.records, Path(folder))


def untrained(folder: Path, size: int) -> str:
    torch.manual_seed(0)
    model = ProoD(small(10, channels=1), discriminator("digits", image=(1, size, size)), 0.0)
    save(model, folder / "model.safetensors", threshold=0.5)
    return str(folder)


def calibration() -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    total = 0
    for number in range(5_000_000):
        total += number
    return time.perf_counter() - began, time.process_time() - used


def pictures(shape: tuple[int, int, int], count: int) -> np.ndarray:
    coarse = np.random.default_rng(0).integers(0, 256, (count, shape[0], 4, 4), dtype=np.uint8)
    times = -(-shape[1] // 4), -(-shape[2] // 4)
    return coarse.repeat(times[0], 2).repeat(times[1], 3)[:, :, : shape[1], : shape[2]]


def bare(detector: Detector, options: argparse.Namespace, count: int) -> None:
    """The calls alternate, and the median of each counts: of processor time on a CPU, where others may be at work."""
    clock = time.process_time if detector.device.type == "cpu" else time.perf_counter
    images = pictures(detector.shape, count)
    batches = [images[start : start + options.batch] for start in range(0, count, options.batch)]
    scorers = {
        "Scorer, all columns but bounds": Scorer(detector, options=Options(memory=2**34)),
        "Scorer, without hashes": Scorer(detector, columns=("label", "confidence"), options=Options(memory=2**34)),
    }
    if options.eps:
        scorers[f"Scorer, bounds at {options.eps}"] = Scorer(detector, parse_radii(options.eps))

    def forward(part: np.ndarray) -> None:
        with torch.no_grad():
            detector.model((torch.from_numpy(part).float() / 255).to(detector.device)).cpu()

    calls = {"bare forward pass": forward} | {
        name: lambda part, one=one: one({"image": part}) for name, one in scorers.items()
    }
    seen: dict[str, list[float]] = {name: [] for name in calls}
    for part in batches:
        for name, call in calls.items():
            began = clock()
            call(part)
            seen[name].append((clock() - began) / len(part))
    medians = {name: float(np.median(found)) for name, found in seen.items()}
    for name, seconds in medians.items():
        times = seconds / medians["bare forward pass"]
        print(f"{name}: {1 / seconds:,.0f} images/s of processor time, {times:.3f} times the forward pass")


def engines(detector: Detector, options: argparse.Namespace, folder: Path) -> None:
    tables = {}
    (folder / "tars").mkdir()
    for engine in options.engines.split(","):
        for part in (options.images // 5, options.images):
            fill(detector.shape, folder / "tars", part)
            out = folder / f"{engine}-{part}"
            name, _, workers = engine.partition("-")
            words = [str(folder / "tars"), "--model", options.model, "--engine", name]
            words += ["--workers", workers or "1", *(["--eps", options.eps] if options.eps else [])]
            found = run(words, out)
            print(f"{engine}: {part:,} images in {found}, {part / found.seconds:,.0f} images/s", flush=True)
        tables[engine] = rows(out)
        for file in sorted((folder / "tars").glob("*.tar"))[options.images // 5 // ARCHIVE :]:
            file.unlink()
    first = next(iter(tables.values()))
    print(f"the same rows in all: {all(table.equals(first) for table in tables.values())}")


def fill(shape: tuple[int, int, int], folder: Path, count: int) -> None:
    """Archives with so many pictures, of which some may be there."""
    images = pictures(shape, min(ARCHIVE, count))
    for number in range(0, count, ARCHIVE):
        path = folder / f"{number:09}.tar"
        if path.exists():
            continue
        with tarfile.open(path, "w") as archive:
            for place, image in enumerate(images[: count - number]):
                content = io.BytesIO()
                moved = np.moveaxis(np.roll(image, number // ARCHIVE, axis=1), 0, -1)
                Image.fromarray(moved.squeeze()).save(content, "png")
                entry = tarfile.TarInfo(f"{number + place:09}.png")
                entry.size = content.tell()
                content.seek(0)
                archive.addfile(entry, content)


def records(options: argparse.Namespace, folder: Path) -> None:
    with (folder / "list.txt").open("w") as file:
        file.writelines(f"/nowhere/{number // 1000:06}/{number:09}.jpg\n" for number in range(options.records))
    for title in ("scored", "begun again when all is there"):
        found = run([str(folder / "list.txt"), "--model", options.model, "--workers", "1"], folder / "records")
        print(f"{options.records:,} records without images, {title}: {found}", flush=True)


def certificates(count: int, folder: Path) -> None:
    """The same ones in every shard, so that only the model and a thousand images need be there."""
    model = untrained(folder / "small", 8)
    np.savez(folder / "small.npz", images=pictures((1, 8, 8), 1000))
    scorer = Scorer(model, 0.01, columns=("certificate_0.01", "error"))
    named = [(f"npz:{folder / 'small.npz'}", row) for row in range(1000)]
    made = scorer({"image": pictures((1, 8, 8), 1000), "reference": named})
    (folder / "certs").mkdir()
    whole = {"image": [str(row) for row in range(1000)], **made}
    for number in range(count // 10_000):
        shards.write(shards.shard_path(folder / "certs", number), "simulated", schema_of(tuple(made)), [whole] * 10)
    words = ["verify", str(folder / "certs"), "--at-most", "0.001", "--seed", "0"]
    print(f"{count // 10_000 * 10_000:,} certificates, 4,603 of them verified: {watched(words)}", flush=True)


class Cost(NamedTuple):
    seconds: float
    processor: float  # seconds of it; of Ray's, which outlive the command, only a part
    peak: float  # MB

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.processor:.1f} s of processor time, peak {self.peak:,.0f} MB)"


def run(words: list[str], out: Path) -> Cost:
    return watched(["score", *words, "--out", str(out)])


def watched(words: list[str]) -> Cost:
    """What the command took, and the highest memory of it and all its descendants together."""
    began, used = time.perf_counter(), children()
    child = subprocess.Popen(
        [sys.executable, "-m", "prood", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    peak, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            peak[0] = max(peak[0], sum(memory(pid) for pid in family(child.pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = child.wait()
    stop.set()
    watcher.join()
    if code:
        sys.exit(f"prood {words[0]} ended with {code}")
    return Cost(time.perf_counter() - began, children() - used, peak[0])


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def family(first: int) -> list[int]:
    found = [first]
    for pid in found:
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:  # it has ended meanwhile
            continue
    return found


def memory(pid: int) -> float:
    """Its own share of what it holds: what several processes share counts once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def rows(out: Path) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(out).sort_by("image")


if __name__ == "__main__":
    main()
