"""The images of a guard, divided: every image in one part, the classes in their shares, g's images averaged down."""

import json

import numpy as np
import pytest
import torch

from prood import data
from prood.data import ImageSet, uniform_noise
from prood.errors import BadValue, Damaged
from prood.studies.guarding.parts import FILE, averaged, make_parts, read_parts, sizes, sizes_outside
from prood.training.guard_table import GuardTable


def images(name, count, side=8, seed=0):
    made = uniform_noise(count, (1, side, side), seed)
    return ImageSet(name, made.images, torch.arange(count) % 3, ("a", "b", "c"))


def marks(parts, side, *names):
    return [mark for part in names for mark in data.load(parts.name(side, part)).marks()]


def test_no_image_is_in_two_parts_and_the_classes_keep_their_shares(tmp_path):
    inside, outside = images("npz:in.npz", 300), images("npz:out.npz", 120, seed=1)
    parts = make_parts(tmp_path, inside, outside, GuardTable(image=(1, 8, 8)))
    found = marks(parts, "inside", "train", "held-back", "calibration", "test")
    assert sorted(found) == sorted(inside.marks())
    assert len(set(marks(parts, "outside", "train", "held-back", "test"))) == 120
    test = data.load(parts.name("inside", "test"))
    counts = torch.bincount(test.labels)
    assert counts.max() - counts.min() <= 2
    assert test.classes == ("a", "b", "c")
    assert "300" not in str(parts)
    assert str(parts.counts["inside/test"]) in str(parts)


def test_equal_images_are_in_one_part_and_never_on_both_sides(tmp_path):
    inside = images("in", 300)
    again = inside.select([*range(300), *range(40)])
    outside = ImageSet("out", torch.cat([images("out", 120, seed=1).images, inside.images[:7]]))
    parts = make_parts(tmp_path, again, outside, GuardTable(image=(1, 8, 8)))
    by_part = [set(marks(parts, "inside", part)) for part in ("train", "held-back", "calibration", "test")]
    assert sum(map(len, by_part)) == len(set.union(*by_part)) == 300
    assert parts.shared == 7
    assert not set(marks(parts, "outside", "train", "held-back", "test")) & set.union(*by_part)


def test_g_is_trained_on_averages_and_measured_at_full_size(tmp_path):
    table = GuardTable(image=(1, 16, 16), factor=2, classifier="model.onnx")
    parts = make_parts(tmp_path, images("in", 300, 16), images("out", 120, 16, 1), table)
    assert data.load(parts.name("inside", "small")).shape == (1, 8, 8)
    assert data.load(parts.name("inside", "test")).shape == (1, 16, 16)
    assert not (tmp_path / "in" / "train.npz").exists()  # the classifier is there: nobody needs it
    whole = torch.randint(0, 256, (3, 1, 16, 16), dtype=torch.uint8)
    exact = whole.double().reshape(3, 1, 8, 2, 8, 2).mean((3, 5))
    assert (averaged(whole, 2) - exact).abs().max() <= 0.5


def test_the_parts_that_are_there_are_taken_and_damage_is_named(tmp_path):
    table = GuardTable(image=(1, 8, 8))
    made = make_parts(tmp_path, images("in", 300), images("out", 120, seed=1), table)
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    assert make_parts(tmp_path, images("in", 299), None, table) == made == read_parts(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")} == times
    (tmp_path / FILE).write_text(json.dumps({"counts": {}}))
    with pytest.raises(Damaged):
        read_parts(tmp_path)


def test_made_outliers_stand_in_for_those_that_are_not_given(tmp_path):
    parts = make_parts(tmp_path, images("in", 300), None, GuardTable(image=(1, 8, 8)))
    assert parts.outside == "made"
    assert len(np.unique(data.load(parts.name("outside", "test")).images.numpy().reshape(-1, 64), axis=0)) > 400


@pytest.mark.parametrize("count", [10, 100, 237])
def test_too_few_images_are_refused(count):
    with pytest.raises(BadValue, match="238"):
        sizes(count, GuardTable())
    with pytest.raises(BadValue, match="50"):
        sizes_outside(50, GuardTable())


def test_the_parts_have_what_the_threshold_takes():
    found = sizes(260, GuardTable(accept=0.95, level=0.95))
    assert found["calibration"] >= 59
    assert sum(found.values()) == 260
    assert sizes(100_000, GuardTable(most=500))["test"] == 500
