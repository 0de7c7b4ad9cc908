"""The joint model takes the classifier's images: a discriminator for smaller ones averages them, or is refused."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from prood.detector import Detector
from prood.errors import Mismatch
from prood.models import Discriminator, ProoD, WrapOptions, discriminator, load, open_classifier, save, small
from prood.models.wrapped import Preprocessing, beside, open_beside
from prood.models.wrapped.programs import Source

SIDE = 24


class Grid(nn.Module):
    """A classifier of 24×24 images that sees whether the pixels alternate: averages of them it cannot tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(20.0))

    def forward(self, images: Tensor) -> Tensor:
        contrast = (images[:, :, ::2, ::2] - images[:, :, 1::2, 1::2]).abs().flatten(1).mean(1)
        grid = self.scale * (contrast - 0.5)
        flat = nn.functional.adaptive_avg_pool2d(images, 1).flatten(1).mean(1)
        return torch.stack([grid, -grid, flat - 10], 1)


def program(folder: Path, side: int = SIDE) -> Path:
    """As .pt2, which says of which size its images are."""
    path, axes = folder / f"grid-{side}.pt2", ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(Grid(), (torch.rand(2, 3, side, side),), dynamic_shapes=axes), path)
    return path


def made(side: int, channels: int = 3) -> Discriminator:
    torch.manual_seed(0)
    return discriminator("4s2 fc8", image=(channels, side, side)).eval()


def grids() -> tuple[Tensor, Tensor]:
    """Two kinds of images, of the same mean, and their labels."""
    rows = torch.arange(SIDE)
    pattern = ((rows[:, None] % 2 == 0) & (rows % 2 == 0)).float()
    flat = torch.full_like(pattern, 0.25)
    images = torch.stack([pattern, flat])[:, None].expand(2, 3, SIDE, SIDE).contiguous()
    return images, torch.tensor([0, 1])


@pytest.mark.parametrize("side", [8, 12, 24])
def test_the_classifier_sees_every_pixel(side: int, tmp_path: Path) -> None:
    g = made(side)
    classifier, fitting, _ = open_beside(program(tmp_path), g)
    model, (images, labels) = ProoD(classifier, fitting, 3.0).eval(), grids()
    detector = Detector(model)
    assert detector.shape == (3, SIDE, SIDE)
    with torch.no_grad():
        assert model.predict(images).tolist() == labels.tolist()
        torch.testing.assert_close(model.logits(images), Grid()(images), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(fitting(images), g(nn.functional.avg_pool2d(images, SIDE // side)))
    save(model, tmp_path / "run" / "model.safetensors")
    again = load(tmp_path / "run")[0]
    assert Detector(again).shape == (3, SIDE, SIDE)
    assert again.predict(images).tolist() == labels.tolist()


def test_a_joint_model_of_a_classifier_that_was_opened_is_fitted_by_itself(tmp_path: Path) -> None:
    classifier, _ = open_classifier(program(tmp_path), (3, SIDE, SIDE))
    for detector in (Detector(ProoD(classifier, made(12), 1.0)), Detector(classifier, made(12), shift=1.0)):
        assert detector.shape == (3, SIDE, SIDE)
        assert detector.discriminator.architecture["size"] == "p2 4s2 fc8"
    with pytest.raises(Mismatch, match="3×20×20 and 3×40×40"):
        ProoD(classifier, made(20), 1.0)


def test_what_does_not_fit_is_one_line_that_says_what_would(tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match=r"3×10×10 cannot serve 3×24×24.*3×20×20 and 3×30×30; .*--joint-image") as caught:
        open_beside(program(tmp_path), made(10))
    assert "\n" not in str(caught.value)


def test_the_joint_image_may_be_said(tmp_path: Path) -> None:
    classifier, g, _ = open_beside(program(tmp_path), made(10), options=WrapOptions(joint_image=(3, 10, 10)))
    assert Detector(classifier, g, shift=0.0).shape == g.image == (3, 10, 10)
    classifier, g, _ = open_beside(program(tmp_path), made(10), options=WrapOptions(joint_image=(3, 30, 30)))
    assert g.architecture["size"] == "p3 4s2 fc8"
    with pytest.raises(Mismatch, match="cannot serve 3×25×25"):
        open_beside(program(tmp_path), made(10), options=WrapOptions(joint_image=(3, 25, 25)))


def test_a_larger_discriminator_stays_as_it_is(tmp_path: Path) -> None:
    """Then the classifier gets at least as many pixels as it wants."""
    g = made(40)
    classifier, fitting, _ = open_beside(program(tmp_path), g)
    assert fitting is g
    assert classifier.opened_for == (3, 40, 40)


def test_the_discriminator_s_colours_count(tmp_path: Path) -> None:
    classifier, g, _ = open_beside(program(tmp_path), made(12, channels=1))
    assert g.image == classifier.opened_for == (1, SIDE, SIDE)


@pytest.mark.parametrize(
    ("side", "given", "image", "resize"),
    [
        (8, None, 32, 32),  # the classifier cuts 24 from 32, and 32 is four times 8
        (16, None, 32, 32),
        (12, None, 24, (24, 24)),  # 24 is twice 12, but 32 is no multiple: nothing is cut
        (24, None, 24, (24, 24)),
        (32, None, 32, 32),
        (12, 30, 24, 30),  # what is said is done
    ],
)
def test_a_classifier_that_cuts_its_centre(
    side: int, given: int | None, image: int, resize: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("prood", network=Grid(), model={"name": "grid"}, preprocessing=Preprocessing((3, 24, 24), 32))
    monkeypatch.setattr(beside, "found_source", lambda *_: source)
    classifier, g, _ = open_beside("grid", made(side), options=WrapOptions(resize=given))
    assert classifier.facts.preprocessing.resize == resize
    assert g.image == classifier.opened_for == (3, image, image)


def test_a_run_that_says_what_it_was_trained_on(tmp_path: Path) -> None:
    f = small(3, width=4, mean=(0.5,) * 3, std=(0.25,) * 3)
    save(f, tmp_path / "model.safetensors", image=[3, 24, 24])
    for side, image in ((12, 24), (24, 24), (30, 30)):
        classifier, g, _ = open_beside(tmp_path / "model.safetensors", made(side))
        assert g.image == classifier.opened_for == (3, image, image)
        assert classifier.facts.preprocessing.image == (3, 24, 24)


@pytest.mark.parametrize(
    ("image", "resize", "uncut"),
    [
        ((24, 24), None, (24, 24)),
        ((24, 24), 32, (32, 32)),
        ((24, 12), 16, (32, 16)),
        ((24, 24), (30, 40), (30, 40)),
        ((24, 24), (20, 40), (24, 24)),
        ((24, 24), 20, (24, 24)),
    ],
)
def test_what_it_cuts_from(image: tuple[int, int], resize: int | tuple[int, int] | None, uncut: object) -> None:
    prepares = Preprocessing((3, *image), resize)
    assert prepares.uncut == uncut
    if resize is None or uncut != image:
        images = torch.rand(1, 3, *prepares.uncut)
        top, left = ((a - b) // 2 for a, b in zip(prepares.uncut, image, strict=True))
        expected = images[..., top : top + image[0], left : left + image[1]]
        torch.testing.assert_close(prepares.fitted(images), expected, rtol=0, atol=0)
