"""What can be wrong with a user's own images ends in one line."""

from pathlib import Path

import pytest
from PIL import Image


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("good", "damaged", "empty", "single"):
        (tmp_path / folder).mkdir()
    for number in range(3):
        Image.new("RGB", (8 + number, 9), (9, number, 99)).save(tmp_path / "good" / f"{number}.png")
        Image.new("RGB", (8, 9), (9, number, 99)).save(tmp_path / "damaged" / f"{number}.png")
    (tmp_path / "damaged" / "1.png").write_bytes(b"no picture")
    Image.new("RGB", (1, 1)).save(tmp_path / "single" / "a.png")
    (tmp_path / "columns.csv").write_text("name,kind\ngood/0.png,x\n")
    (tmp_path / "outside.csv").write_text("path,label\n../secret.png,x\n")
    (tmp_path / "labels.csv").write_text("path,label\ngood/0.png,x\ngood/1.png,\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder:missing", "missing"),
        ("folder:empty", "holds no pictures"),
        ("folder:damaged", "1 of 3 pictures of folder:damaged: 1.png"),
        ("folder:single", "single pixel"),
        ("folder:good/0.png", "0.png"),
        ("good", "folder:good"),
        ("csv:missing.csv", "missing.csv"),
        ("csv:columns.csv", "path"),
        ("csv:outside.csv", "'../secret.png' leads outside"),
        ("csv:labels.csv", "no label"),
        ("hf:good", "datasets"),
        ("made:many", "COUNT"),
    ],
)
def test_each_is_one_line(prood, place: Path, name: str, said: str) -> None:
    code, _, err = prood("data", "preview", name, "--out", "x.png", columns=1000)
    assert code == 2
    assert said in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not (place / "x.png").exists()


def test_folders_and_lists_are_drawn_and_made_ones_too(prood, place: Path) -> None:
    (place / "good.csv").write_text("good/0.png\ngood/2.png\n")
    for name in ("folder:good", "csv:good.csv", "made:9"):
        assert prood("data", "preview", name, "--out", "x.png")[0] == 0
        with Image.open(place / "x.png") as drawn:
            assert drawn.mode == "RGB"
        (place / "x.png").unlink()
