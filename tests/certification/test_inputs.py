"""Which pictures can be certified."""

from pathlib import Path

import pytest
from PIL import Image

from prood.certification.certify import inputs
from prood.errors import Unsupported

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
