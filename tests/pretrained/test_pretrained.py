"""Models that come with Prood: found by name, overruled by what is on disk, and as good as their description."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

import prood
from prood import pretrained
from prood.certification import file_sha256, read
from prood.cli import app
from prood.errors import MissingPackage, NoAccess, NotFound, UnknownName
from prood.models import Discriminator, ProoD, build, fingerprint, load, model_path, read_metadata, save
from prood.studies.publishing import portable

LIMIT = 29_000_000
REAL = pretrained.FOLDER


def joint(seed: int = 0) -> ProoD:
    torch.manual_seed(seed)
    g = build({"name": "discriminator", "size": "digits", "image": [3, 8, 8]})
    assert isinstance(g, Discriminator)
    return ProoD(
        build({"name": "small", "classes": 3, "width": 4, "mean": [0.5] * 3, "std": [0.25] * 3}), g, 1.0
    ).eval()


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two models, in the place of the package's, and an empty one to work in."""
    folder = tmp_path / "shipped"
    facts = {"classes": ["cat", "dog", "owl"], "eps": 0.01, "threshold": 0.9999, "accept": 0.95}
    for seed, name in enumerate(("toys", "animals")):
        save(joint(seed), folder / f"{name}.safetensors", half=True, **facts)
        (folder / f"{name}.md").write_text(f"# {name}\nÜber {name}.\n", encoding="utf-8")
    (folder / "notes.safetensors.part").write_text("no model yet")
    (folder / "notes.sha256").write_text("no model")
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


# By name


def test_names_paths_and_cards(shipped: Path) -> None:
    assert pretrained.names() == ("animals", "toys")
    assert pretrained.listed() == "animals, toys"
    assert pretrained.path("toys") == shipped / "toys.safetensors"
    for name in "zgmhbqa":
        (shipped / f"{name}.safetensors").touch()
    assert pretrained.names() == ("a", "animals", "b", "g", "h", "m", "q", "toys", "z")
    assert pretrained.card("toys") == "# toys\nÜber toys.\n"
    (shipped / "toys.md").unlink()
    with pytest.raises(NoAccess, match=r"toys\.md"):
        pretrained.card("toys")


@pytest.mark.parametrize("name", ["cars", "", "../shipped/toys", "toys.safetensors", "notes"])
def test_an_unknown_name(shipped: Path, name: str) -> None:
    for act in (pretrained.path, pretrained.card):
        with pytest.raises(UnknownName):
            act(name)
    if name and "/" not in name:
        with pytest.raises(NotFound, match=name):
            prood.load(name)


def test_load(shipped: Path) -> None:
    model = prood.load("toys")
    assert isinstance(model, ProoD)
    assert (model.classes, model.threshold, model.shift.item()) == (("cat", "dog", "owl"), 0.9999, 1.0)
    assert not model.training
    assert fingerprint(model) == fingerprint(load(shipped / "toys.safetensors")[0])
    assert fingerprint(model) != fingerprint(prood.load("animals"))
    assert model_path("toys") == model_path(Path("toys")) == shipped / "toys.safetensors"
    assert read_metadata("toys").accept == 0.95


def test_what_is_on_disk_wins(shipped: Path) -> None:
    save(joint(7), Path("toys"))
    save(joint(8), Path("animals") / "model.safetensors")
    assert fingerprint(prood.load("toys")) == fingerprint(joint(7))
    assert fingerprint(prood.load("animals")) == fingerprint(joint(8))
    Path("animals/model.safetensors").unlink()
    with pytest.raises(NotFound, match=r"animals/model\.safetensors"):
        prood.load("animals")


def test_a_name_means_a_name_and_no_path(shipped: Path) -> None:
    assert model_path("./toys.safetensors") == Path("toys.safetensors")
    assert model_path("sub/toys") == Path("sub/toys")


# On the command line


