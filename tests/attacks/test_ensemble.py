from dataclasses import astuple

import pytest
import torch
from torch import Tensor

from prood.attacks import APGD, NEVER, PGD, PRESETS, Ensemble, Square, preset
from prood.errors import UnknownName
from prood.models import Confidence, small

MEMBERS = (PGD(steps=8, uniform=1, gaussian=1), APGD(iterations=12, restarts=2), Square(queries=40))


def test_the_paper_preset_is_that_of_section_4_2():
    pgd, apgd, square = preset("paper").members
    assert (type(pgd), type(apgd), type(square)) == (PGD, APGD, Square)
    assert astuple(pgd) == (200, 0.9, 0.1, 1, 3, 3, 1e-4, 0)
    assert astuple(apgd) == (500, 5, 0)
    assert astuple(square) == (5000, 0.8)
    assert preset("paper").passes == 1 + 2 * 7 * 201 + 2 * 5 * 501 + 5000


def test_fast_is_twenty_times_cheaper_and_strong_three_times_dearer():
    paper = PRESETS["paper"].passes
    assert 20 * PRESETS["fast"].passes <= paper
    assert 3 * paper <= PRESETS["strong"].passes <= 4 * paper


def test_square_alone_needs_no_gradients(scored):
    assert preset("square").members == PRESETS["paper"].members[2:] == (Square(),)

    def blind(u: Tensor) -> Tensor:
        assert not u.requires_grad
        return u.double().mean((1, 2, 3))

    outcome = preset("square")(scored(blind), torch.full((1, 1, 4, 4), 0.5), 0.1, goal=0.55)
    assert outcome.scores.item() >= 0.55


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(UnknownName, match="'weak'"):
        preset("weak")


def scores(scored, wavy):
    torch.manual_seed(0)
    network = small(4, width=4).eval()
    yield Confidence(network)
    yield wavy((1, 28, 28))
    yield scored(lambda u: (u.double().mean((1, 2, 3)) - 0.55).relu())

    def bumps(u: Tensor) -> Tensor:
        return (u.double() * 40).sin().mean((1, 2, 3))

    yield scored(bumps)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_an_ensemble_is_never_weaker_than_a_member(which, order, scored, wavy, edgy):
    score = list(scores(scored, wavy))[which]
    x = edgy(5, (1, 28, 28))
    members = tuple(MEMBERS[k] for k in order)
    together = Ensemble(members)(score, x, 0.1, goal=NEVER, seed=3)
    alone = [member(score, x, 0.1, goal=NEVER, seed=3) for member in members]
    assert torch.equal(together.scores, torch.stack([outcome.scores for outcome in alone]).amax(0))
    for k, name in enumerate(together.found_by):
        if name != "clean":
            winner = [member.name for member in members].index(name)
            assert alone[winner].scores[k] == together.scores[k]
            assert torch.equal(alone[winner].images[k], together.images[k])


def test_members_of_members_count(edgy, wavy):
    nested = Ensemble((Ensemble(MEMBERS[:2]), MEMBERS[2]))
    flat = Ensemble(MEMBERS)
    assert nested.names == flat.names == ("pgd", "apgd", "square")
    assert nested.cost == flat.cost == sum(member.cost for member in MEMBERS)
    x, score = edgy(3, (1, 5, 5)), wavy((1, 5, 5))
    first, second = nested(score, x, 0.2), flat(score, x, 0.2)
    assert torch.equal(first.images, second.images)
    assert first.found_by == second.found_by


def test_what_one_member_has_settled_rests(scored):
    score = scored(lambda u: u.double().sum((1, 2, 3)))
    x = torch.full((2, 1, 4, 4), 0.5)
    outcome = Ensemble(MEMBERS)(score, x, 0.1, goal=9.5)
    assert outcome.settled.all()
    assert outcome.found_by == ["pgd", "pgd"]
    assert outcome.forward == score.forward < 2 * 3 * 9
