"""prood.guard from end to end, as a process that is killed in every stage and started again; and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import prood
from prood.errors import AlreadyThere, BadValue, Damaged, Mismatch, NotFound, ProodError, UnknownName, Unsupported
from prood.guarding import init
from prood.models import WrapOptions, build, load, small
from prood.models.files import save
from prood.studies.guarding.asked import Asked, look
from prood.studies.guarding.parts import read_parts, sizes_outside
from prood.studies.guarding.verdict import Facts
from prood.training import load_recipe
from prood.training.guard_table import GuardTable

STAGES = (
    "guard.toml",
    "images/squares/train.npz",
    "images/parts.json",
    "classifier/recipe.json",
    "discriminator/recipe.json",
    "discriminator-shift.json",
    "model.safetensors",
    "calibration.json",
    "evaluations.jsonl",
    "guard.json",
)
LASTING = ("images/parts.json", "classifier/model.safetensors", "discriminator-shift.json")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """260 squares in one of four corners, and 120 images of noise."""
    folder = tmp_path_factory.mktemp("sets")
    random = np.random.default_rng(0)
    labels = np.arange(260) % 4
    squares = random.integers(0, 50, (260, 8, 8))
    for image, label in zip(squares, labels, strict=True):
        top, left = 4 * (label // 2), 4 * (label % 2)
        image[top : top + 3, left : left + 3] += 200
    np.savez(folder / "squares.npz", images=squares.astype(np.uint8), labels=labels)
    np.savez(folder / "noise.npz", images=random.integers(0, 256, (120, 8, 8)).astype(np.uint8))
    return folder


def words(sets: Path, run: Path) -> list[str]:
    found = ["guard", "--inside", f"{sets}/squares.npz", "--outside", f"{sets}/noise.npz", "--run", str(run)]
    return [*found, "--size", "8s2 fc16", "--epochs", "3", "--minutes", "60", "--eps", "0.02"]


def start(sets: Path, run: Path) -> "subprocess.Popen[str]":
    program = "from prood.cli import main; main()"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    return subprocess.Popen([sys.executable, "-c", program, *words(sets, run)], **options)


@pytest.mark.slow
def test_a_guard_that_is_killed_in_every_stage_ends_as_if_it_were_not(sets, tmp_path):
    run, before = tmp_path / "run", {}
    for stage in STAGES:
        process, deadline = start(sets, run), time.monotonic() + 300
        while not (run / stage).is_file() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        told, _ = process.communicate()
        assert (run / stage).is_file(), told
        finished = [run / name for name in LASTING if (run / name).is_file()]
        before = {file: before.get(file, file.stat().st_mtime_ns) for file in finished}
        if not (run / "model.safetensors").is_file():
            with pytest.raises(NotFound, match="prood guard --run"):
                prood.load(run)
    last = start(sets, run)
    told, _ = last.communicate(timeout=300)
    assert last.returncode == 0, told
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert not list(run.rglob("*.part"))
    facts = json.loads((run / "guard.json").read_text())
    assert facts["verdict"] in told
    assert facts["accepted"] > 0.8
    assert 0 <= facts["provable"] <= facts["rejected"]
    assert {"report.html", "card.md", "calibration.json"} <= {file.name for file in run.iterdir()}

    again = prood.guard(inside=sets / "squares.npz", outside=sets / "noise.npz", run=run)  # nothing is left to do
    assert str(again) == facts["verdict"]
    assert "provably at eps=0.02" in repr(again)
    assert len(repr(again)) < 300
    assert again.detector.threshold == facts["threshold"]
    with pytest.raises(Mismatch, match="eps"):
        prood.guard(inside=sets / "squares.npz", outside=sets / "noise.npz", run=run, eps=0.3)


@pytest.mark.slow
def test_a_classifier_that_is_there_keeps_its_answers_and_its_size(sets, tmp_path):
    """A network of 16×16 images beside a discriminator; its classes are those of the set."""
    images = np.load(sets / "squares.npz")
    whole = np.repeat(np.repeat(images["images"], 2, 1), 2, 2)
    names = ("top left", "top right", "bottom left", "bottom right")
    np.savez(tmp_path / "large.npz", images=whole, labels=images["labels"], classes=np.array(names))
    others = np.load(sets / "noise.npz")["images"]
    np.savez(tmp_path / "others.npz", images=np.repeat(np.repeat(others, 2, 1), 2, 2))
    first = prood.guard(
        inside=tmp_path / "large.npz",
        outside=tmp_path / "others.npz",
        run=tmp_path / "first",
        size="8s2 fc16",
        epochs=2,
    )
    assert first.detector.classes == names
    bare, about = load(tmp_path / "first" / "classifier")
    save(bare, tmp_path / "bare" / "model.safetensors", image=[1, 16, 16])  # it names no classes
    guarded = prood.guard(
        tmp_path / "bare",
        inside=tmp_path / "large.npz",
        outside=tmp_path / "others.npz",
        run=tmp_path / "second",
        size="8s2 fc16",
        epochs=2,
        accept=0.9,
    )
    assert guarded.facts.accuracy == first.facts.accuracy
    assert guarded.detector.shape == (1, 16, 16)
    assert guarded.detector.classes == names
    assert guarded.detector.tpr == 0.9
    assert prood.Detector.load(tmp_path / "second").calibration is not None

    more = build(about.architecture | {"classes": 5})  # and this one has a class that no folder is for
    weights = bare.state_dict()
    last = list(weights)[-2:]
    weights |= {last[0]: torch.cat([torch.zeros_like(weights[last[0]][:1]), weights[last[0]]])}
    weights |= {last[1]: torch.cat([torch.tensor([-50.0]), weights[last[1]]])}
    more.load_state_dict(weights)
    save(more, tmp_path / "more" / "model.safetensors", image=[1, 16, 16])
    (tmp_path / "names.txt").write_text("\n".join(["other", *names]))
    third = prood.guard(
        tmp_path / "more",
        inside=tmp_path / "large.npz",
        outside=tmp_path / "others.npz",
        run=tmp_path / "third",
        size="8s2 fc16",
        epochs=2,
        classes=str(tmp_path / "names.txt"),
    )
    assert third.facts.accuracy == first.facts.accuracy
    assert third.detector.classes == ("other", *names)


def picture(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(file)


def test_what_cannot_be_guarded_is_refused_in_one_line(sets, tmp_path):
    inside, outside = str(sets / "squares.npz"), str(sets / "noise.npz")

    def refused(kind: type[ProodError], *path: str, **options: object) -> str:
        given = {"inside": inside, "outside": outside, "run": tmp_path / "run"} | options
        with pytest.raises(kind) as told:
            prood.guard(*path, **given)
        assert "\n" not in str(told.value)
        return str(told.value)

    (tmp_path / "empty").mkdir()
    refused(NotFound, inside=str(tmp_path / "empty"))
    refused(UnknownName, inside=str(tmp_path / "no/such"))
    refused(NotFound, inside=None)
    for row in range(10):
        picture(tmp_path / "ten" / "ab"[row % 2] / f"{row}.png", row)
        picture(tmp_path / "one" / "cat" / f"{row}.png", row)
    picture(tmp_path / "beside" / "cat" / "1.png", 1)
    picture(tmp_path / "beside" / "stray.png", 2)
    assert "stray.png lies beside" in refused(BadValue, inside=str(tmp_path / "beside"))
    assert not (tmp_path / "run").exists()
    assert "10 images" in refused(BadValue, inside=str(tmp_path / "ten"), outside=None)
    assert "one class" in refused(BadValue, inside=str(tmp_path / "one"))
    np.savez(tmp_path / "few.npz", images=np.load(outside)["images"][:50])
    assert "50 images" in refused(BadValue, outside=str(tmp_path / "few.npz"))
    np.savez(tmp_path / "other.npz", images=np.zeros((200, 9, 9), np.uint8))
    assert "9×9" in refused(Mismatch, outside=str(tmp_path / "other.npz"))
    (tmp_path / "file").write_text("")
    refused(BadValue, run=tmp_path / "file")
    refused(NotFound, "no-such-model.onnx")
    refused(BadValue, eps=1.5)
    refused(BadValue, epochs=-1)
    assert "inside and outside" in refused(BadValue, outside=inside)
    with pytest.raises(BadValue, match=r"3 images outside, as 9 more are inside, too, are too few"):
        sizes_outside(3, GuardTable(), shared=9)
    refused(UnknownName, provable="lots")


def test_a_guard_that_is_continued_runs_no_code_of_its_folder(tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()")
    (tmp_path / "guard.toml").write_text('modules = ["evil.py"]\n[data]\ninside = "digits:train"\noutside = "made:9"\n')
    for where in ({"run": tmp_path}, {"run": tmp_path / "new", "recipe": tmp_path / "guard.toml"}):
        with pytest.raises(Unsupported, match="evil"):
            prood.guard(**where)
    assert not (tmp_path / "trace").exists()


def test_damaged_parts_are_one_line(tmp_path):
    for text in ("[" * 100_000, "null", "{}"):
        (tmp_path / "parts.json").write_text(text)
        with pytest.raises(Damaged, match="remove the folder"):
            read_parts(tmp_path)


@pytest.mark.slow
def test_damaged_pictures_and_classes_of_another_classifier_are_named(sets, tmp_path):
    for row in range(300):
        picture(tmp_path / "in" / "ab"[row % 2] / f"{row:03}.png", row)
    (tmp_path / "in" / "a" / "002.png").write_bytes(b"no picture")
    (tmp_path / "in" / "b" / "001.png").write_bytes(b"nor this")
    with pytest.raises(Damaged, match=r"2 of 300 .*a/002\.png .*b/001\.png .*--damaged skip"):
        prood.guard(inside=tmp_path / "in", run=tmp_path / "run", size="8s2 fc16", epochs=1)
    found = look(Asked(f"folder:{tmp_path}/in", damaged="skip"))
    assert len(found.inside) == 298
    assert "left out, as they cannot be read, are a/002.png" in str(found)
    wrong = small(3, width=4)
    save(wrong, tmp_path / "wrong" / "model.safetensors", classes=["x", "y", "z"], image=[1, 8, 8])
    options = {"inside": sets / "squares.npz", "outside": sets / "noise.npz", "size": "8s2 fc16", "epochs": 1}
    with pytest.raises(Mismatch, match="label 3"):  # four classes against three
        prood.guard(tmp_path / "wrong", run=tmp_path / "second", **options)
    save(small(4, width=4), tmp_path / "bad" / "model.safetensors", image=[1, 8, 8])
    assert load(tmp_path / "bad")[1].image == [1, 8, 8]
    with pytest.raises(Mismatch, match="--classes"):  # it was never trained
        prood.guard(tmp_path / "bad", run=tmp_path / "third", **options)
    assert not (tmp_path / "third").exists()  # so the corrected command may name it again
    with pytest.raises((NotFound, AlreadyThere, ProodError)):
        prood.guard(tmp_path / "nowhere", run=tmp_path / "fourth", **options)


def test_what_is_said_about_a_classifier_is_in_the_recipe_but_for_trust(sets, tmp_path):
    inside, outside = str(sets / "squares.npz"), str(sets / "noise.npz")
    program = torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), torch.rand(2, 1, 8, 8))
    program.save(tmp_path / "model.pt")
    told = {"inside": inside, "outside": outside, "size": "8s2 fc16", "epochs": 1}
    said = WrapOptions(trust_code=True, probabilities=False, mean=(0.5,), std=(0.5,))
    with pytest.raises(Unsupported, match="--trust-code"):
        init(tmp_path / "refused.toml", tmp_path / "model.pt", **told)
    init(tmp_path / "guard.toml", tmp_path / "model.pt", **told, options=said)
    table = load_recipe(str(tmp_path / "guard.toml")).guard
    assert (table.probabilities, table.mean, table.std) == (False, (0.5,), (0.5,))
    assert "trust_code" not in (tmp_path / "guard.toml").read_text()
    with pytest.raises(BadValue, match="joint_image"):
        init(tmp_path / "other.toml", tmp_path / "model.pt", **told, options=WrapOptions(resize=9))
    for row in range(4):
        picture(tmp_path / "in" / "ab"[row % 2] / f"{row}.png", row)
    asked = Asked(f"folder:{tmp_path}/in", options=WrapOptions(joint_image=(3, 16, 16)))
    assert look(asked).image == (3, 16, 16)
    assert look(replace(asked, options=WrapOptions())).image == (3, 9, 9)


FACTS = Facts(0.01, 0.6, 0.955, 0.98, 0.97, 0.87, 0.99, 0.995, None, 1000, 500, made=False)


def test_the_paragraph_says_what_was_measured_and_whether_it_pays():
    said = FACTS.paragraph()
    assert all(number in said for number in ("99.0%", "95.5%", "98.0%", "97.0%", "87.0%", "0.01", "1,000", "500"))
    assert "It pays:" in said
    assert "points" not in said
    assert "2.0 points" in replace(FACTS, rejected=0.95).paragraph()
    assert "not pay" in replace(FACTS, provable=0.01).paragraph()
    assert "as a detector it does" in replace(FACTS, provable=0.0, rejected_alone=0.5).paragraph()
    assert "far less" in replace(FACTS, made=True).paragraph()
    assert "right" not in replace(FACTS, accuracy=None, largest=0.9).paragraph()
    assert "largest" not in replace(FACTS, largest=0.5).paragraph()
    assert "the largest class would be right for 71.0%" in replace(FACTS, largest=0.71).paragraph()
