"""The queue before the model: what is gathered, in which order, and what happens when something fails."""

import asyncio
import threading

import numpy as np
import pytest
import torch

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


def batcher(lanes=None, *, batch=8, wait_ms=0.0, queue=100):
    options = Options(batch=batch, wait_ms=wait_ms, queue=queue)
    return Batcher(lanes or {"double": double}, options, Turns(), lambda lane, rows: None)


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
    work.gate.set()

    async def main():
        queue = batcher({"slow": work}, batch=1, wait_ms=20)
        await asyncio.gather(*(queue.run("slow", rows(float(n), float(n))) for n in range(3)))
        queue.close()

    asyncio.run(main())
    assert [values for _, values in passes] == [[0], [0], [1], [1], [2], [2]]


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


def test_lanes_take_turns():
    passes = []
    works = {name: Slow(name, passes) for name in ("quick", "long")}

    async def main():
        queue = batcher(works, batch=1)
        tasks = [asyncio.ensure_future(queue.run("long", rows(1.0, 2.0, 3.0)))]
        await until(lambda: passes)
        tasks += [asyncio.ensure_future(queue.run("quick", rows(value))) for value in (7.0, 8.0)]
        await until(lambda: queue.waiting == 4)
        for work in works.values():
            work.gate.set()
        await asyncio.gather(*tasks)
        queue.close()

    asyncio.run(main())
    assert [lane for lane, _ in passes] == ["long", "quick", "long", "quick", "long"]


def test_a_full_queue_refuses_and_an_empty_one_takes_what_is_allowed():
    passes = []
    work = Slow("slow", passes)

    async def main():
        queue = batcher({"slow": work}, batch=2, queue=3)
        tasks = [asyncio.ensure_future(queue.run("slow", rows(*range(6))))]  # more than the queue, but nothing waits
        await until(lambda: passes)
        assert queue.waiting == 4
        with pytest.raises(Refused) as refused:
            await queue.run("slow", rows(9.0))
        assert refused.value.status == 503
        work.gate.set()
        await asyncio.gather(*tasks)
        assert (await queue.run("slow", rows(9.0)))["twice"] == 18
        queue.close()

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