@pytest.mark.slow
def test_certify_a_photo(shipped: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("photo.png")
    out = call(
        "certify", "photo.png", "--model", "toys", "--eps", "0.01", "--device", "cpu", "--radius", "--out", "c.jsonl"
    )
    for word in ("class", "confidence", "p(in)", "≤ within 0.01 (linf)", "photo.png"):
        assert word in out
    assert "stays rejected for every change up to" in " ".join(out.split())
    assert any(name in out for name in ("cat", "dog", "owl"))
    (certificate,) = read("c.jsonl")[0]
    assert certificate.model.path == "toys"
    assert "1 confirmed, 0 refuted" in call("verify", "c.jsonl", "--strict")
    assert "1 confirmed, 0 refuted" in call("verify", "c.jsonl", "--strict", "--model", "toys")
    assert certificate.model.sha256 == file_sha256(shipped / "toys.safetensors")
    out = call("certify", "photo.png", "--model", "toys", "--eps", "0.01", "--device", "cpu", "--threshold", "0.1")
    assert "provably" not in out
    with pytest.raises(NotFound):
        call("certify", "photo.png", "--model", "cars", "--eps", "0.01", "--device", "cpu")


def test_info(shipped: Path) -> None:
    out = call("info", "toys")
    assert str(shipped / "toys.safetensors") in out
    assert "an image is rejected below 0.9999: 95% of in-distribution images are not" in out
    assert str(shipped / "toys.md") in out
    save(joint(), Path("run") / "model.safetensors")
    out = call("info", "run")
    assert "rejected" not in out
    assert "model card" not in out


@pytest.mark.slow
def test_the_help_lists_what_is_shipped(shipped: Path) -> None:
    """In a process of its own: the text is made when the command line is imported."""
    code = f"""
from pathlib import Path
from prood import pretrained
pretrained.FOLDER = Path({str(shipped)!r})
from typer.testing import CliRunner
from prood.cli import app
for command in ("info", "certify"):
    print(CliRunner().invoke(app, [command, "--help"], env={{"COLUMNS": "200"}}).output)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("(animals, toys)") == 2


# What is really shipped; the tests of single models are as many as there are models


def test_the_package_stays_small() -> None:
    assert sum(file.stat().st_size for file in REAL.rglob("*") if file.is_file()) <= LIMIT


def test_every_card_belongs_to_a_model() -> None:
    assert {file.stem for file in REAL.glob("*.md")} == set(pretrained.names())


@pytest.mark.slow
@pytest.mark.parametrize("name", pretrained.names())
def test_a_shipped_model_is_complete(name: str) -> None:
    about = read_metadata(pretrained.path(name))
    try:
        model = prood.load(str(pretrained.path(name)))
    except MissingPackage as error:
        pytest.skip(str(error))
    assert isinstance(model, ProoD)
    images = torch.rand(2, *about.architecture["discriminator"].get("image", (3, 32, 32)))
    with torch.no_grad():
        logits = model(images)
    assert about.classes is not None
    assert logits.shape == (2, len(about.classes))
    assert len(set(about.classes)) == len(about.classes)
    assert model.classes == tuple(about.classes)
    assert about.shift == model.shift.item()
    assert about.threshold is not None
    assert 1 / len(about.classes) < about.threshold < 1
    assert model.threshold == about.threshold
    assert portable(about.recipe) == about.recipe  # no folder of the machine that trained it
    assert about.accept == 0.95
    assert about.eps is not None
    assert about.eps > 0
    assert (model.confidence(images) <= model.upper_bound(images, about.eps)).all()


@pytest.mark.parametrize("name", pretrained.names())
def test_a_shipped_model_is_in_half_precision(name: str, tmp_path: Path) -> None:
    stored = load_file(pretrained.path(name))
    for tensor, value in stored.items():
        if value.is_floating_point():
            assert value.dtype == (torch.float16 if value.ndim >= 2 else torch.float32), tensor
            assert value.isfinite().all(), tensor


@pytest.mark.parametrize("name", pretrained.names())
def test_a_shipped_model_has_a_card(name: str) -> None:
    text = pretrained.card(name)
    assert text.startswith("# ")
    assert len(text) > 500
    assert f"{read_metadata(pretrained.path(name)).threshold:g}" in text
    assert f'prood.load("{name}")' in text
