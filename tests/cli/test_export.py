import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner

from prood.cli import app
from prood.errors import AlreadyThere, BadValue, NotFound, ProodError, Unsupported
from prood.export import open_session, run
from prood.models import ProoD, discriminator, save, small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    g = discriminator("digits", image=(1, 28, 28))
    model = ProoD(small(3, width=4), g, 1.0)
    save(model, place / "run" / "model.safetensors", classes=["null", "eins", "zwei"], threshold=0.7)
    save(g, place / "disc" / "model.safetensors")
    return place


def call(*words: str) -> str:
    result = CliRunner().invoke(app, ["export", *words], env={"COLUMNS": "160"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_a_run_becomes_a_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = folder / "model.onnx"
    first, second = call(str(folder / "run"), str(file), "--opset", "21").splitlines()
    assert capfd.readouterr() == ("", "")  # neither the exporter nor the runtime adds lines of its own
    assert first == f"wrote {file}"
    assert second.startswith("ONNX Runtime and torch differ by at most ")
    model = onnx.load(file)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts["sha256"] == hashlib.sha256((folder / "run" / "model.safetensors").read_bytes()).hexdigest()
    assert facts["classes"] == '["null", "eins", "zwei"]'
    assert facts["threshold"] == "0.7"
    assert model.opset_import[0].version == 21
    got = run(open_session(file), torch.rand(2, 1, 28, 28), 0.1)
    assert (got["confidence"] <= got["upper_bound"]).all()
    assert np.all(got["upper_bound"] <= 1)
    with pytest.raises(AlreadyThere):
        call(str(folder / "run"), str(file))


@pytest.mark.parametrize(
    ("run", "words", "kind", "value"),
    [
        ("nothing", ["model2.onnx"], NotFound, "nothing"),
        ("disc", ["model2.onnx"], Unsupported, "discriminator"),
        ("run", ["model2.zip"], BadValue, "model2.zip"),
        ("run", ["model2.onnx", "--opset", "9"], BadValue, "18 to 21, not 9"),
    ],
)
def test_wrong_words_are_one_line(folder: Path, run: str, words: list[str], kind: type[ProodError], value: str) -> None:
    with pytest.raises(kind, match=value):
        call(str(folder / run), str(folder / words[0]), *words[1:])
    assert not (folder / words[0]).exists()


def test_instances_for_other_verifiers(folder: Path, tmp_path: Path) -> None:
    words = [str(folder / "run"), str(tmp_path / "out"), "--vnnlib", "uniform", "--eps", "8/255", "--limit", "3"]
    first, second = call(*words).splitlines()
    assert first.startswith(f"wrote {tmp_path / 'out'}: 3 instances, g ≥ ")
    assert second.startswith("ONNX Runtime and torch differ by at most ")
    assert len((tmp_path / "out" / "instances.csv").read_text().splitlines()) == 3
    again = [words[0], str(tmp_path / "again"), *words[2:]]
    call(*again)
    for file in (path for path in (tmp_path / "out").rglob("*") if path.is_file()):
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(tmp_path / "out")).read_bytes()
    for wrong, kind in (
        (words, AlreadyThere),
        ([*again[:2], "--vnnlib", "uniform"], BadValue),
        ([*words[:2], "--eps", "0.1"], BadValue),
        ([words[0], str(tmp_path / "a"), *words[2:], "--vnnlib-version", "3"], BadValue),
        ([words[0], str(tmp_path / "a"), *words[2:], "--threshold", "0.01"], BadValue),
        ([str(folder / "disc"), str(tmp_path / "a"), *words[2:]], Unsupported),
    ):
        with pytest.raises(kind):
            call(*wrong)
    assert not (tmp_path / "a").exists()
