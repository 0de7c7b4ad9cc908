"""Certificates of many images: the lines that a file of certificates has, each in the shard of its image."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prood.certification.certify import Request as One
from prood.certification.certify import certify
from prood.certification.files import files
from prood.certification.verify import Verifier
from prood.detector import Detector
from prood.detector.named import inputs
from prood.errors import BadValue, Mismatch, Unsupported
from prood.models import save
from prood.scoring import Engine, Request, Scorer, score

COLUMNS = ("certificate_0.004", "certificate_0.02", "error")
HERE = Engine(workers=1, device="cpu")


@pytest.fixture
def request_(run, photos) -> Request:
    return Request(sources=(str(photos),), model=str(run), eps=(0.004, 0.02), columns=COLUMNS, rows=25)


def certificates(folder):
    return [claim.certificate() for file in files(folder) for claim in file.claims()]


def test_they_are_those_of_a_file_of_certificates(request_, run, photos, tmp_path):
    found = score(request_, tmp_path / "out", HERE)
    assert (found.totals["images"], found.totals["errors"]) == (91, 1)
    many = {(one.input.name, one.eps): one for one in certificates(tmp_path / "out")}
    assert len(many) == 180
    detector = Detector.load(run)
    pictures = inputs([str(path) for path in sorted(photos.rglob("[0-9]*.png"))], detector.shape, None)
    for one in certify(detector, run, pictures, One([0.004, 0.02])):
        other = many[one.input.name, one.eps]
        assert other.bound == pytest.approx(one.bound, abs=1e-6)
        assert other.confidence == pytest.approx(one.confidence, abs=1e-6)
        assert replace(other, bound=one.bound, confidence=one.confidence, seconds=one.seconds, digest="") == replace(
            one, model=other.model, digest=""
        )


def test_an_independent_path_finds_the_images_of_every_source(run, contents, images, photos, tmp_path):
    import tarfile

    lake = tmp_path / "lake"
    lake.mkdir()
    with tarfile.open(lake / "a.tar", "w") as archive:
        for path in sorted((photos / "part-0").glob("*.png"))[:3]:
            archive.add(path, path.name)
    pq.write_table(pa.table({"bytes": contents[3:9]}), lake / "b.parquet", row_group_size=4)
    (lake / "c.png").write_bytes(contents[9])
    np.savez(tmp_path / "d.npz", images=images[10:12, 0])
    sources = (str(lake), str(tmp_path / "d.npz"), f"npz:{tmp_path / 'd.npz'}", f"folder:{photos / 'part-2'}")
    request = Request(sources=sources, model=str(run), eps=(0.02,), columns=("certificate_0.02", "error"))
    score(request, tmp_path / "out", HERE)
    found = certificates(tmp_path / "out")
    assert len(found) == 3 + 6 + 1 + 2 + 2 + 30
    verifier = Verifier()
    chosen = [*found[:14], found[-1]]
    assert [verifier.verify(one).outcome for one in chosen] == ["confirmed"] * 15
    lake.rename(tmp_path / "moved")
    inside = [one for one in found if "::" in one.input.name]
    assert len(inside) == 9
    assert {Verifier().verify(one).outcome for one in inside} == {"not decided"}
    assert {Verifier(input=str(tmp_path / "moved")).verify(one).outcome for one in inside} == {"confirmed"}
    swapped = replace(inside[0], input=replace(inside[1].input, sha256=inside[0].input.sha256), digest="")
    assert Verifier(input=str(tmp_path / "moved")).verify(swapped).outcome == "refuted"


def test_first_images_only(request_, photos, tmp_path):
    sources = (str(photos / "part-0"), f"folder:{photos / 'part-2'}")
    score(replace(request_, sources=sources, limit=2), tmp_path / "out", HERE)
    assert len(certificates(tmp_path / "out")) == 8
    (tmp_path / "t.tar").write_bytes(bytes(10240))
    with pytest.raises(Unsupported, match="limit"):
        score(replace(request_, sources=(str(tmp_path / "t.tar"),), limit=2), tmp_path / "tar", HERE)


def test_another_file_with_the_same_weights_is_another_model(request_, run, tmp_path):
    score(request_, tmp_path / "out", HERE)
    save(Detector.load(run).model, tmp_path / "run" / "model.safetensors", classes=list("efgh"), threshold=0.55)
    with pytest.raises(Mismatch):
        score(replace(request_, model=str(tmp_path / "run")), tmp_path / "out", HERE)


def test_a_scorer_makes_them_for_paths_and_for_what_is_named(run, detector, photos, images):
    scorer = Scorer(run, eps=0.02, columns=("certificate_0.02", "label", "error"), device="cpu")
    path = str(photos / "part-0" / "000.png")
    rows = scorer({"path": [path, "nothing.png"]})
    assert json.loads(rows["certificate_0.02"][0])["input"]["name"] == path
    assert rows["certificate_0.02"][1] is None
    named = scorer({"image": images[:1], "reference": [("npz:a.npz", 3)]})
    assert json.loads(named["certificate_0.02"][0])["input"] | {"sha256": ""} == {
        "name": "npz:a.npz",
        "row": 3,
        "sha256": "",
    }
    assert len(scorer({"path": []})["certificate_0.02"]) == 0
    with pytest.raises(Mismatch):
        scorer({"image": images[:1]})
    with pytest.raises(BadValue):
        Scorer(detector, eps=0.02, columns=("certificate_0.02",))({"path": [path]})


@pytest.mark.slow
def test_the_processes_of_torchrun_share_a_folder(request_, run, photos, tmp_path):
    """Each writes its shards and waits for nobody; one that starts again makes only what is missing."""
    score(replace(request_, rows=None), tmp_path / "alone", HERE)
    command = ["certify", str(photos), "--model", str(run), "--eps", "0.004,0.02", "--device", "cpu"]
    command += ["--out", str(tmp_path / "out")]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", "localhost:0", "-m", "--", "prood", *command]
    done = subprocess.run(launch, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    assert certificates(tmp_path / "out") == certificates(tmp_path / "alone")
    shard = Path(tmp_path / "out" / "scores-000001.parquet")
    before = {file: file.stat().st_mtime_ns for file in shard.parent.glob("scores-*.parquet") if file != shard}
    shard.unlink()
    again = [sys.executable, "-m", "prood", *command, "--shard", "1/2"]
    assert "1 of 1 shards" in subprocess.run(again, capture_output=True, text=True, check=True).stderr
    assert certificates(tmp_path / "out") == certificates(tmp_path / "alone")
    assert {file: file.stat().st_mtime_ns for file in before} == before
