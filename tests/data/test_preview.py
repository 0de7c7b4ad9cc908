from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import ImageSet, file_source, noise_source, read_folder, source, sources
from prood.data.preview import preview, sheet
from prood.errors import ProodError, UnknownName, Unsupported

# Every image is of one colour of its own.
COLOURS = torch.arange(200, dtype=torch.uint8).reshape(200, 1, 1, 1).expand(200, 3, 2, 4).contiguous()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sources, "_REGISTRY", {})
    monkeypatch.chdir(tmp_path)
    source("toys", description="", splits=("a/b", "test"))(lambda split: ImageSet(f"toys:{split}", COLOURS))
    return tmp_path


def test_every_image_is_in_its_tile_enlarged_without_a_blur() -> None:
    images = torch.randint(0, 255, (7, 3, 2, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    picture = np.asarray(sheet(images, 5))
    assert picture.shape == (3 * (2 * 5 + 2) + 2, 3 * (4 * 5 + 2) + 2, 3)
    rest = np.ones(picture.shape[:2], dtype=bool)
    for number, image in enumerate(images):
        top, left = 2 + number // 3 * 12, 2 + number % 3 * 22
        tile = picture[top : top + 10, left : left + 20]
        assert (tile[::5, ::5] == image.permute(1, 2, 0).numpy()).all()
        assert (tile == tile[::5, ::5].repeat(5, 0).repeat(5, 1)).all()
        rest[top : top + 10, left : left + 20] = False
    assert (picture[rest] == 255).all()


@pytest.mark.parametrize(("count", "size"), [(100, 32), (1, 28), (7, 64), (400, 28)])
def test_a_sheet_is_about_a_thousand_pixels_wide(count: int, size: int) -> None:
    width, height = sheet(torch.zeros(count, 1, size, size, dtype=torch.uint8)).size
    assert 500 < width <= 1000  # a whole factor: the next one would be too much
    assert height <= width


def test_big_images_stay_as_they_are_and_grey_ones_grey() -> None:
    picture = sheet(torch.zeros(16, 1, 400, 400, dtype=torch.uint8))
    assert picture.size == (4 * 402 + 2, 4 * 402 + 2)
    assert picture.mode == "L"
    with pytest.raises(Unsupported):
        sheet(torch.zeros(1, 4, 2, 2, dtype=torch.uint8))


def colours(path: Path) -> list[int]:
    """The colours of the tiles, row by row."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture)[:, :, 0]
    return [int(value) for value in pixels[3::4, 3::6].reshape(-1)]


def test_the_choice_is_seeded_and_the_file_named_after_the_set(folder: Path) -> None:
    assert preview("toys:a/b", count=9, seed=4, scale=1) == Path("toys-a-b.png")
    chosen = colours(folder / "toys-a-b.png")
    assert chosen == ImageSet("", COLOURS).subset(9, 4).images[:, 0, 0, 0].tolist()
    assert len(set(chosen)) == 9
    other = preview("toys:test", folder / "new" / "other.PNG", count=9, seed=5, scale=1)
    assert colours(other) != chosen
    assert [path.name for path in other.parent.iterdir()] == ["other.PNG"]


def test_more_images_than_there_are_shows_all(folder: Path) -> None:
    preview("toys:test", folder / "x.png", count=1000, scale=1)
    assert colours(folder / "x.png")[:200] == list(range(200))


def test_noise_is_small_and_in_colour_unless_it_is_to_be_like_a_set(folder: Path) -> None:
    asked = []

    @noise_source("fog", description="")
    def fog(count: int, shape: tuple[int, int, int], seed: int) -> ImageSet:
        asked.append((count, shape, seed))
        return ImageSet("fog", torch.zeros(count, *shape, dtype=torch.uint8))

    preview("fog", count=5, seed=2)
    preview("fog", count=6, like="toys:test")
    assert asked == [(5, (3, 32, 32), 2), (6, (3, 2, 4), 0)]


def test_photographs_of_several_sizes_are_shown_as_squares(folder: Path) -> None:
    file_source("folder", description="")(read_folder)
    for number, size in enumerate([(60, 40), (30, 50)]):
        (folder / "photos").mkdir(exist_ok=True)
        Image.new("RGB", size, (9, 99, 199)).save(folder / "photos" / f"{number}.png")
    drawn = Image.open(preview("folder:photos", folder / "x.png", scale=1))
    assert drawn.size == (2 * 98 + 2, 98 + 2)
    assert drawn.getpixel((50, 50)) == (9, 99, 199)


def test_what_cannot_be_written_is_refused(folder: Path) -> None:
    (folder / "folder.png").mkdir()
    (folder / "file").write_text("")
    for path in (folder / "folder.png", folder / "x.jpg", folder / "file" / "x.png"):
        with pytest.raises(ProodError, match=str(path)):
            preview("toys:test", path)
    with pytest.raises(UnknownName):
        preview("toys")
    assert sorted(path.name for path in folder.iterdir()) == ["file", "folder.png"]
