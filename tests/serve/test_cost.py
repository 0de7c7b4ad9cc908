"""What a pass costs is learnt from the passes so far."""

import pytest

from prood.serve.cost import Cost


def learnt(*rows, fixed=0.1, each=0.01):
    cost = Cost()
    for count in rows:
        cost.add(count, fixed + each * count)
    return cost


def test_nothing_is_known_at_first():
    assert Cost().fitting(1.0, 64) == 1
    assert Cost().seconds(10**6, 1.0, 64) == 0


def test_the_line_is_found():
    cost = learnt(1, 8, 20, 32)
    assert cost.fitting(0.5, 64) == 40
    assert cost.fitting(0.5, 16) == 16
    assert cost.seconds(100, 0.5, 64) == pytest.approx(3 * 0.1 + 100 * 0.01)


def test_it_grows_by_doubling():
    assert learnt(1, 2, fixed=0.0, each=1e-9).fitting(0.5, 64) == 4


def test_one_size_alone_is_no_reason_to_stay_with_it():
    """Else a machine that was busy for a moment would never gather again."""
    cost = learnt(*[1] * 100, fixed=1.0)
    assert cost.fitting(0.5, 64) == 2
    assert cost.seconds(10, 0.5, 64) == pytest.approx(10 * 1.01)  # and until it is known, the worst is promised
    cost.add(2, 1.02)
    assert cost.fitting(0.5, 64) == 4


def test_a_large_pass_is_forgotten():
    """What was possible when the machine was free is not tried at once when it is busy."""
    cost = learnt(1, 64, fixed=0.0, each=1e-3)
    for _ in range(60):
        cost.add(1, 1.0)
    assert cost.fitting(0.5, 64) <= 2


def test_a_pass_that_is_dear_however_small_is_shared():
    assert learnt(1, 4, 16, fixed=2.0, each=0.1).fitting(0.5, 64) == 20
