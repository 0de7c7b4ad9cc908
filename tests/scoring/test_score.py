"""A folder of scores: complete, equal to the Detector's answers, and each row once, whatever happens on the way."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from prood.detector import Detector
from prood.errors import AlreadyThere, BadValue, Damaged, Mismatch, NotFound, Unsupported
from prood.models import fingerprint, save
from prood.scoring import Engine, Request, score

HERE = Engine(workers=1, device="cpu")


def rows_in(folder: Path) -> dict[str, dict[str, object]]:
    """All rows by their images' names, each of which stands there once."""
    rows = [row for file in sorted(folder.glob("scores-*.parquet")) for row in pq.read_table(file).to_pylist()]
    found = {row["image"]: row for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


@pytest.fixture
def request_(run, photos) -> Request:
    return Request(sources=(str(photos),), model=str(run), eps=(0.004, 0.02), rows=25)


def test_the_rows_are_what_the_detector_says_and_one_for_each_image(request_, run, photos, tmp_path):
    found = score(request_, tmp_path / "out", HERE)
    rows = rows_in(tmp_path / "out")
    paths = sorted(photos.rglob("[0-9]*.png"))
    assert sorted(rows) == sorted([*map(str, paths), str(photos / "part-1" / "broken.jpg")])
    detector = Detector.load(run)
    answer, bounds = detector.predict(paths), detector.upper_bounds(paths, [0.004, 0.02])
    for place, path in enumerate(paths):
        row = rows[str(path)]
        assert (row["label"], row["accepted"], row["reason"]) == (
            answer.label[place],
            answer.accepted[place],
            answer.reason[place],
        )
        for number, eps in enumerate(("0.004", "0.02")):
            assert row[f"upper_bound_{eps}"] == pytest.approx(bounds[place, number], rel=1e-6)
            assert row[f"rejected_{eps}"] == (bounds[place, number] < detector.threshold)
        assert (row["confidence"], row["error"]) == (pytest.approx(answer.confidence[place], rel=1e-6), None)
    broken = rows[str(photos / "part-1" / "broken.jpg")]
    assert "not a picture" in broken["error"]
    assert {value for name, value in broken.items() if name not in ("image", "error")} == {None}
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_bytes())
    assert manifest["complete"]
    assert manifest["model"]["fingerprint"] == fingerprint(detector.model)
    assert (manifest["images"], manifest["shards"], found.shards) == (91, 4, 4)
    assert manifest["totals"] == dict(found.totals)
    assert found.totals["errors"] == 1
    assert found.totals["accepted"] == answer.accepted.sum() > 0
    assert found.totals["rejected_0.004"] == (bounds[:, 0] < detector.threshold).sum() > 0


def test_the_folder_is_one_table_for_others(request_, tmp_path):
    score(request_, tmp_path / "out", HERE)
    assert len(pq.read_table(tmp_path / "out")) == 91  # what else lies there begins with an underscore


def test_shares_of_the_shards_make_the_whole(request_, tmp_path):
    score(request_, tmp_path / "one", HERE)
    last = [score(request_, tmp_path / "many", Engine(workers=1, device="cpu", index=n, count=3)) for n in (2, 0, 1)]
    assert [found.totals is None for found in last] == [True, True, False]
    assert rows_in(tmp_path / "many") == rows_in(tmp_path / "one")
    assert score(request_, tmp_path / "many", HERE).shards == 0


def test_a_shard_that_is_cut_short_is_written_again(request_, tmp_path):
    score(request_, tmp_path / "out", HERE)
    before, file = rows_in(tmp_path / "out"), tmp_path / "out" / "scores-000002.parquet"
    file.write_bytes(file.read_bytes()[:300])
    (tmp_path / "out" / ".scores-000002.parquet.7-abc.part").write_bytes(b"left by a kill")
    assert score(request_, tmp_path / "out", HERE).shards == 1
    assert rows_in(tmp_path / "out") == before
    assert not list((tmp_path / "out").glob(".*.part"))


def test_another_model_or_other_settings_are_refused(request_, run, tmp_path):
    score(request_, tmp_path / "out", HERE)
    other = Detector.load(run)
    with torch.no_grad():
        other.model.shift += 0.5
    other.save(tmp_path / "other")
    changed = [replace(request_, model=str(tmp_path / "other")), replace(request_, eps=(0.02,))]
    changed += [replace(request_, sources=(str(run),)), replace(request_, radius=True)]
    for one, said in zip(changed, ("model", "eps", "sources", "radius"), strict=True):
        with pytest.raises(Mismatch, match=said):
            score(one, tmp_path / "out", HERE)
    score(changed[0], tmp_path / "others", HERE)
    (tmp_path / "others" / "scores-000002.parquet").replace(tmp_path / "out" / "scores-000002.parquet")
    with pytest.raises(Mismatch, match="000002"):
        score(request_, tmp_path / "out", HERE)


