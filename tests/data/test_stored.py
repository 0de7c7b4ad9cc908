import pickle
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from prood.data import ImageSet, StoredSet
from prood.errors import BadValue, Mismatch, ProodError


@dataclass(frozen=True)
class Numbered:
    """Image n is filled with n, in a file that one can imagine."""

    count: int
    shape: tuple[int, int, int] = (1, 2, 3)
    odd: int | None = None  # this one has another size
    broken: int | None = None

    def __len__(self) -> int:
        return self.count

    def read(self, row: int) -> Tensor:
        if row == self.broken:
            raise ProodError(f"cannot read the image {row}.png")
        return torch.full((1, 5, 5) if row == self.odd else self.shape, row, dtype=torch.uint8)

    def fingerprint(self) -> str:
        return f"{self.count:016x}"


def stored(count: int = 10, labels: bool = True, **changes: int) -> StoredSet:
    return StoredSet(
        "mine",
        Numbered(count, **changes),
        (1, 2, 3),
        torch.arange(count) % 3 if labels else None,
        ("a", "b", "c") if labels else None,
    )


def numbers(images: Tensor) -> list[int]:
    assert images.dtype == torch.uint8
    assert images.shape[1:] == (1, 2, 3)
    return images[:, 0, 0, 0].tolist()


def in_memory(count: int = 10) -> ImageSet:
    return stored(count).load()


def test_it_reads_the_rows_that_are_asked_for() -> None:
    assert numbers(stored().take([3, 1, 3])) == [3, 1, 3]
    assert numbers(stored().take(torch.tensor([9]))) == [9]


def test_loaded_it_is_an_image_set() -> None:
    loaded = stored().load()
    assert isinstance(loaded, ImageSet)
    assert numbers(loaded.images) == list(range(10))
    assert loaded.labels is not None
    assert loaded.labels.tolist() == [n % 3 for n in range(10)]
    assert (loaded.name, loaded.classes) == ("mine", ("a", "b", "c"))
    assert loaded.load() is loaded


def test_selections_of_selections_follow_the_rows() -> None:
    part = stored().select([8, 6, 4, 2]).select([3, 0, 0])
    assert numbers(part.take([0, 1, 2])) == numbers(part.load().images) == [2, 8, 8]
    assert part.labels is not None
    assert part.labels.tolist() == [2, 2, 2]
    assert len(part) == 3
    assert part.bytes == 3 * 6


@pytest.mark.parametrize("count", [1, 4, 9, 10, 30])
def test_a_subset_has_the_images_that_it_would_have_in_memory(count: int) -> None:
    ours, other = stored().subset(count, seed=5), in_memory().subset(count, seed=5)
    assert numbers(ours.load().images) == numbers(other.images)
    assert torch.equal(ours.labels, other.labels)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 4, 9])
def test_it_divides_as_it_would_in_memory(count: int) -> None:
    for ours, other in zip(stored().divided(count, seed=5), in_memory().divided(count, seed=5), strict=True):
        assert numbers(ours.load().images) == numbers(other.images)
        assert torch.equal(ours.labels, other.labels)  # type: ignore[arg-type]
        assert ours.name == other.name
    rest, held = stored().select([8, 6, 4, 2]).divided(2, seed=0)
    assert sorted(numbers(rest.load().images) + numbers(held.load().images)) == [2, 4, 6, 8]
    with pytest.raises(BadValue, match="10"):
        stored().divided(10, seed=0)


def test_nothing_is_read_before_it_is_asked_for() -> None:
    damaged = stored(broken=7)
    assert len(damaged.select([1, 7]).subset(1, 0)) == 1
    assert numbers(damaged.take([6, 8])) == [6, 8]
    with pytest.raises(ProodError, match=r"7\.png"):
        damaged.take([6, 7])
    with pytest.raises(ProodError, match=r"7\.png"):
        damaged.load()


def test_an_image_of_another_size_is_refused_by_its_row() -> None:
    with pytest.raises(Mismatch, match="'mine'"):
        stored(odd=4).select([5, 4]).load()


def test_the_fingerprint_tells_sets_apart() -> None:
    same = {stored().fingerprint(), stored().fingerprint()}
    assert len(same) == 1
    others = [
        stored(11),
        stored(labels=False),
        stored().select([0, 1]),
        stored().select([1, 0]),
        StoredSet("mine", Numbered(10), (1, 3, 2), stored().labels),
    ]
    assert len(same | {other.fingerprint() for other in others}) == 6
    assert all(len(one) == 16 for one in same)


def test_it_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(stored().select([4, 2])))
    assert numbers(again.take([0, 1])) == [4, 2]


@pytest.mark.parametrize("rows", [[10], [-1], [True, False], [0.5], [[1]]])
def test_it_refuses_rows_that_it_does_not_have(rows: list) -> None:
    with pytest.raises(BadValue, match="'mine'"):
        stored().take(rows)


def test_it_refuses_wrong_labels_and_no_images() -> None:
    with pytest.raises(BadValue):
        StoredSet("mine", Numbered(0), (1, 2, 3))
    with pytest.raises(BadValue):
        StoredSet("mine", Numbered(3), (1, 2, 3), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(BadValue):
        stored().subset(0, 0)
