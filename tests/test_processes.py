"""What one process does; several are tested where they work, in tests/training and tests/evaluation."""

import pytest
import torch
import torch.distributed as dist

from prood import processes
from prood.errors import UnknownName


def test_a_single_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    processes.start(torch.device("cpu"))
    assert not dist.is_initialized()
    assert (processes.rank(), processes.world_size(), processes.is_main()) == (0, 1, True)
    processes.barrier()
    processes.stop()
    rows = torch.arange(6)
    assert torch.equal(processes.own_rows(rows), rows)
    values = [torch.tensor([1.0, 2.0])]
    processes.average(values)
    assert values[0].tolist() == [1, 2]
    assert processes.total(values[0]).tolist() == [1, 2]


@pytest.mark.parametrize("count", [2, 3])
def test_own_rows_are_a_partition(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "world_size", lambda: count)
    rows = []
    for rank in range(count):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        rows.append(processes.own_rows(torch.arange(12)))
    assert {len(part) for part in rows} == {12 // count}
    assert torch.cat(rows).sort().values.tolist() == list(range(12))


@pytest.mark.parametrize("name", ["banana", "cuda:99"])
def test_a_device_that_is_not_there(name: str) -> None:
    with pytest.raises(UnknownName, match=f"'{name}'"):
        processes.device(name)


def test_without_a_name_the_device_is_a_gpu_or_the_cpu() -> None:
    assert processes.device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
