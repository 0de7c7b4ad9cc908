from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from prood.errors import BadValue, Mismatch, UnknownName
from prood.models import Discriminator, discriminator, fingerprint, load, save
from prood.models.certified import certified_classifier
from prood.models.fitting import fitted
from prood.models.sizes import CLASSIFIER_SIZES, SIZES, check_size, words_of


@pytest.mark.parametrize("table", [SIZES, CLASSIFIER_SIZES])
def test_every_name_means_words_that_mean_themselves(table: dict[str, str]) -> None:
    for name, words in table.items():
        assert words_of(name, table) == words_of(words, table) == tuple(words.split())
        assert words_of(f"p3 p2 {name}", table) == ("p3", "p2", *words.split())


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("p1 8 fc4", "'p1'"),
        ("p0 fc4", "'p0'"),
        ("8s0 fc4", "'8s0'"),
        ("8x fc4", "'8x'"),
        ("p4 S fc4", "'S'"),
        ("p4 XXL", "'XXL'"),
        ("08 fc4", "'08'"),
        ("8 fc", "'fc'"),
        ("p4", "must end in linear layers"),
        ("8 16", "must end in linear layers"),
        ("fc4 8 fc4", "must end in linear layers"),
        ("fc4 p2", "must end in linear layers"),
        ("", "such as 'S'"),
        (7, "such as 'S'"),
    ],
)
def test_a_malformed_size_gets_one_line(size: str, words: str) -> None:
    for refused in (words_of, lambda size: discriminator(size, image=(3, 64, 64))):
        with pytest.raises(BadValue, match=words) as caught:
            refused(size)
        assert "\n" not in str(caught.value)


def test_an_unknown_name_is_told_the_names_and_how_to_spell() -> None:
    with pytest.raises(UnknownName, match=r"'photo-XXL'.*photo-XL, or spell it out, such as 'p4"):
        words_of("photo-XXL")
    with pytest.raises(UnknownName, match=r"classifier size 'S'.*XL, digits"):
        certified_classifier(size="S")


def test_only_sizes_of_our_own_architectures_are_checked() -> None:
    check_size({"name": "mine", "size": "huge"})
    check_size({"name": "discriminator", "size": "p4 S"})
    check_size({"name": "certified-classifier", "size": "XL"})
    for name in ("discriminator", "certified-classifier"):
        with pytest.raises(UnknownName, match="'huge'"):
            check_size({"name": name, "size": "huge"})


@pytest.mark.parametrize("size", ["p2 p2 4 fc8", "4 p2 p2 fc8", "p3 4s2 p2 p2 6 p2 fc8", "p2 p3 p2 fc8 fc4", "p7 fc3"])
@pytest.mark.parametrize("image", [(3, 48, 48), (1, 56, 50), (2, 51, 97)])
def test_averages_anywhere_and_in_a_row(size: str, image: tuple[int, int, int]) -> None:
    """Every layer is told how many values the one before it gives: a wrong count would not run."""
    made = discriminator(size, image=image)
    assert made(torch.rand(2, *image)).shape == (2,)
    pools = [layer.kernel_size for layer in made.body if isinstance(layer, nn.AvgPool2d)]
    assert [f"p{side}" for side in pools] == [word for word in size.split() if word.startswith("p")]


def test_averages_in_front_that_eat_up_the_image_are_refused() -> None:
    with pytest.raises(BadValue, match=r"images of 20×20 are too small for a discriminator of size 'p7 p3 fc8'"):
        discriminator("p7 p3 fc8", image=(1, 20, 20))


def test_the_sizes_for_photographs_cost_what_the_guide_says() -> None:
    stated = {"photo-XS": 4.5, "photo-S": 13, "photo-M": 46, "photo-L": 93, "photo-XL": 238}
    assert set(stated) == {name for name in SIZES if name.startswith("photo")}
    for name, millions in stated.items():
        with torch.device("meta"):
            body, x, products = discriminator(f"p4 {name}", image=(3, 224, 224)).body, torch.empty(1, 3, 224, 224), 0
            for layer in body:
                x = layer(x)
                products += x.numel() * layer.weight[0].numel() if isinstance(layer, nn.Conv2d | nn.Linear) else 0
        assert products / 1e6 == pytest.approx(millions, rel=0.02)


def small(far_penalty: float = 0.0) -> Discriminator:
    torch.manual_seed(0)
    made = discriminator("4s2 p2 fc8", image=(2, 8, 12), mean=[0.4, 0.5], std=[0.2, 0.3], far_penalty=far_penalty)
    with torch.no_grad():
        for weight in made.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return made.eval()


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(2, 3), st.integers(0, 99))
def test_enlarged_it_looks_at_the_averages(factor: int, again: int, seed: int) -> None:
    g, images = small(), torch.rand(3, 2, 8 * factor * again, 12 * factor * again, generator=torch.manual_seed(seed))
    one, two = g.enlarged(factor * again), g.enlarged(again).enlarged(factor)
    expected = g(nn.functional.avg_pool2d(images, factor * again))
    for made in (one, two):
        assert made.image == tuple(images.shape[1:])
        assert not made.training
        torch.testing.assert_close(made(images), expected)
    assert one.last.log_weight is two.last.log_weight is g.last.log_weight


def test_a_guard_counts_the_pixels_of_the_large_image() -> None:
    images = 3 * torch.randn(4, 2, 16, 24)
    outside = (images - images.clamp(0, 1)).abs().flatten(1).sum(1)
    expected = small()(nn.functional.avg_pool2d(images, 2)) - 0.5 * outside
    torch.testing.assert_close(small(far_penalty=0.5).enlarged(2)(images), expected)


def test_enlarged_it_is_saved_and_loaded(tmp_path: Path) -> None:
    g = small(far_penalty=0.25)
    made = g.enlarged(4)
    assert made.architecture["size"] == "p4 4s2 p2 fc8"
    save(made, tmp_path / "g.safetensors", eps=0.01)
    again, about = load(tmp_path / "g.safetensors")
    images = torch.rand(3, 2, 32, 48)
    assert isinstance(again, Discriminator)
    assert (again.image, again.far_penalty, about.eps) == ((2, 32, 48), 0.25, 0.01)
    torch.testing.assert_close(again(images), made(images), rtol=0, atol=0)
    assert fingerprint(again) == fingerprint(made) != fingerprint(g)
    assert fitted(again, (2, 64, 96)).architecture["size"] == "p2 p4 4s2 p2 fc8"


def test_a_name_stays_a_name() -> None:
    g = discriminator("digits-XS", image=(1, 28, 28))
    assert g.enlarged(8).architecture == {"name": "discriminator", "size": "p8 digits-XS", "image": [1, 224, 224]}


def test_fitted() -> None:
    g = small()
    assert fitted(g, (2, 8, 12)) is g
    assert fitted(g, [2, 24, 36]).image == (2, 24, 36)
    for wrong, fitting in {
        (2, 20, 30): "2×16×24 and 2×24×36",
        (2, 24, 24): "2×16×24 and 2×24×36",
        (2, 4, 6): "2×8×12 and 2×16×24",
        (1, 16, 24): "with 2 channels",
    }.items():
        with pytest.raises(Mismatch, match=fitting) as caught:
            fitted(g, wrong)
        assert "×".join(map(str, wrong)) in str(caught.value)


@pytest.mark.parametrize("factor", [0, -1, 1.5, "2"])
def test_only_whole_factors(factor: object) -> None:
    with pytest.raises(BadValue, match="whole factor"):
        small().enlarged(factor)  # type: ignore[arg-type]
    assert (g := small()).enlarged(1) is g
