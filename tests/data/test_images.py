import hashlib

import numpy as np
import pytest
import torch

from prood.data import ImageSet
from prood.errors import BadValue, Mismatch


def some(count: int = 10, labels: bool = True) -> ImageSet:
    images = torch.arange(count * 3 * 4 * 5).reshape(count, 3, 4, 5).to(torch.uint8)
    return ImageSet("some", images, torch.arange(count) % 3 if labels else None, ("a", "b", "c"))


def test_length_and_shape() -> None:
    assert len(some(7)) == 7
    assert some().shape == (3, 4, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": np.zeros((2, 1, 2, 2), np.uint8)}, "type ndarray: give a torch.uint8"),
        ({"images": torch.zeros(2, 1, 2, 2)}, "type torch.float32: give a torch.uint8"),
        ({"images": torch.zeros(2, 2, 2, dtype=torch.uint8)}, r"shape \(2, 2, 2\)"),
        ({"images": torch.zeros(0, 1, 2, 2, dtype=torch.uint8)}, "non-empty"),
        ({"labels": [0, 1]}, "labels of type list"),
        ({"labels": torch.tensor([0, 1], dtype=torch.int32)}, "labels of type torch.int32"),
        ({"labels": torch.tensor([0])}, "one label an image"),
        ({"labels": torch.tensor([[0], [1]])}, "one label an image"),
        ({"labels": torch.tensor([0, -1])}, "label -1"),
        ({"labels": torch.tensor([0, 2]), "classes": ("a", "b")}, "label 2 but names 2 classes"),
    ],
)
def test_refuses_what_is_no_image_set(arguments: dict, message: str) -> None:
    good = {"name": "mine", "images": torch.zeros(2, 1, 2, 2, dtype=torch.uint8)}
    ImageSet(**good)
    with pytest.raises(BadValue, match=message) as caught:
        ImageSet(**(good | arguments))
    assert "'mine'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_select_takes_images_and_labels_together() -> None:
    full = some()
    part = full.select([3, 1, 1])
    assert torch.equal(part.images, torch.stack([full.images[3], full.images[1], full.images[1]]))
    assert part.labels is not None
    assert part.labels.tolist() == [0, 1, 1]
    assert part.classes == full.classes
    assert some(labels=False).select(torch.tensor([2])).labels is None


@pytest.mark.parametrize("rows", [[10], [-1], [0.0], [[0, 1]], torch.ones(10, dtype=torch.bool), torch.tensor(3), []])
def test_select_refuses_rows_that_are_none(rows: object) -> None:
    with pytest.raises(BadValue):
        some().select(rows)


def test_subset_is_a_seeded_choice_without_replacement() -> None:
    full = ImageSet("numbers", torch.arange(200, dtype=torch.uint8).reshape(200, 1, 1, 1), torch.arange(200))
    part = full.subset(50, seed=1)
    rows = part.images.flatten().tolist()
    assert len(set(rows)) == 50
    assert part.labels is not None
    assert part.labels.tolist() == rows
    assert full.subset(50, seed=1).images.flatten().tolist() == rows
    assert full.subset(50, seed=2).images.flatten().tolist() != rows
    assert full.subset(20, seed=1).images.flatten().tolist() == rows[:20]


@pytest.mark.parametrize("count", [10, 11, 1000])
def test_subset_of_a_set_that_has_no_more_is_the_set_in_order(count: int) -> None:
    assert torch.equal(some().subset(count, seed=3).images, some().images)


def test_subset_of_nothing_is_refused() -> None:
    with pytest.raises(BadValue):
        some().subset(0, seed=0)


def test_divided_into_the_rest_in_order_and_a_seeded_choice() -> None:
    full = ImageSet("a:train", torch.arange(200, dtype=torch.uint8).reshape(200, 1, 1, 1), torch.arange(200), None)
    rest, held = full.divided(50, seed=1)
    left, out = (part.images.flatten().tolist() for part in (rest, held))
    assert (len(left), len(out)) == (150, 50)
    assert sorted(left + out) == list(range(200))
    assert left == sorted(left)
    assert out != sorted(out)  # a choice, not a piece
    assert max(out) - min(out) > 150
    for part, rows in ((rest, left), (held, out)):
        assert part.labels is not None
        assert part.labels.tolist() == rows
    assert (rest.name, held.name) == ("a:train", "a:train (held back)")
    assert torch.equal(full.divided(50, seed=1)[1].images, held.images)
    assert full.divided(20, seed=1)[1].images.flatten().tolist() == out[:20]
    assert set(full.divided(50, seed=2)[1].images.flatten().tolist()) != set(out)
    assert set(full.subset(50, seed=1).images.flatten().tolist()) != set(out)
    assert rest.fingerprint() != full.fingerprint()


