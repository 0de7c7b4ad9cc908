"""Train and judge many small discriminators, several at a time on one GPU.

    PYTHONPATH=src python benchmarks/campaign --data DIR --out DIR [--jobs FILE] [--side-by-side N] [--until SECONDS]
        [--take NAME …]      the next unfinished jobs of the list, each in a process of its own
    … --unpack               DIR/cifar10/train-00.webp … (mosaics) → DIR/cifar10-train.npy
    … --final NAME …         these jobs' weights on the test sets, with `crown` bounds in sound arithmetic

A job that `--until` cuts off goes on from its checkpoint the next time. A finished one appends a line to
OUT/results.jsonl and leaves raw.safetensors and averaged.safetensors in OUT/NAME; one that fails leaves its error. Jobs
with a line in results/campaign.jsonl are not run again. The list is read again before each job is taken. Jobs are
judged on held-back training images alone: all of them by `crown-ibp` bounds, some by `crown`.

Start `nvidia-cuda-mps-control -d` first. On an H200 one process trains size S at 1.36 s an epoch. Two or three side by
side take 1.27 s for each of their epochs with this service, 1.49 s without, and hide each other's compilation.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CUT_OFF = 75  # exit status of a job that has a checkpoint instead of a result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the image sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of results, weights and logs")
    parser.add_argument("--jobs", type=Path, default=HERE.parent / "campaign.toml", help="the list")
    parser.add_argument("--results", type=Path, help="file of finished lines. Default: OUT/results.jsonl")
    done = HERE.parents[1] / "results" / "campaign.jsonl"
    parser.add_argument(
        "--done", type=Path, default=done, help="lines of earlier runs. Default: results/campaign.jsonl"
    )
    parser.add_argument("--side-by-side", type=int, default=3, metavar="N", help="jobs at a time")
    parser.add_argument("--until", type=float, default=1e9, metavar="SECONDS", help="stop then, with checkpoints")
    parser.add_argument("--take", nargs="+", metavar="NAME", help="only these jobs")
    parser.add_argument("--final", nargs="+", metavar="NAME", help="judge these on the test sets")
    parser.add_argument(
        "--limit", type=int, default=0, help="use at most so many images of each set, to try things out"
    )
    parser.add_argument("--unpack", action="store_true", help="prepare the sets of --data")
    parser.add_argument("--worker", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.results = chosen.results or chosen.out / "results.jsonl"
    if chosen.unpack:
        from images import unpack

        unpack(chosen.data)
    elif chosen.worker or chosen.final:
        import worker

        if chosen.final:
            worker.final(chosen)
        else:
            sys.exit(worker.work(chosen, CUT_OFF))
    else:
        chosen.out.mkdir(parents=True, exist_ok=True)
        schedule(chosen)


def schedule(chosen: argparse.Namespace) -> None:
    """Start jobs while there are any, `side_by_side` at a time."""
    from settings import as_table, read_jobs, read_lines, resolve

    began = time.monotonic()
    end = began + chosen.until
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    cut: set[str] = set()
    while True:
        for name, (process, since) in list(running.items()):
            status = process.poll()
            if status is None:
                continue
            del running[name]
            print(
                f"{time.monotonic() - began:7.0f} s  {name} ended ({status}) after {time.monotonic() - since:.0f} s",
                flush=True,
            )
            if status == CUT_OFF:
                cut.add(name)
            elif status:
                tail = (chosen.out / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
                line = {"name": name, "error": " | ".join(tail)[-600:], "status": status}
                with chosen.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        late = time.monotonic() > end
        try:
            options, defaults, jobs = read_jobs(chosen.jobs)
        except (OSError, ValueError, KeyError) as error:
            print(f"{chosen.jobs}: {error}", flush=True)
            time.sleep(5)
            continue
        earlier = [line for line in read_lines(chosen.done) if line.get("averaged") and "cut_off" not in line]
        lines = earlier + read_lines(chosen.results)
        done = {line["name"] for line in lines}
        waiting = False
        for job in jobs:
            if job.name in done | cut or job.name in running or (chosen.take and job.name not in chosen.take):
                continue
            if late or len(running) >= options.get("side_by_side", chosen.side_by_side):
                break
            settings = resolve(job, defaults, jobs, lines)
            if settings is None:
                waiting = True
                continue
            text = json.dumps(as_table(settings))
            command = [sys.executable, str(HERE), "--data", str(chosen.data), "--out", str(chosen.out)]
            command += ["--results", str(chosen.results), "--worker", job.name, "--settings", text]
            command += ["--until", str(end - time.monotonic()), "--limit", str(chosen.limit)]
            with (chosen.out / f"{job.name}.log").open("a") as log:
                process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            running[job.name] = process, time.monotonic()
            print(f"{time.monotonic() - began:7.0f} s  {job.name} started: {_changed(settings)}", flush=True)
        if not running and (late or not waiting):
            return
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(0.5)


def _changed(settings: Any) -> str:
    from settings import Settings, as_table

    usual = as_table(Settings())
    return " ".join(f"{key}={value}" for key, value in as_table(settings).items() if value != usual[key]) or "as usual"


if __name__ == "__main__":
    main()
