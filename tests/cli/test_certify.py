import json
import math
from pathlib import Path

import pytest
import torch
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
        "rejected",
        "radius",
    ):
        assert word in out
    assert out.count("faces:test[") == 2
    assert out.count("provably") == 2


def test_without_a_threshold_nothing_is_rejected(run: Path) -> None:
    assert "rejected" not in call("faces", "--model", str(run), "--eps", "0.01", "--limit", "1", "--norm", "l2")


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
        (["faces", "--eps", "wide"], "'wide' is no radius"),
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
    with pytest.raises(ProodError, match="1 of 1 certificates are refuted"):
        CliRunner().invoke(app, ["verify", str(out)], catch_exceptions=False)
