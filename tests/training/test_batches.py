from typing import Any

import pytest
import torch
from torch import Tensor

from prood import processes
from prood.data import Augment, ImageSet
from prood.errors import BadValue, Mismatch
from prood.methods import Batch
from prood.training import TrainOptions
from prood.training.batches import Batches

CPU = torch.device("cpu")
SCHEDULE = {"batch", "seed", "compile"}


def numbered(name: str, count: int, side: int = 4, labels: bool = True) -> ImageSet:
    """Images that can be told apart: number n is filled with n, except for the first pixel."""
    images = torch.arange(count, dtype=torch.uint8)[:, None, None, None].repeat(1, 1, side, side)
    return ImageSet(name, images, torch.arange(count) % 5 if labels else None)


def batches(**changes: Any) -> Batches:
    options = {"augment": Augment(), "noise": False, "device": CPU}
    schedule = TrainOptions(**{"batch": 6, "seed": 3} | {key: changes.pop(key) for key in SCHEDULE & changes.keys()})
    inside = changes.pop("inside", numbered("in", 20))
    outside = changes.pop("outside", numbered("out", 31, labels=False))
    return Batches(inside, outside, schedule, **(options | changes))


def tensors(pair: tuple[Batch, Batch | None]) -> list[Tensor]:
    fields = [value for batch in pair if batch for value in (batch.images, batch.labels, batch.noise)]
    return [value for value in fields if value is not None]


def numbers(batch: Batch) -> list[int]:
    return (batch.images[:, 0, 0, 0] * 255).round().int().tolist()


AUGMENT = Augment(pad=1, flip=True, degrees=20, scale=0.2)


def test_a_batch_is_a_pure_function_of_the_step() -> None:
    first, second = batches(augment=AUGMENT, noise=True), batches(augment=AUGMENT, noise=True)
    straight = [tensors(first(step)) for step in range(9)]
    torch.manual_seed(0)  # and not of the global generator
    for step in (8, 0, 5, 3, 5):
        assert all(torch.equal(a, b) for a, b in zip(tensors(second(step)), straight[step], strict=True))


def test_an_epoch_shows_every_image_once_and_the_labels_follow() -> None:
    made = batches(inside=numbered("in", 18))
    assert made.steps_per_epoch == 3
    for epoch in range(2):
        seen = []
        for step in range(3 * epoch, 3 * epoch + 3):
            inside, _ = made(step)
            assert inside.targets.tolist() == [number % 5 for number in numbers(inside)]
            seen += numbers(inside)
        assert sorted(seen) == list(range(18))


def test_epochs_are_those_of_the_in_distribution() -> None:
    small, large = numbered("small", 7), numbered("large", 40)
    assert batches(inside=large, outside=small).steps_per_epoch == 6
    assert batches(inside=small, outside=large).steps_per_epoch == 1


def test_images_are_floats_between_zero_and_one() -> None:
    images = torch.tensor([0, 128, 255], dtype=torch.uint8)[:, None, None, None].expand(3, 1, 2, 2)
    inside, outside = batches(inside=ImageSet("x", images.contiguous()), outside=None, batch=3)(0)
    assert outside is None
    assert inside.images.dtype == torch.float32
    assert sorted(inside.images[:, 0, 0, 0].tolist()) == pytest.approx([0, 128 / 255, 1])


def test_order_augmentation_and_noise_change_with_step_seed_and_set() -> None:
    same = numbered("same", 30)
    made = batches(inside=same, outside=same, batch=30, augment=AUGMENT, noise=True)
    other = batches(inside=same, outside=same, batch=30, augment=AUGMENT, noise=True, seed=4)
    pairs = [made(0), made(1), other(0), other(1)]
    drawn = [batch.images for pair in pairs for batch in pair if batch] + [pair[1].noise for pair in pairs if pair[1]]
    for i, one in enumerate(drawn):
        assert not any(torch.equal(one, two) for two in drawn[i + 1 :])  # type: ignore[arg-type]


def test_the_two_sets_are_shuffled_and_augmented_independently() -> None:
    """Even if they are the same set: x₀ and z₀ must have nothing in common."""
    same = numbered("same", 30)
    inside, outside = batches(inside=same, outside=same, batch=30)(0)
    assert outside is not None
    assert numbers(inside) != numbers(outside)
    ramp = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4).repeat(30, 1, 1, 1)
    alike = ImageSet("alike", ramp)
    inside, outside = batches(inside=alike, outside=alike, batch=30, augment=AUGMENT)(0)
    assert outside is not None
    assert not torch.equal(inside.images, outside.images)


def test_only_the_out_distribution_is_shown_at_other_scales() -> None:
    ramp = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    same = ImageSet("same", ramp.repeat(64, 1, 1, 1))
    inside, outside = batches(inside=same, outside=same, batch=64, augment=Augment(rescaled=0.25))(0)
    assert outside is not None
    changed = [(batch.images != ramp / 255).flatten(1).any(1).sum() for batch in (inside, outside)]
    assert changed[0] == 0
    assert 6 <= changed[1] <= 27  # of 64: 16, and three standard deviations around


