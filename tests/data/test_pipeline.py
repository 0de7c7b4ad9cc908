import os
import signal
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from prood import processes
from prood.data import ImageSet, Order, StoredSet, pipeline, stream
from prood.errors import BadValue, ProodError

CPU = torch.device("cpu")
COUNT, BATCH, SEED = 23, 4, 6
ORDER = Order(COUNT, BATCH, SEED)


@dataclass(frozen=True)
class Slow:
    """Image n is filled with n; notes which process read it."""

    folder: Path | None = None
    broken: int | None = None
    deadly: int | None = None

    def __len__(self) -> int:
        return COUNT

    def read(self, row: int) -> Tensor:
        if self.folder is not None:
            (self.folder / f"{row}-{os.getpid()}-{time.monotonic_ns()}").touch()
        if row == self.broken:
            raise ProodError(f"cannot read the image {row}.png")
        if row == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((1, 2, 2), row, dtype=torch.uint8)

    def fingerprint(self) -> str:
        return "0" * 16


def stored(**changes: object) -> StoredSet:
    return StoredSet("slow", Slow(**changes), (1, 2, 2), torch.arange(COUNT) * 10)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "IN_MEMORY", 0)


def rows(got: tuple[Tensor, Tensor | None]) -> list[int]:
    images, labels = got
    assert images.dtype == torch.uint8
    assert labels is not None
    numbers = images[:, 0, 0, 0].tolist()
    assert labels.tolist() == [10 * number for number in numbers]
    return numbers


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_from_disk_come_the_batches_of_the_order(workers: int) -> None:
    batches = stream(stored(), ORDER, CPU, workers=workers)
    for step in range(12):  # more than two epochs
        assert rows(batches(step)) == ORDER.rows(step).tolist()


def test_what_fits_is_kept_and_gives_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pipeline, "IN_MEMORY", COUNT * 4)
    batches = stream(stored(folder=tmp_path), ORDER, CPU)
    assert len(list(tmp_path.iterdir())) == COUNT
    in_memory = stream(stored().load(), ORDER, CPU)
    for step in range(12):
        assert rows(batches(step)) == rows(in_memory(step)) == ORDER.rows(step).tolist()
    assert len(list(tmp_path.iterdir())) == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_may_be_entered_anywhere_and_left_again(workers: int) -> None:
    batches = stream(stored(), ORDER, CPU, workers=workers)
    for step in (7, 8, 2, 3, 3, 11, 0):
        assert rows(batches(step)) == ORDER.rows(step).tolist()


def test_a_set_without_labels_has_none() -> None:
    plain = StoredSet("slow", Slow(), (1, 2, 2))
    assert stream(plain, ORDER, CPU, workers=0)(0)[1] is None
    assert stream(ImageSet("x", torch.zeros(COUNT, 1, 2, 2, dtype=torch.uint8)), ORDER, CPU)(0)[1] is None


def test_workers_read_ahead_and_the_main_process_reads_nothing(tmp_path: Path) -> None:
    batches = stream(stored(folder=tmp_path), ORDER, CPU, workers=2)
    batches(0)
    readers: list[str] = []
    deadline = time.monotonic() + 60
    while (len(readers) < 3 * BATCH or len(set(readers)) < 2) and time.monotonic() < deadline:
        time.sleep(0.02)
        readers = [file.name.split("-")[1] for file in tmp_path.iterdir()]
    assert len(readers) >= 3 * BATCH, "nothing was read before it was asked for"
    assert str(os.getpid()) not in readers
    assert len(set(readers)) == 2


def test_the_workers_end_with_their_stream() -> None:
    batches = stream(stored(), ORDER, CPU, workers=1)
    batches(0)
    gone = weakref.ref(batches)
    del batches
    assert gone() is None, "left to the garbage collector, which takes 5 seconds for each worker"


@pytest.mark.parametrize("workers", [0, 2])
def test_each_process_reads_its_own_rows_alone(workers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "world_size", lambda: 2)
    parts = []
    for rank in range(2):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        folder = tmp_path / str(rank)
        folder.mkdir()
        batches = stream(stored(folder=folder), ORDER, CPU, workers=workers)
        parts.append([rows(batches(step)) for step in range(3)])
        if not workers:  # workers read on
            assert len(list(folder.iterdir())) == 3 * BATCH // 2
    whole = [[one for pair in zip(*pieces, strict=True) for one in pair] for pieces in zip(*parts, strict=True)]
    assert whole == [ORDER.rows(step).tolist() for step in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_named_in_one_line(workers: int) -> None:
    broken = ORDER.rows(1)[2].item()
    batches = stream(stored(broken=broken), ORDER, CPU, workers=workers)
    batches(0)
    with pytest.raises(ProodError, match=rf"{broken}\.png$"):
        batches(1)


def test_a_killed_worker_is_an_error_that_says_so() -> None:
    batches = stream(stored(deadly=int(ORDER.rows(0)[0])), ORDER, CPU, workers=1)
    with pytest.raises(ProodError, match="--workers"):
        batches(0)


def test_refuses_a_negative_number_of_workers() -> None:
    with pytest.raises(BadValue):
        stream(stored(), ORDER, CPU, workers=-1)


def test_processes_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)), raising=False)
    assert pipeline.default_workers() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert pipeline.default_workers() == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    assert pipeline.default_workers() == 1
