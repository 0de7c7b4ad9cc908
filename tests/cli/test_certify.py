import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from prood.cli import app
from prood.errors import ProodError
from prood.models import ProoD, discriminator, save, small


@pytest.fixture
def run(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = ProoD(small(3, width=4), discriminator("digits", image=(1, 28, 28)), 1.0)
    save(model, tmp_path / "run" / "model.safetensors", classes=["zero", "one", "two"], eps=0.1)
    return tmp_path / "run"


def call(*words: str) -> str:
    result = CliRunner().invoke(app, ["certify", *words, "--device", "cpu"], env={"COLUMNS": "160"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_it_prints_class_confidence_bound_and_radius(run: Path) -> None:
    out = call("faces", "--model", str(run), "--eps", "0.01,8/255", "--limit", "2", "--threshold", "0.999")
    for word in (
        "class",
        "confidence",
        "p(in)",
        "≤ within 0.01 (linf)",
        "≤ within 0.03137 (linf)",
        "verdict",
        "an image is rejected below 0.999",
    ):
        assert word in out
    assert out.count("faces:test[") == 2
    assert out.count("stays rejected for every change up to 0.03137") == 2


def test_the_radius_is_searched_only_when_asked_and_eps_is_the_models_own(run: Path) -> None:
    words = ("faces", "--model", str(run), "--limit", "1", "--threshold", "0.999")
    plain = call(*words)
    assert "≤ within 0.1 (linf)" in plain
    assert "stays rejected for every change up to 0.1 " in plain
    assert "stays rejected for every change up to 1 " in call(*words, "--radius")  # this model is never so sure
    save(ProoD(small(3, width=4), discriminator("digits", image=(1, 28, 28)), 1.0), run.parent / "m.safetensors")
    with pytest.raises(ProodError, match="--eps"):
        call("faces", "--model", str(run.parent / "m.safetensors"))


def test_without_a_threshold_nothing_is_rejected(run: Path) -> None:
    out = call("faces", "--model", str(run), "--eps", "0.01", "--limit", "1", "--norm", "l2")
    assert "verdict" not in out
    assert "threshold: none" in out


def test_a_file_of_certificates_is_verified(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "certificates.jsonl"
    assert f"wrote {out}" in call("faces", "--model", str(run), "--eps", "0.02", "--limit", "2", "--out", str(out))
    assert len(out.read_text().splitlines()) == 2
    result = CliRunner().invoke(app, ["verify", str(out), "--strict"], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    assert "2 confirmed, 0 refuted" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["faces", "--eps", "0.1", "--method", "magic"], "unknown bound method 'magic': choose one of best"),
        (["faces", "--eps", "0.1", "--norm", "l3"], "unknown norm 'l3'"),
        (["faces", "--eps", "wide"], "not 'wide'"),
        (["nothing", "--eps", "0.1"], "no image set 'nothing'"),
        (["npz:none.npz", "--eps", "0.1"], "there is no file none.npz"),
    ],
)
def test_wrong_words_are_one_line(run: Path, words: list[str], said: str) -> None:
    with pytest.raises(ProodError, match=said):
        call(*words, "--model", str(run), "--limit", "1")


@pytest.mark.parametrize("key", ["bound", "eps", "confidence"])
def test_the_smallest_change_of_a_number_is_refuted(run: Path, tmp_path: Path, key: str) -> None:
    out = tmp_path / "certificates.jsonl"
    call("faces", "--model", str(run), "--eps", "0.02", "--limit", "1", "--out", str(out))
    values = json.loads(out.read_text())
    values[key] = math.nextafter(values[key], math.inf)  # still true, but not what was written
    out.write_text(json.dumps(values) + "\n")
    assert CliRunner().invoke(app, ["verify", str(out)], catch_exceptions=False).exit_code == 1


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Two with long names that differ at their ends."""
    found = [tmp_path / f"{'a picture with quite a long name ' * 3}{number}.png" for number in range(2)]
    for file in found:
        Image.new("L", (28, 28), 100).save(file)
    return found


def piped(*words: object) -> list[str]:
    """The lines that a pipe gets."""
    unset = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "prood", *map(str, words)]
    return subprocess.run(command, env=unset, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_a_pipe_gets_a_line_for_each_image(run: Path, pictures: list[Path]) -> None:
    words = ("--model", run, "--eps", "0.01,0.02,0.03", "--threshold", "0.999", "--device", "cpu")
    lines = piped("certify", *pictures, *words)
    for file in pictures:
        assert sum(str(file) in line and "stays rejected" in line for line in lines) == 1
    (head,) = (line for line in lines if "confidence" in line)
    assert head.count("≤ within") == 3


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii"])
def test_names_that_are_no_text_in_any_encoding(run: Path, tmp_path: Path, monkeypatch, encoding: str) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    Image.new("L", (28, 28), 100).save(file)
    lines = piped("certify", file, "--model", run, "--eps", "0.01", "--device", "cpu")
    assert sum("\\udcff.png" in line for line in lines) == 1


@pytest.mark.slow
def test_info_in_a_pipe_keeps_lines_and_brackets(run: Path) -> None:
    moved = run.rename(run.with_name("runs [v2] of a long name " * 4))
    lines = piped("info", moved)
    assert f"file          {moved / 'model.safetensors'}" in lines
    assert sum(line.startswith("architecture  {") and line.endswith("}") for line in lines) == 1


def test_a_narrow_terminal_loses_nothing(prood, run: Path, pictures: list[Path]) -> None:
    words = ("--model", run, "--eps", "0.01,0.02", "--threshold", "0.999", "--device", "cpu")
    _, out, _ = prood("certify", *pictures, *words, columns=80)
    assert "…" not in out
    (head,) = (line for line in out.splitlines() if "image" in line and "class" in line)
    first = "".join(line[: head.index("class")] for line in out.splitlines()).replace(" ", "")
    for file in pictures:
        assert str(file).replace(" ", "") in first
    assert max(map(len, out.splitlines())) <= 80
