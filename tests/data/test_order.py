import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.data import Order, generator
from prood.errors import BadValue


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**40), st.integers(0, 3))
def test_an_epoch_shows_no_image_twice_and_drops_less_than_a_batch(
    count: int, batch: int, seed: int, epoch: int
) -> None:
    if batch > count:
        with pytest.raises(BadValue):
            Order(count, batch, seed)
        return
    order = Order(count, batch, seed)
    steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
    rows = torch.cat([order.rows(step) for step in steps]).tolist()
    assert len(rows) == len(set(rows)) > count - batch
    assert set(rows) <= set(range(count))


def test_resuming_at_any_step_gives_the_same_batches() -> None:
    straight = [Order(23, 5, seed=4).rows(step).tolist() for step in range(40)]
    for step in (39, 0, 17, 4, 3, 38):
        assert Order(23, 5, seed=4).rows(step).tolist() == straight[step]


def test_epochs_and_seeds_differ() -> None:
    order = Order(100, 100, seed=0)
    shuffles = [order.rows(0), order.rows(1), Order(100, 100, seed=1).rows(0), torch.arange(100)]
    assert len({tuple(rows.tolist()) for rows in shuffles}) == 4


def test_writing_into_a_batch_does_not_change_the_next_one() -> None:
    order = Order(10, 10, seed=0)
    first = order.rows(0)
    kept = first.clone()
    first.zero_()
    assert torch.equal(order.rows(0), kept)
    assert kept.dtype == torch.int64


def test_every_image_is_read_equally_often_over_many_epochs() -> None:
    order = Order(7, 3, seed=0)
    counts = torch.bincount(torch.cat([order.rows(step) for step in range(2000)]), minlength=7)
    assert (counts - 6000 / 7).abs().max() < 60  # one image of seven misses each epoch, by chance alone


def test_refuses_empty_batches_and_negative_steps() -> None:
    with pytest.raises(BadValue):
        Order(10, 0, seed=0)
    with pytest.raises(BadValue):
        Order(10, 5, seed=0).rows(-1)


def test_generator_tells_its_parts_apart() -> None:
    keys = [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 2, 3), (12, 3), (1, 23), (-1,), (2**70,)]
    draws = {tuple(torch.rand(4, generator=generator(*key)).tolist()) for key in keys}
    assert len(draws) == len(keys)


@pytest.mark.slow
def test_generator_and_order_are_the_same_in_another_process() -> None:
    program = (
        "import torch; from prood.data import Order, generator;"
        "print(torch.randint(0, 10**9, (3,), generator=generator(5, 6)).tolist(), Order(9, 4, 2).rows(5).tolist())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = torch.randint(0, 10**9, (3,), generator=generator(5, 6)).tolist()
    assert other.strip() == f"{here} {Order(9, 4, 2).rows(5).tolist()}"
