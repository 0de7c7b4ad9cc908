import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from prood.certification import Certificate, read, table
from prood.certification.certify import Request, stated
from prood.certification.certify import certify as certified
from prood.certification.table import CertifiedImage
from prood.certification.verify import Verifier
from prood.cli import app
from prood.data import load
from prood.detector import Detector
from prood.detector.named import Inputs, inputs
from prood.errors import BadValue, Damaged, Mismatch, ProodError, UnknownName, Unsupported
from prood.models import Discriminator, Gate, Gated, ProoD, build, save

CPU = torch.device("cpu")


def subject(path: Path, device: torch.device = CPU) -> Detector:
    detector = Detector.load(path, device=device)
    detector.path = path  # type: ignore[attr-defined]
    return detector


def certify(
    what: Detector, images: Inputs, eps: list[float], *, out: Path | None = None, **options: Any
) -> list[Certificate]:
    what.threshold = options.pop("threshold", what.threshold)
    return certified(what, what.path, images, Request(eps, **options), out)  # type: ignore[attr-defined]


def certify_images(path: Path, names: list[str], eps: list[float], **options: Any) -> list[CertifiedImage]:
    what, kept = subject(path, options.pop("device", CPU)), {key: options.pop(key, None) for key in ("out", "limit")}
    what.threshold = options.pop("threshold", what.threshold)
    return table.certify_images(what, path, names, Request(eps, **options), **kept)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A joint model, its discriminator and a classifier, with random weights that keep some units alive."""
    folder = tmp_path_factory.mktemp("runs")
    torch.manual_seed(0)
    g = build({"name": "discriminator", "size": "digits", "image": [1, 28, 28]}).eval()
    f = build({"name": "small", "classes": 4, "width": 4}).eval()
    assert isinstance(g, Discriminator)
    save(ProoD(f, g, 1.5), folder / "prood" / "model.safetensors", classes=["a", "b", "c", "d"], eps=0.1)
    save(Gated(f, g, Gate((0.0, 2.0), (-3.0, -1.0)), 1.5), folder / "gated" / "model.safetensors")
    save(g, folder / "disc" / "model.safetensors")
    save(f, folder / "plain" / "model.safetensors")
    return folder


def test_a_certificate_holds_the_bound_of_the_discriminator(runs: Path, tmp_path: Path) -> None:
    what = subject(runs / "prood", CPU)
    images = inputs(["faces:test"], what.shape, 3)
    made = certify(what, images, [0.05, 0.1], out=tmp_path / "c.jsonl", batch=2)
    floats = load("faces:test").floats([0, 1, 2])
    for place, (eps, row) in enumerate((eps, row) for eps in (0.05, 0.1) for row in range(3)):
        one = made[place]
        assert (one.input.name, one.input.row, one.eps) == ("faces:test", row, eps)
        assert one.bound == pytest.approx(what.discriminator.upper_bound(floats[row : row + 1], eps).item(), abs=1e-6)
        assert (one.shift, one.classes, one.arithmetic) == (1.5, 4, "float32")
        assert one.confidence == stated(what, one.bound)
        assert what.model.confidence(floats[row : row + 1]).item() <= one.confidence
    assert read(tmp_path / "c.jsonl")[0] == made
    assert [file.name for file in tmp_path.iterdir()] == ["c.jsonl"]


def test_a_gate_lowers_what_follows_and_no_image_exceeds_it(runs: Path, tmp_path: Path) -> None:
    what, alone, out = subject(runs / "gated"), subject(runs / "prood"), tmp_path / "c.jsonl"
    images, eps = inputs(["faces:test"], what.shape, 3), 0.02
    floats = images.read(range(3))
    noise = torch.empty(20, *floats.shape).uniform_(-eps, eps, generator=torch.Generator().manual_seed(0))
    for one, joint, image, moves in zip(
        certify(what, images, [eps], out=out), certify(alone, images, [eps]), floats, noise.unbind(1), strict=True
    ):
        assert (one.bound, one.shift, one.classes) == (joint.bound, joint.shift, joint.classes)
        assert one.confidence is not None
        assert one.confidence == pytest.approx(what.upper_bound(image[None], eps).item(), rel=1e-12)
        assert one.confidence < joint.confidence
        assert (what.predict((image + moves).clamp(0, 1)).confidence <= one.confidence).all()
    assert certify(what, images, [eps], out=out) == read(out)[0]


def test_what_follows_is_asked_of_the_model_that_a_certificate_is_about(runs: Path, tmp_path: Path) -> None:
    what, alone, out = subject(runs / "gated"), subject(runs / "prood"), tmp_path / "c.jsonl"
    images = inputs(["faces:test"], what.shape, 1)
    (joint,) = certify(alone, images, [0.02], out=out)
    (gated,) = certify(what, images, [0.02], out=out)
    assert read(out)[0] == [joint, gated]
    for forged in (
        replace(gated, confidence=joint.confidence),
        replace(gated, confidence=None),
        replace(gated, shift=0.5),
        replace(gated, classes=3),
    ):
        out.write_text(forged.to_json() + "\n")
        with pytest.raises(Damaged):
            certify(what, images, [0.02], out=out)


@pytest.mark.parametrize("run", ["prood", "gated"])
def test_an_independent_path_confirms_them(runs: Path, tmp_path: Path, run: str) -> None:
    what = subject(runs / run, CPU)
    verifier = Verifier()
    for one in certify(what, inputs(["faces:test"], what.shape, 2), [0.02]):
        assert verifier.verify(one).outcome == "confirmed"


def test_what_is_there_is_not_made_again(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "c.jsonl"
    what = subject(runs / "disc", CPU)
    images = inputs(["faces:test"], what.shape, 4)
    whole = certify(what, images, [0.1], out=out)
    lines = out.read_text().splitlines(True)
    # As an interrupted call leaves it: two whole lines, and one that was cut.
    out.write_text("".join(lines[:2]) + lines[2][:40])
    asked = []
    bound = Discriminator.upper_bound

    def counting(self: Discriminator, images: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        asked.append(len(images))
        return bound(self, images, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Discriminator, "upper_bound", counting)
    again = certify(what, images, [0.1], out=out)
    assert asked == [2]
    assert [one.bound for one in again] == pytest.approx([one.bound for one in whole], abs=1e-6)
    assert [file.name for file in tmp_path.iterdir()] == ["c.jsonl"]
    asked.clear()
    assert certify(what, images, [0.1], out=out) == again
    assert asked == []
    # Another radius is added to what was there.
    assert [one.eps for one in certify(what, images, [0.2], out=out)] == [0.2] * 4
    assert [one.eps for one in read(out)[0]] == [0.1] * 4 + [0.2] * 4


@pytest.mark.slow
def test_two_calls_may_write_one_file_at_a_time(runs: Path, tmp_path: Path) -> None:
    """Neither may remove what the other has appended since it read the parts."""
    code = (
        "import sys, torch; from pathlib import Path; from prood.detector import Detector;"
        "from prood.certification.certify import Request, certify; from prood.detector.named import inputs;"
        "torch.set_num_threads(1); what = Detector.load(sys.argv[1]);"
        "images, asked = inputs(['faces:test'], what.shape, 30), {'method': 'ibp', 'batch': 1};"
        "requests = [Request([float(eps)], **asked) for eps in sys.argv[3:]];"
        "[certify(what, sys.argv[1], images, one, Path(sys.argv[2])) for one in requests]"
    )
    radii = [["0.01", "0.02", "0.03"], ["0.04", "0.05", "0.06"]]
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(runs / "disc"), str(tmp_path / "c.jsonl"), *some])
        for some in radii
    ]
    assert [one.wait(timeout=300) for one in started] == [0, 0]
    found = sorted((one.eps, one.input.row) for one in read(tmp_path / "c.jsonl")[0])
    assert found == [(float(eps), row) for some in radii for eps in some for row in range(30)]
    assert [file.name for file in tmp_path.iterdir()] == ["c.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("run", ["prood", "disc"])
def test_auto_is_told_the_threshold(runs: Path, tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what = subject(runs / run, CPU)
    value = what.discriminator.covered(load("faces:test").floats([0])).item()
    threshold = stated(what, value + 0.05) if run == "prood" else value + 0.05
    asked = []
    bound = Discriminator.upper_bound

    def seen(self: Discriminator, images: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        asked.append(options["threshold"])
        return bound(self, images, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Discriminator, "upper_bound", seen)
    for method, told in (("auto", True), ("bab", False)):  # what bab finds is the same whatever the threshold
        asked.clear()
        certify(what, inputs(["faces:test"], what.shape, 1), [0.01], method=method, threshold=threshold)  # type: ignore[arg-type]
        assert asked == [pytest.approx(value + 0.05, abs=1e-4) if told else None]
    if isinstance(what.model, ProoD):
        assert what.rule.bound(torch.tensor(asked_of(what, threshold) + 1.5)).item() < threshold
        assert asked_of(what, 0.25) == -math.inf
        assert asked_of(what, 1.0) == math.inf
    with pytest.raises(BadValue):
        certify(what, inputs(["faces:test"], what.shape, 1), [0.01], method="auto", out=tmp_path / "c.jsonl")


def asked_of(what: Detector, threshold: float) -> float:
    what.threshold = threshold
    found, what.threshold = what.stop, None
    assert found is not None
    return found


def test_a_picture_that_changed_and_changed_back_has_its_own_bound(runs: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "c.jsonl", tmp_path / "a.png"
    what = subject(runs / "disc", CPU)
    first, second = (np.full((28, 28), value, np.uint8) for value in (40, 220))
    bounds = []
    for pixels in (first, second, first):
        Image.fromarray(pixels).save(picture)
        images = inputs([str(picture)], what.shape, None)
        (found,) = certify(what, images, [0.02], out=out)
        (alone,) = certify(what, images, [0.02])
        assert (found.input, found.bound) == (alone.input, pytest.approx(alone.bound, abs=1e-6))
        bounds.append(found.bound)
    assert bounds[0] == bounds[2] != bounds[1]
    assert len(read(out)[0]) == 2


def test_the_file_may_have_any_name_and_takes_no_other_file_for_a_part_of_it(runs: Path, tmp_path: Path) -> None:
    what = subject(runs / "disc", CPU)
    mine = tmp_path / "c[1]*?.jsonl.partial"
    mine.write_text("mine")
    found = certify(what, inputs(["faces:test"], what.shape, 2), [0.1], out=tmp_path / "c[1]*?.jsonl")
    assert read(tmp_path / "c[1]*?.jsonl")[0] == found
    assert {file.name for file in tmp_path.iterdir()} == {"c[1]*?.jsonl", mine.name}
    assert mine.read_text() == "mine"


def test_a_certificate_that_was_changed_is_not_taken_over(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"
    what = subject(runs / "disc", CPU)
    images = inputs(["faces:test"], what.shape, 2)
    certify(what, images, [0.1], out=out)
    changed = re.sub(r'"bound": [-0-9.e]+', '"bound": -50.0', out.read_text(), count=1)
    out.write_text(changed)
    with pytest.raises(Damaged, match=r"c.jsonl"):
        certify(what, images, [0.1], out=out)
    assert out.read_text() == changed


def test_an_image_without_a_bound_is_answered_and_not_written(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Discriminator.upper_bound

    def endless(self: Discriminator, images: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        found = bound(self, images, *rest, **options)  # type: ignore[arg-type]
        return torch.where(images.flatten(1).mean(1) > 0.5, torch.inf, found)

    monkeypatch.setattr(Discriminator, "upper_bound", endless)
    for name, value in (("dark", 40), ("light", 220)):
        Image.fromarray(np.full((28, 28), value, np.uint8)).save(tmp_path / f"{name}.png")
    what = subject(runs / "disc", CPU)
    images = inputs([str(tmp_path / f"{name}.png") for name in ("light", "dark")], what.shape, None)
    for _ in range(2):
        light, dark = certify(what, images, [0.1], out=tmp_path / "c.jsonl")
        assert light.bound == torch.inf
        assert read(tmp_path / "c.jsonl")[0] == [dark]


def test_the_name_of_a_picture_need_not_be_text(runs: Path, tmp_path: Path) -> None:
    picture = tmp_path / os.fsdecode(b"bad\xff.png")
    try:
        Image.fromarray(np.full((28, 28), 40, np.uint8)).save(picture)
    except OSError:
        pytest.skip("this file system takes no such names")
    what = subject(runs / "disc", CPU)
    found = certify(what, inputs([str(picture)], what.shape, None), [0.1], out=tmp_path / "c.jsonl")
    assert read(tmp_path / "c.jsonl")[0] == found
    assert Verifier().verify(found[0]).outcome == "confirmed"


def test_several_processes_write_no_single_file(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever merged it would have to read what the others wrote, and to wait for them."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    words = [
        "certify",
        "faces:test",
        "--model",
        str(runs / "prood"),
        "--limit",
        "1",
        "--out",
        str(tmp_path / "c.jsonl"),
    ]
    with pytest.raises(BadValue, match="folder"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_pictures_and_sets_are_inputs(runs: Path, tmp_path: Path) -> None:
    Image.fromarray(np.arange(30 * 40, dtype=np.uint8).reshape(30, 40)).save(tmp_path / "a.png")
    found = inputs([str(tmp_path / "a.png"), "smooth", "digits"], (1, 28, 28), 2)
    assert list(found.names) == [
        (str(tmp_path / "a.png"), None),
        ("smooth", 0),
        ("smooth", 1),
        ("digits:test", 0),
        ("digits:test", 1),
    ]
    assert torch.equal(found.read([3, 4]), load("digits:test").floats([0, 1]))
    read_all = found.read(range(5))
    assert (read_all.shape, read_all.dtype) == ((5, 1, 28, 28), torch.float32)
    assert len(inputs([f"folder:{tmp_path}"], (1, 28, 28), None)) == 1
    with pytest.raises(Mismatch, match=r"28.*28.*32.*32"):
        inputs(["digits"], (3, 32, 32), 1)
    with pytest.raises(UnknownName, match="'nothing'"):
        inputs(["nothing"], (1, 28, 28), 1)


def test_a_classifier_has_no_certificate(runs: Path) -> None:
    with pytest.raises(Unsupported):
        subject(runs / "plain", CPU)


def test_rows_say_what_the_model_makes_of_an_image(runs: Path) -> None:
    what = subject(runs / "prood", CPU)
    assert isinstance(what.model, ProoD)
    floats = load("faces:test").floats([0, 1])
    with torch.no_grad():
        confidence = what.model.confidence(floats)
    threshold = what.model.upper_bound(floats, 0.0).max().item() + 1e-3
    how: dict[str, Any] = {"limit": 2, "threshold": threshold, "radius": True, "device": CPU}
    rows = certify_images(runs / "prood", ["faces:test"], [0.0, 0.1], **how)
    assert [row.name for row in rows] == ["faces:test[0]", "faces:test[1]"]
    assert [row.answer.confidence for row in rows] == pytest.approx(confidence.tolist(), abs=1e-6)
    assert [row.answer.name for row in rows] == ["abcd"[place] for place in what.model.predict(floats).tolist()]
    for row, image in zip(rows, floats, strict=True):
        assert row.answer.confidence <= row.bounds[0] <= row.bounds[1]
        assert row.radius > 0
        assert what.model.upper_bound(image[None], row.radius).item() < threshold
    low = certify_images(runs / "disc", ["faces:test"], [0.1], limit=1, threshold=-1e9, device=CPU)
    assert np.isnan(low[0].radius)
    assert low[0].answer.confidence == pytest.approx(what.discriminator(floats[:1]).item(), abs=1e-6)


def test_with_a_file_only_the_first_are_shown(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SHOWN", 2)
    options = {"limit": 5, "device": CPU}
    assert len(certify_images(runs / "disc", ["faces:test"], [0.1], **options)) == 5
    assert len(certify_images(runs / "disc", ["faces:test"], [0.1], out=tmp_path / "c.jsonl", **options)) == 2
    assert len(read(tmp_path / "c.jsonl")[0]) == 5


def test_a_forged_certificate_is_not_taken_over(runs: Path, tmp_path: Path) -> None:
    """Anyone can write a digest: but the model's own confidence is above such a bound."""
    out = tmp_path / "c.jsonl"
    for confidence, said in ((None, "is below the model's own value"), (0.26, "was changed after it was written")):
        out.unlink(missing_ok=True)
        (made,) = certify_images(runs / "prood", ["faces:test"], [0.05], limit=1, device=CPU, out=out)
        (true,) = made.certificates
        lower = true.bound - 60.0
        forged = replace(true, bound=lower, confidence=confidence or stated(subject(runs / "prood"), lower))
        out.write_text(forged.to_json() + "\n")
        assert read(out)[0][0].intact
        with pytest.raises(ProodError, match=said):
            certify_images(runs / "prood", ["faces:test"], [0.05], limit=1, device=CPU, out=out)


