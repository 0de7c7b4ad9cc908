"""A detector that was pushed to the Hub, or written as the Hub has it, comes back as it was.

The client is the real one of `huggingface_hub`. The server is on this machine, and speaks the part of the Hub's
interface that the client uses.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import prood
from prood import Detector
from prood.cli import main
from prood.errors import AlreadyThere, BadValue, Damaged, MissingPackage, NotFound, ProodError, Unreachable, Unsupported
from prood.models import ProoD, read_metadata, save
from prood.pretrained import hub as names
from prood.scoring import Scorer


def _serving():
    spec = importlib.util.spec_from_file_location("hub_server", Path(__file__).with_name("hub_server.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.serving()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The client with a Hub on this machine, and an empty cache."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with _serving() as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        names._fetched.cache_clear()
        yield server
    names._fetched.cache_clear()


@pytest.fixture
def calibrated(model, digits) -> Detector:
    detector = Detector(model, classes=tuple("abcdefgh"))
    detector.calibrate(digits[:100], accept=0.9)
    return detector


def the_same(one: Detector, other: Detector, images) -> None:
    assert (one.threshold, one.classes, one.accept, one.shape) == (
        other.threshold,
        other.classes,
        other.accept,
        other.shape,
    )
    before, after = one.predict(images), other.predict(images)
    for name in ("label", "confidence", "p_in", "accepted", "p_value"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


def refused(kind: type[ProodError], name: str, match: str, **how) -> None:
    with pytest.raises(kind, match=match) as caught:
        Detector.from_pretrained(name, **how)
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_holds_what_the_hub_expects(calibrated, digits, tmp_path):
    calibrated.save_pretrained(tmp_path / "guard", licence="mit")
    files = {file.name for file in (tmp_path / "guard").iterdir()}
    assert files == {"config.json", "model.safetensors", "README.md", "calibration.json"}
    config = json.loads((tmp_path / "guard" / "config.json").read_text())
    assert (config["library_name"], config["image"], config["classes"]) == ("prood", [1, 28, 28], list("abcdefgh"))
    assert set(config["files"]) == {"model.safetensors", "calibration.json"}
    card = (tmp_path / "guard" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: prood\n")
    assert 'license: "mit"' in card.split("---")[1]
    assert card.split("\n# ")[1].startswith("guard\n")
    the_same(Detector.from_pretrained(tmp_path / "guard"), calibrated, digits[100:150])
    assert prood.load(str(tmp_path / "guard")).shift.item() == 1.5
    with pytest.raises(AlreadyThere):
        calibrated.save_pretrained(tmp_path / "guard")
    refused(BadValue, str(tmp_path / "guard"), "revision", revision="v1")


def test_the_card_may_be_written_by_hand(calibrated, tmp_path):
    calibrated.save_pretrained(tmp_path / "a", card="# Mine\n")
    assert (tmp_path / "a" / "README.md").read_text().endswith("---\n\n# Mine\n")
    calibrated.save_pretrained(tmp_path / "b", card="---\nlicense: mit\n---\n# Mine\n")
    assert (tmp_path / "b" / "README.md").read_text() == "---\nlicense: mit\n---\n# Mine\n"


def test_no_folder_of_the_author_goes_along(model, tmp_path):
    recipe = {"discriminator_run": "/home/somebody/runs/disc"}
    data = {"folder:/home/somebody/cats/train": "1", "cifar100:train": "2"}
    save(model, tmp_path / "run" / "model.safetensors", recipe=recipe, data=data, inside=next(iter(data)), eps=0.1)
    Detector.load(tmp_path / "run").save_pretrained(tmp_path / "guard")
    about = read_metadata(tmp_path / "guard")
    assert (about.recipe, about.inside, about.eps) == (None, "folder:train", 0.1)
    assert about.data == {"folder:train": "1", "cifar100:train": "2"}
    for file in (tmp_path / "guard").iterdir():
        assert b"somebody" not in file.read_bytes(), file


def test_a_changed_file_is_refused(calibrated, tmp_path):
    def rewritten(change) -> str:
        folder = tmp_path / f"{change.__name__}"
        calibrated.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        change(folder, config)
        if (folder / "config.json").is_file():
            (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        return str(folder)

    def calibration(folder, config):
        (folder / "calibration.json").write_text("{}")

    def missing(folder, config):
        (folder / "calibration.json").unlink()

    def pickled(folder, config):
        (folder / "pytorch_model.bin").write_bytes(b"")
        config["files"]["pytorch_model.bin"] = "0"

    def outside(folder, config):
        config["files"]["../model.safetensors"] = "0"

    def newer(folder, config):
        config["format"] = 2

    def another(folder, config):
        config["library_name"] = "transformers"

    def unlisted(folder, config):
        config["files"] = {}

    def without(folder, config):
        (folder / "config.json").unlink()

    def added(folder, config):
        (folder / "classifier-0.onnx").write_bytes(b"")

    for change in (calibration, missing, pickled, outside, unlisted, added):
        refused(Damaged, rewritten(change), ".")
    refused(Unsupported, rewritten(newer), "newer")
    refused(NotFound, rewritten(another), "push_to_hub")
    refused(NotFound, rewritten(without), r"config\.json")
    (tmp_path / "newer" / "config.json").write_text("{")
    refused(Damaged, str(tmp_path / "newer"), "cannot be read")


@pytest.mark.slow
def test_what_was_pushed_is_fetched_by_name_and_by_commit(hub, calibrated, digits):
    first = calibrated.push_to_hub("me/guard")
    assert first == f"hf:me/guard@{hub.refs['me/guard', 'main']}"
    other = Detector(calibrated.model, classes=calibrated.classes, threshold=0.5)
    assert other.push_to_hub("hf:me/guard", revision="strict").endswith(hub.refs["me/guard", "strict"])
    the_same(Detector.from_pretrained("me/guard"), calibrated, digits[100:120])
    the_same(Detector.load(first), calibrated, digits[100:120])
    strict = Detector.from_pretrained("me/guard", revision="strict")
    assert (strict.threshold, strict.calibration) == (0.5, None)  # the branch began with the calibration of main
    assert prood.load("hf:me/guard@strict").threshold == 0.5
    asked = len(hub.asked)
    assert Scorer("hf:me/guard")({"image": digits[:2]})["label"].shape == (2,)
    assert len(hub.asked) == asked  # a process asks once


def test_what_is_cached_needs_no_network(calibrated, digits, tmp_path, monkeypatch, request):
    server = request.getfixturevalue("hub")
    name = calibrated.push_to_hub("me/guard")
    prood.load("hf:me/guard")
    from huggingface_hub import constants

    snapshot = tmp_path / "cache" / "models--me--guard" / "snapshots" / server.refs["me/guard", "main"]
    assert {file.name for file in snapshot.iterdir()} == {"config.json", "model.safetensors", "calibration.json"}
    names._fetched.cache_clear()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}")
    the_same(Detector.load("hf:me/guard"), calibrated, digits[100:110])
    the_same(Detector.load(name), calibrated, digits[100:110])
    refused(Unreachable, "me/other", "network")


def test_only_the_files_of_a_model_are_fetched_and_all_are_compared(hub, calibrated, tmp_path):
    calibrated.push_to_hub("me/guard")
    hub.commit("me/guard", "main", {"pytorch_model.bin": b"\x80\x04", "run.py": b"import os"})
    prood.load("hf:me/guard")
    assert not list((tmp_path / "cache").rglob("pytorch_model.bin")) + list((tmp_path / "cache").rglob("run.py"))
    hub.commit("me/guard", "main", {"calibration.json": b"{}"})
    names._fetched.cache_clear()
    refused(Damaged, "me/guard", "checksum")


def test_what_is_not_there_is_one_line(hub, calibrated):
    calibrated.push_to_hub("me/guard")
    hub.commit("me/foreign", "main", {"config.json": b'{"model_type": "vit"}'})
    refused(NotFound, "me/none", "me/none")
    refused(NotFound, "me/guard", "revision", revision="v9")
    refused(NotFound, "me/foreign", "another library")
    refused(BadValue, "guard", "USER/NAME")
    refused(BadValue, "me/guard@a", "revision", revision="b")
    with pytest.raises(BadValue):
        calibrated.push_to_hub("me/guard@main")


@pytest.mark.slow
def test_commands_take_the_name(hub, calibrated, capsys, monkeypatch):
    calibrated.push_to_hub("me/guard")
    monkeypatch.setattr("sys.argv", ["prood", "info", "hf:me/guard"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert "90% of in-distribution images are not" in capsys.readouterr().out


def test_without_the_package_the_line_names_the_extra(monkeypatch):
    monkeypatch.setattr("prood.extras.find_spec", lambda name: None)
    names._fetched.cache_clear()
    with pytest.raises(MissingPackage, match=r"\[hub\]"):
        prood.load("hf:me/guard")


def test_torchscript_still_needs_trust(hub, model, digits, tmp_path):
    import torch

    class Own(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :8] * 9

    file = tmp_path / "own.pt"
    torch.jit.script(Own()).save(str(file))
    wrapped, _ = prood.models.open_classifier(str(file), (1, 28, 28), options=prood.models.WrapOptions(trust_code=True))
    detector = Detector(ProoD(wrapped, model.discriminator, 1.0), threshold=0.5)
    detector.push_to_hub("me/script")
    refused(Unsupported, "me/script", "trust_code")
    the_same(Detector.from_pretrained("me/script", trust_code=True), detector, digits[:5])
