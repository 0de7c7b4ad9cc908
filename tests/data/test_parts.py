from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from prood.data import ImageSet, load, open_set, uniform_noise
from prood.data.parts import part_rows
from prood.errors import BadValue

SHARES = {"training": 0.7, "held-back": 0.1, "calibration": 0.1, "test": 0.1}


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), min_size=1, max_size=150), st.integers(0, 9))
@settings(max_examples=200)
def test_every_row_is_in_one_part_and_equal_images_are_together(images: list[tuple[int, int]], seed: int) -> None:
    marks = [bytes([mark]) for _, mark in images]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)).tolist()
    parts = part_rows(marks, [label for label, _ in images], tuple(SHARES.values()), order)
    assert sorted(row for part in parts for row in part) == list(range(len(images)))
    assert all(part == sorted(part) for part in parts)
    owner = {}
    for number, part in enumerate(parts):
        for row in part:
            assert owner.setdefault(marks[row], number) == number


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_each_part_has_its_share_of_each_class_and_of_all(sizes: list[int]) -> None:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    marks = [number.to_bytes(4) for number in range(len(labels))]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1)).tolist()
    parts = part_rows(marks, labels, tuple(SHARES.values()), order)
    for share, part in zip(SHARES.values(), parts, strict=True):
        assert abs(len(part) - share * len(labels)) < 2
        counts = Counter(labels[row] for row in part)
        assert all(abs(counts[label] - share * size) < 2 for label, size in enumerate(sizes))


def test_a_choice_repeats_with_its_seed_and_keeps_the_order() -> None:
    noise = uniform_noise(100, (1, 3, 3), seed=0)
    images = ImageSet("mine", noise.images, torch.arange(100) % 3, ("a", "b", "c"))
    parts = images.parted(SHARES, seed=0)
    assert {name: len(part) for name, part in parts.items()} == dict(zip(SHARES, (70, 10, 10, 10), strict=True))
    assert parts["test"].name == "mine (test)"
    assert parts["test"].classes == images.classes
    again, other = images.parted(SHARES, seed=0), images.parted(SHARES, seed=1)
    for name, part in parts.items():
        assert part.fingerprint() == again[name].fingerprint() != other[name].fingerprint()
        rows = [int((images.images == image).flatten(1).all(1).nonzero()) for image in part.images]
        assert rows == sorted(rows)
        assert torch.equal(images.labels[rows], part.labels)


def test_without_labels_and_with_copies(tmp_path: Path) -> None:
    """A folder in which each picture lies twice, under names far apart."""
    random = np.random.default_rng(0)
    for number in range(20):
        image = Image.fromarray(random.integers(0, 256, (5, 5), dtype=np.uint8))
        image.save(tmp_path / f"a{number}.png")
        image.save(tmp_path / f"z{number}.bmp")
    for images in (load(f"folder:{tmp_path}"), open_set(f"folder:{tmp_path}")):
        one, two = (part.load().images for part in images.parted({"one": 0.5, "two": 0.5}, seed=0).values())
        assert (len(one), len(two)) == (20, 20)
        assert not {image.numpy().tobytes() for image in one} & {image.numpy().tobytes() for image in two}


def test_wrong_shares_and_too_few_images_are_refused() -> None:
    images = uniform_noise(3, (1, 2, 2), seed=0)
    for shares in ({}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": 1, "b": 0}):
        with pytest.raises(BadValue, match="add up to 1"):
            images.parted(shares, seed=0)
    with pytest.raises(BadValue, match=r"3 images.*test"):
        images.parted(SHARES, seed=0)
    copies = images.select([0, 0, 0, 0, 0])
    with pytest.raises(BadValue, match=r"5 images.*two"):
        copies.parted({"one": 0.5, "two": 0.5}, seed=0)