def test_what_a_file_claims_is_not_shown_as_proven(runs: Path, tmp_path: Path) -> None:
    """Bound, confidence and digest rewritten, above what the model says of the image itself: no fact contradicts it."""
    out = tmp_path / "c.jsonl"
    options = {"limit": 2, "device": CPU, "out": out, "threshold": 0.9999}
    honest = certify_images(runs / "prood", ["faces:test"], [0.05], **options)
    what = subject(runs / "prood")
    lines = read(out)[0]
    value = what.discriminator(load("faces:test").floats([0])).item()
    lower = float(np.float32((value + lines[0].bound) / 2))
    assert value < lower < lines[0].bound
    forged = replace(lines[0], bound=lower, confidence=stated(what, lower))
    out.write_text(f"{forged.to_json()}\n{lines[1].to_json()}\n")
    shown = certify_images(runs / "prood", ["faces:test"], [0.05], **options)
    assert [row.bounds for row in shown] == [row.bounds for row in honest]
    assert forged.confidence < shown[0].bounds[0]
    higher = replace(lines[0], bound=lines[0].bound + 1, confidence=stated(what, lines[0].bound + 1))
    out.write_text(f"{higher.to_json()}\n")  # true, and more than needed
    assert certify_images(runs / "prood", ["faces:test"], [0.05], **options)[0].bounds == [higher.confidence]


def test_a_key_that_stands_there_twice_is_refused(runs: Path, tmp_path: Path) -> None:
    """One reader would take the first bound, and another the last."""
    out = tmp_path / "c.jsonl"
    certify_images(runs / "disc", ["faces:test"], [0.05], limit=1, device=CPU, out=out)
    out.write_text(out.read_text().replace('"bound": ', '"bound": -9.0, "bound": ', 1))
    with pytest.raises(Damaged):
        read(out)


def test_the_file_may_be_in_the_working_folder(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = subject(runs / "disc")
    monkeypatch.chdir(tmp_path)
    made = certify(what, inputs(["faces:test"], what.shape, 1), [0.1], out=Path("c.jsonl"), method="ibp")
    assert read("c.jsonl")[0] == made
    assert [file.name for file in tmp_path.iterdir()] == ["c.jsonl"]