def test_noise_is_uniform_between_minus_one_and_one_and_only_where_asked_for() -> None:
    inside, outside = batches(
        noise=True, batch=20, inside=numbered("in", 20, side=40), outside=numbered("out", 40, side=40)
    )(0)
    assert outside is not None
    assert outside.noise is not None
    assert outside.noise.shape == outside.images.shape
    assert outside.noise.min() >= -1
    assert outside.noise.max() <= 1
    assert abs(outside.noise.mean()) < 0.02
    assert abs(outside.noise.square().mean() - 1 / 3) < 0.02
    assert batches()(0)[1].noise is None  # type: ignore[union-attr]
    assert inside.noise is None


def test_without_an_out_distribution_the_noise_is_for_the_in_distribution() -> None:
    alone, none = batches(noise=True, outside=None)(2)
    with_both = batches(noise=True)(2)[1]
    assert none is None
    assert with_both is not None
    assert torch.equal(alone.noise, with_both.noise)  # type: ignore[arg-type]  # the step's, whoever it is for
    assert batches(outside=None)(2)[0].noise is None


@pytest.mark.parametrize("count", [2, 3])
def test_the_rows_of_all_processes_make_up_the_global_batch(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tensors(batches(augment=AUGMENT, noise=True)(4))
    monkeypatch.setattr(processes, "world_size", lambda: count)
    parts = []
    for rank in range(count):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        parts.append(tensors(batches(augment=AUGMENT, noise=True)(4)))
    for index, tensor in enumerate(whole):
        mine = [part[index] for part in parts]
        assert {len(rows) for rows in mine} == {6 // count}
        assert torch.equal(torch.stack(mine, 1).flatten(0, 1), tensor)


# Several steps at once, as on a GPU


def together(steps: int, **changes: Any) -> tuple[Batches, list[int]]:
    """Batches made for so many steps at once, and a list of how many images each augmentation was of."""
    made = batches(**({"augment": AUGMENT, "noise": True} | changes))
    made.together = steps
    apply, sizes = made.apply, []

    def counting(pixels: Tensor, draws: Tensor) -> Tensor:
        sizes.append(len(pixels))
        return apply(pixels, draws)

    made.apply = counting
    return made, sizes


def assert_same(one: tuple[Batch, Batch | None], two: tuple[Batch, Batch | None]) -> None:
    assert (one[1] is None) == (two[1] is None)
    assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(two), strict=True))


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("start", [0, 2, 61])  # from 61 on, four steps need draws of two portions
def test_batches_of_several_steps_at_once_are_those_of_one_step_each(outside: bool, start: int) -> None:
    sets = {} if outside else {"outside": None}
    (many, sizes), (single, _) = together(4, **sets), together(1, **sets)
    for step in range(start, start + 9):
        assert_same(many(step), single(step))
    assert sizes == [4 * 6 * (1 + outside)] * 3


@pytest.mark.parametrize("outside", [True, False])
def test_steps_may_be_asked_for_in_any_order_also_if_made_together(outside: bool) -> None:
    """Backwards, twice, out of what is made and back into it."""
    sets = {} if outside else {"outside": None}
    many, sizes = together(4, **sets)
    for step in (5, 8, 6, 6, 4, 7, 9, 0, 3):
        assert_same(many(step), batches(augment=AUGMENT, noise=True, **sets)(step))
    assert len(sizes) == 4  # from 5, from 4, from 9, from 0


def test_noise_is_that_of_the_step_also_if_made_together() -> None:
    many, _ = together(4)
    noises = [many(step)[1].noise for step in range(6)]  # type: ignore[union-attr]
    for step, noise in enumerate(noises):
        assert noise is not None
        alone = together(1)[0](step)[1]
        assert alone is not None
        assert alone.noise is not None
        assert torch.equal(noise, alone.noise)
        assert not any(torch.equal(noise, other) for other in noises[:step] if other is not None)


def test_each_process_has_its_rows_also_if_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [tensors(together(1)[0](step)) for step in range(3)]
    monkeypatch.setattr(processes, "world_size", lambda: 2)
    monkeypatch.setattr(processes, "rank", lambda: 1)
    many, sizes = together(3)
    for step in range(3):
        assert all(torch.equal(a, b[1::2]) for a, b in zip(tensors(many(step)), whole[step], strict=True))
    assert sizes == [3 * 2 * 3]


def test_refuses_a_batch_that_the_processes_cannot_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "world_size", lambda: 4)
    with pytest.raises(Mismatch):
        batches()


def test_refuses_sets_of_different_shapes() -> None:
    with pytest.raises(Mismatch):
        batches(outside=numbered("out", 30, side=5))


@pytest.mark.parametrize("which", ["inside", "outside"])
def test_refuses_a_batch_larger_than_a_set(which: str) -> None:
    with pytest.raises(BadValue):
        batches(**{which: numbered("few", 4)})