def test_another_threshold_is_another_verdict(request_, run, tmp_path):
    save(Detector.load(run).model, tmp_path / "run" / "model.safetensors", classes=list("abcd"), threshold=0.5)
    score(request_, tmp_path / "out", HERE)
    with pytest.raises(Mismatch, match="threshold"):
        score(replace(request_, model=str(tmp_path / "run")), tmp_path / "out", HERE)


def test_what_cannot_be_done_is_said_before_anything_is_written(request_, photos, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "scores-000000.parquet").write_bytes(b"")
    for one, out, error in (
        (request_, tmp_path / "file", AlreadyThere),
        (request_, tmp_path / "scores", AlreadyThere),
        (request_, photos / "out", BadValue),
        (replace(request_, sources=(str(tmp_path / "empty"),)), tmp_path / "out", NotFound),
        (replace(request_, model=str(tmp_path / "nothing")), tmp_path / "out", NotFound),
        (replace(request_, columns=("label", "colour")), tmp_path / "out", BadValue),
        (replace(request_, columns=("label",)), tmp_path / "out", BadValue),
    ):
        with pytest.raises(error):
            score(one, out, HERE)
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for wrong in ({"index": 3, "count": 3}, {"workers": 0}, {"gpus": -1}, {"name": "dask"}):
        with pytest.raises(BadValue):
            Engine(**wrong)


def test_an_archive_without_pictures_ends_with_a_word(request_, tmp_path):
    (tmp_path / "t.tar").write_bytes(bytes(10240))
    with pytest.raises(NotFound, match="no pictures"):
        score(replace(request_, sources=(str(tmp_path / "t.tar"),)), tmp_path / "out", HERE)


def test_a_folder_without_its_plan_is_refused(request_, tmp_path):
    score(request_, tmp_path / "out", HERE)
    (tmp_path / "out" / "_prood" / "plan.json").unlink()
    with pytest.raises(Damaged, match="plan"):
        score(request_, tmp_path / "out", HERE)


def killer(run: Path, photos: Path, out: Path, kills: int, limit: int) -> list[int]:
    """How the children of killer.py ended."""
    words = [Path(__file__).with_name("killer.py"), photos, run, out, kills, limit]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_moment_loses_and_doubles_nothing(run, photos, tmp_path):
    ends = killer(run, photos, tmp_path, kills=6, limit=0)
    assert (ends[0], ends[-1]) == (0, 0)
    assert set(ends[1:-1]) <= {0, -signal.SIGKILL}
    assert -signal.SIGKILL in ends
    assert rows_in(tmp_path / "killed") == rows_in(tmp_path / "whole")
    assert len(rows_in(tmp_path / "whole")) == 91
    assert not list((tmp_path / "killed").glob(".*.part"))


@pytest.mark.slow
def test_a_full_disk_ends_the_call_and_the_next_one_goes_on(run, photos, tmp_path):
    assert killer(run, photos, tmp_path, kills=0, limit=4000) == [0, 4, 0, 0]  # the plan fits; a shard does not
    assert rows_in(tmp_path / "killed") == rows_in(tmp_path / "whole")


@pytest.mark.slow
def test_processes_that_are_killed_are_replaced(request_, tmp_path):
    score(request_, tmp_path / "one", HERE)
    killed = []

    def kill() -> None:
        while len(killed) < 2:
            for child in multiprocessing.active_children():
                if child.pid not in killed:
                    time.sleep(0.2)
                    os.kill(child.pid, signal.SIGKILL)
                    killed.append(child.pid)
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    found = score(request_, tmp_path / "two", Engine(workers=2, device="cpu"))
    killer.join()
    assert len(killed) >= 2
    assert found.totals["images"] == 91
    assert rows_in(tmp_path / "two") == rows_in(tmp_path / "one")


@pytest.mark.slow
def test_on_ray_the_rows_are_the_same(request_, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install '.[scale]'")
    score(request_, tmp_path / "here", HERE)
    words = ["score", *request_.sources, "--model", request_.model, "--eps", "0.004,0.02", "--rows", "25"]
    words += ["--out", str(tmp_path / "ray"), "--engine", "ray", "--workers", "1", "--device", "cpu"]
    done = subprocess.run([sys.executable, "-m", "prood", *words], capture_output=True, text=True, timeout=300)
    if "Ray cannot be started" in done.stderr:
        pytest.skip("Ray does not start on this machine, or not within its thirty seconds")
    assert done.returncode == 0, done.stderr
    assert rows_in(tmp_path / "ray") == rows_in(tmp_path / "here")


def test_a_ray_cluster_that_is_not_there_is_one_line_at_once(request_, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed: pip install '.[scale]'")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    began = time.monotonic()
    with pytest.raises(Unsupported, match="RAY_ADDRESS"):
        score(request_, tmp_path / "out", Engine("ray", workers=1, device="cpu"))
    assert time.monotonic() - began < 60
