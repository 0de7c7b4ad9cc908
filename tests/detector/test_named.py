"""Images by name: which pictures, folders and sets are taken."""

from pathlib import Path

import pytest
from PIL import Image

from prood.detector.named import inputs
from prood.errors import NotFound, Unsupported

SHAPE = (3, 8, 8)
FRAMES = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]


@pytest.mark.parametrize("ending", ["gif", "png", "webp", "tif"])
def test_what_has_several_frames_is_refused(tmp_path: Path, ending: str) -> None:
    still, moving = tmp_path / f"still.{ending}", tmp_path / f"moving.{ending}"
    FRAMES[0].save(still)
    FRAMES[0].save(moving, save_all=True, append_images=FRAMES[1:])
    assert inputs([str(still)], SHAPE, None).read([0]).shape == (1, *SHAPE)
    with pytest.raises(Unsupported, match=str(moving)):
        inputs([str(moving)], SHAPE, None).read([0])


def test_a_phones_second_view_is_no_frame(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    FRAMES[0].save(file, "MPO", save_all=True, append_images=FRAMES[1:])
    red = inputs([str(file)], SHAPE, None).read([0])[0].mean((1, 2))
    assert red[0] > 0.9 > 0.1 > red[2]


def test_a_folder_stands_for_its_pictures(tmp_path: Path) -> None:
    for name in ("b", "a", "deeper/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        FRAMES[0].save(tmp_path / f"{name}.png")
    found = inputs([str(tmp_path), str(tmp_path / "a.png")], SHAPE, None)
    names = ["a.png", "b.png", "deeper/c.png", "a.png"]
    assert [found.name(place) for place in range(len(found))] == [str(tmp_path / name) for name in names]
    assert len(inputs([str(tmp_path)], SHAPE, 2)) == 2
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFound):
        inputs([str(tmp_path / "none")], SHAPE, None)


def test_an_image_sets_name_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faces").mkdir()
    found = inputs(["faces"], (1, 28, 28), 3)
    assert [found.name(place) for place in range(3)] == ["faces:test[0]", "faces:test[1]", "faces:test[2]"]
