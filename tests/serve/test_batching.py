"""The queue before the model: what is gathered, in which order, and what happens when something fails."""

import asyncio
import threading

import numpy as np
import pytest
import torch

from prood.serve import batching
from prood.serve.answer import Refused
from prood.serve.batching import Batcher, Turns
from prood.serve.options import Options


def double(rows, numbers):
    extra = 0 if numbers is None else numbers.numpy()
    return {"twice": 2 * rows.numpy().reshape(len(rows)) + extra}


class Slow:
    """Work whose passes are recorded and wait for a gate."""

    def __init__(self, lane, passes):
        self.lane, self.passes, self.gate = lane, passes, threading.Event()

    def __call__(self, rows, numbers):
        self.passes.append((self.lane, rows.reshape(-1).tolist()))
        assert self.gate.wait(20)
        return double(rows, numbers)


def batcher(lanes=None, *, batch=8, wait_ms=0.0, known=True, **limits):
    """With `known`, passes of this size were seen before, and cost next to nothing."""
    options = Options(batch=batch, wait_ms=wait_ms, **limits)
    found = Batcher(lanes or {"double": double}, options, Turns(), lambda *told: None)
    for lane in found._lanes.values() if known else ():
        lane.cost.add(batch, 1e-6)
    return found


@pytest.fixture
def clock(monkeypatch):
    """The time as the queue sees it: it passes when a test says so, however busy the machine is."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(batching, "time", made)
    return made


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)[:, None]


async def until(condition):
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")


def test_what_waits_while_the_model_works_shares_a_pass():
    passes = []
    work = Slow("slow", passes)

    async def main():
        queue = batcher({"slow": work}, batch=4)
        tasks = [asyncio.ensure_future(queue.run("slow", rows(0.0)))]
        await until(lambda: passes)
        tasks += [asyncio.ensure_future(queue.run("slow", rows(float(n)))) for n in range(1, 6)]
        await until(lambda: queue.waiting == 5)
        work.gate.set()
        found = await asyncio.gather(*tasks)
        queue.close()
        return [answer["twice"].tolist() for answer in found]

    assert asyncio.run(main()) == [[0], [2], [4], [6], [8], [10]]
    assert [values for _, values in passes] == [[0], [1, 2, 3, 4], [5]]


def test_a_batch_of_one_gathers_nothing():
    passes = []
    work = Slow("slow", passes)

    async def main():
        queue = batcher({"slow": work}, batch=1, wait_ms=20)
        tasks = [asyncio.ensure_future(queue.run("slow", rows(9.0)))]
        await until(lambda: passes)
        tasks += [asyncio.ensure_future(queue.run("slow", rows(float(n), float(n)))) for n in range(3)]
        await until(lambda: queue.waiting == 6)  # all three are in line before the first pass ends
        work.gate.set()
        await asyncio.gather(*tasks)
        queue.close()

    asyncio.run(main())
    assert [values for _, values in passes] == [[9], [0], [1], [2], [0], [1], [2]]


def test_a_request_waits_for_others_but_not_for_ever():
    passes = []
    work = Slow("slow", passes)
    work.gate.set()

    async def main():
        queue = batcher({"slow": work}, batch=3, wait_ms=30_000)
        three = [asyncio.ensure_future(queue.run("slow", rows(float(n)))) for n in range(3)]
        await asyncio.wait_for(asyncio.gather(*three), 20)  # full, so nobody waits for the time to pass
        queue.close()
        queue = batcher({"slow": work}, batch=3, wait_ms=1)
        await asyncio.wait_for(queue.run("slow", rows(9.0)), 20)
        queue.close()

    asyncio.run(main())
    assert [values for _, values in passes] == [[0, 1, 2], [9]]


def test_a_long_request_is_cut_and_put_together_again():
    async def main():
        queue = batcher(batch=4)
        found = await asyncio.gather(
            queue.run("double", torch.arange(11.0)[:, None], torch.arange(11.0) * 100),
            queue.run("double", rows(50.0), torch.tensor([1.0])),
        )
        queue.close()
        return found

    first, second = asyncio.run(main())
    np.testing.assert_array_equal(first["twice"], np.arange(11) * 102)
    np.testing.assert_array_equal(second["twice"], [101])


def test_nobody_fails_because_of_a_neighbour():
    gate = threading.Event()

    def picky(some, numbers):
        assert gate.wait(20)
        if (some < 0).any():
            raise ValueError("negative")
        return double(some, numbers)

    async def main():
        queue = batcher({"picky": picky})
        tasks = [asyncio.ensure_future(queue.run("picky", rows(value))) for value in (1.0, -1.0, 2.0)]
        await until(lambda: queue.waiting < 3)
        gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        again = await queue.run("picky", rows(4.0))
        queue.close()
        return found, again

    (good, wrong, other), again = asyncio.run(main())
    assert good["twice"] == 2
    assert other["twice"] == 4
    assert isinstance(wrong, ValueError)
    assert again["twice"] == 8


def test_predictions_come_first_and_proofs_are_not_starved(clock):
    """A fifth of the time is the proofs'; a lane that had nothing to do has saved up none of it."""
    passes, gate = [], threading.Event()
    gate.set()

    def lane(name):
        def work(rows, numbers):
            passes.append(name)
            assert gate.wait(20)
            clock.now += 0.01
            return double(rows, numbers)

        return work

    async def main():
        queue = batcher({"predict": lane("predict"), "bound": lane("bound")}, batch=1)
        await asyncio.gather(*(queue.run("predict", rows(1.0)) for _ in range(20)))
        passes.clear()
        gate.clear()
        tasks = [asyncio.ensure_future(queue.run("bound", torch.ones(10, 1)))]
        await until(lambda: passes)
        tasks += [asyncio.ensure_future(queue.run("predict", rows(1.0))) for _ in range(16)]
        await until(lambda: queue.waiting == 9 + 16)
        gate.set()
        await asyncio.gather(*tasks)
        queue.close()

    asyncio.run(main())
    during = passes[1 : passes.index("predict") + 20]
    assert passes.index("predict") <= 2
    assert 2 <= during.count("bound") <= 6


