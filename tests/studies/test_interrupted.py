"""prood reproduce all, as a process that is killed in the middle and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Only the tables: figures need images of the size that their models were made for.
PROGRAM = """
import prood.report.experiments as all_of_them
all_of_them.EXPERIMENTS = tuple(one for one in all_of_them.EXPERIMENTS if one.name in ("main", "seeds", "fpr"))
from prood.cli import main
main()
"""


def start(tiny: Path, folder: Path) -> "subprocess.Popen[str]":
    words = ["reproduce", "all", "--recipe", str(tiny), "--attacks", "none", "--seeds", "0,1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], cwd=folder, env=environment, **options)


@pytest.mark.slow
def test_a_killed_reproduction_goes_on(tiny, tmp_path):
    first = start(tiny, tmp_path)
    published = tmp_path / "results" / "tiny" / "ramps" / "oe-0.json"
    deadline = time.monotonic() + 300
    while not published.is_file():
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    made = [tmp_path / "runs" / "tiny" / run / "model.safetensors" for run in ("plain", "oe")]
    before = {file: file.stat().st_mtime_ns for file in (*made, published)}
    assert not (tmp_path / "docs").exists()

    second = start(tiny, tmp_path)
    told, _ = second.communicate(timeout=300)
    assert second.returncode == 0, told
    assert told.endswith("wrote docs/experiments.md\n")
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert not list((tmp_path / "results").rglob("*.part"))
    names = sorted(file.name for file in (tmp_path / "results" / "tiny" / "experiments").iterdir())
    assert names == ["table-fpr.json", "table-main.json", "table-seeds.json"]
    document = json.loads((tmp_path / "results" / "tiny" / "experiments" / "table-seeds.json").read_text())
    assert [row["seeds"] for row in document["content"]["rows"]] == [[0, 1]] * 3
    assert "## tiny" in (tmp_path / "docs" / "experiments.md").read_text()