def test_what_is_held_back_stays_what_old_runs_left_out() -> None:
    full = ImageSet("numbers", torch.arange(200, dtype=torch.uint8).reshape(200, 1, 1, 1))
    assert full.divided(5, seed=0)[1].images.flatten().tolist() == [45, 75, 95, 186, 142]


@pytest.mark.parametrize("count", [-1, 0, 10, 11])
def test_divided_leaves_at_least_one_image_on_either_side(count: int) -> None:
    with pytest.raises(BadValue, match=rf"'some'.*10.*{count}"):
        some().divided(count, seed=0)
    assert [len(part) for part in some().divided(9, seed=0)] == [1, 9]


def test_floats_are_bytes_over_255() -> None:
    every = ImageSet("bytes", torch.arange(256, dtype=torch.uint8).reshape(256, 1, 1, 1))
    floats = every.floats()
    assert floats.dtype == torch.float32
    assert floats.min() == 0
    assert floats.max() == 1
    assert torch.equal((floats * 255).round().to(torch.uint8), every.images)
    assert torch.equal(every.floats([7, 3]), floats[[7, 3]])
    with pytest.raises(BadValue, match="256"):
        every.floats([256])


def test_fingerprint_sees_every_byte_and_label_but_not_the_name() -> None:
    one = some()
    assert one.labels is not None
    assert one.fingerprint() == ImageSet("other", one.images.clone(), one.labels.clone()).fingerprint()
    images, labels = one.images.clone(), one.labels.clone()
    images[-1, -1, -1, -1] ^= 1
    labels[-1] += 1
    different = [
        ImageSet("some", images, one.labels),
        ImageSet("some", one.images, labels),
        ImageSet("some", one.images),
        ImageSet("some", one.images.reshape(10, 3, 5, 4), one.labels),
        ImageSet("some", one.images.flip(0), one.labels),
    ]
    assert len({s.fingerprint() for s in [one, *different]}) == 6


def test_fingerprint_does_not_depend_on_the_memory_layout() -> None:
    one = some()
    strided = ImageSet("some", one.images.to(memory_format=torch.channels_last), one.labels)
    assert strided.fingerprint() == one.fingerprint()


def test_fingerprint_stays_what_old_runs_recorded() -> None:
    tiny = ImageSet("tiny", torch.tensor([[[[1, 2]]]], dtype=torch.uint8))
    written_out = b"torch.uint8(1, 1, 1, 2)" + b"\x01\x02"
    assert tiny.fingerprint() == hashlib.sha256(written_out).hexdigest()[:16]


def named(labels: list[int], *classes: str) -> ImageSet:
    return ImageSet("named", torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), torch.tensor(labels), classes)


def test_labels_follow_the_names_of_the_classes() -> None:
    one = named([0, 1, 1, 0], "cat", "dog")
    assert one.numbered_as(("cat", "dog")) is one
    other = one.numbered_as(["dog", "bird", "cat"])
    assert other.labels is not None
    assert other.labels.tolist() == [2, 0, 0, 2]
    assert other.classes == ("dog", "bird", "cat")
    assert one.numbered_as(None) is one
    assert one.numbered_as(("Katze", "Hund")) is one  # other words for the same, as far as anyone knows
    unnamed = ImageSet("unnamed", one.images, one.labels)
    assert unnamed.numbered_as(("dog", "cat")) is unnamed


def test_classes_that_a_model_does_not_know() -> None:
    with pytest.raises(Mismatch):
        named([0, 1, 1], "cat", "elk").numbered_as(("cat", "dog"))
    assert named([0, 0], "cat", "elk").numbered_as(("dog", "cat")).labels.tolist() == [1, 1]  # type: ignore[union-attr]


def test_labels_for_a_model_are_among_its_classes() -> None:
    one = named([0, 1, 2], "a", "b", "c")
    assert one.labels_of(3).tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert ImageSet("bare", one.images).labels_of(3) is None
    with pytest.raises(Mismatch):
        one.labels_of(2)