def test_a_long_request_leaves_room_for_short_ones_in_every_pass():
    passes = []
    work = Slow("slow", passes)

    async def main():
        queue = batcher({"slow": work}, batch=4)
        tasks = [asyncio.ensure_future(queue.run("slow", torch.zeros(12, 1)))]
        await until(lambda: passes)
        tasks.append(asyncio.ensure_future(queue.run("slow", rows(1.0))))
        await until(lambda: queue.waiting == 9)
        work.gate.set()
        await asyncio.gather(*tasks)
        queue.close()

    asyncio.run(main())
    assert [1.0 in values for _, values in passes][:2] == [False, True]
    assert sum(len(values) for _, values in passes) == 13


def test_passes_are_bounded_in_time(clock):
    """Nothing is known at first: so a pass has one row, then twice as many, up to what fits."""
    sizes = []

    def slow(some, numbers):
        sizes.append(len(some))
        clock.now += 0.02 * len(some)
        return double(some, numbers)

    async def main():
        queue = batcher({"slow": slow}, batch=64, known=False, pass_s=0.1)
        found = await queue.run("slow", torch.arange(30.0)[:, None])
        queue.close()
        return found["twice"].tolist()

    assert asyncio.run(main()) == [2 * n for n in range(30)]
    assert sizes == [1, 2, 4, 5, 5, 5, 5, 3]
    assert max(sizes[4:]) <= 6


def test_what_would_take_too_long_is_not_accepted():
    async def main():
        queue = batcher(known=False, deadline_s=10.0)
        with queue.promise("double", 10**6):  # nobody knows yet
            pass
        queue._lanes["double"].cost.add(1, 1.0)
        with (
            pytest.raises(Refused, match="about 11 seconds, of 10: send fewer") as refused,
            queue.promise("double", 11),
        ):
            pass
        assert refused.value.status == 413
        with queue.promise("double", 6):
            with pytest.raises(Refused, match="too many requests are waiting") as refused, queue.promise("double", 6):
                pass
            assert refused.value.status == 503
        with queue.promise("double", 6):
            assert queue.promised == 6
        assert queue.promised == 0

    asyncio.run(main())


def test_nobody_computes_what_nobody_waits_for():
    passes = []
    work = Slow("slow", passes)

    async def main():
        queue = batcher({"slow": work}, batch=2)
        first = asyncio.ensure_future(queue.run("slow", torch.zeros(100, 1)))
        await until(lambda: passes)
        other = asyncio.ensure_future(queue.run("slow", rows(1.0)))
        await until(lambda: queue.waiting == 99)
        first.cancel()
        await until(lambda: queue.waiting == 1)
        work.gate.set()
        assert (await other)["twice"] == 2
        queue.close()

    asyncio.run(main())
    assert len(passes) == 2


def test_a_stuck_pass_is_noticed(monkeypatch):
    monkeypatch.setattr(batching, "STUCK_S", 0.05)
    passes = []
    work = Slow("slow", passes)

    async def main():
        queue = batcher({"slow": work})
        assert not queue.stuck
        task = asyncio.ensure_future(queue.run("slow", rows(1.0)))
        await until(lambda: passes)
        await until(lambda: queue.stuck)
        assert not queue.close(0.01)
        work.gate.set()
        await task
        assert not queue.stuck
        assert queue.close()

    asyncio.run(main())


def test_closing_finishes_what_was_accepted_and_takes_no_more():
    passes = []
    work = Slow("slow", passes)

    async def main():
        queue = batcher({"slow": work}, batch=1, wait_ms=60_000)
        tasks = [asyncio.ensure_future(queue.run("slow", rows(float(n)))) for n in range(3)]
        await until(lambda: passes)
        closing = asyncio.ensure_future(asyncio.to_thread(queue.close))
        await until(lambda: queue._closed)
        with pytest.raises(Refused, match="shutting down"):
            await queue.run("slow", rows(9.0))
        work.gate.set()
        await asyncio.wait_for(closing, 20)
        return [answer["twice"].item() for answer in await asyncio.gather(*tasks)]

    assert asyncio.run(main()) == [0, 2, 4]


def test_turns_are_handed_on_in_order():
    turns, order = Turns(), []
    started = threading.Event()

    def long():
        with turns:
            order.append("first step")
            started.set()
            while turns._next < 3:  # until the others have asked
                pass
            turns.hand_on()
            order.append("second step")

    def short(name):
        with turns:
            order.append(name)

    threads = [threading.Thread(target=long)]
    threads[0].start()
    assert started.wait(20)
    for count, name in enumerate(("a", "b")):
        threads.append(threading.Thread(target=short, args=(name,)))
        threads[-1].start()
        while turns._next < 2 + count:
            pass
    for thread in threads:
        thread.join(20)
    assert order == ["first step", "a", "b", "second step"]
