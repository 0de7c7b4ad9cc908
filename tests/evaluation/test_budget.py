"""Attacks on as many images as a budget allows: honest identities, nothing silent, and it can be resumed."""

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from prood.attacks import Attack, Ensemble
from prood.errors import BadValue
from prood.evaluation import Budget, EvaluateOptions, budget, evaluate_run, read_results
from prood.evaluation.budget import STEPS, budget_for
from prood.models import ProoD, save, score_of


@pytest.fixture
def run(f, g, inside, outside, tmp_path):
    np.savez(tmp_path / "in.npz", images=inside.images.squeeze(1).numpy(), labels=inside.labels.numpy())
    np.savez(tmp_path / "out.npz", images=outside["noise"].images.squeeze(1).numpy())
    save(ProoD(f, g, 1.0), tmp_path / "run" / "model.safetensors", eps=0.05, threshold=0.6)
    return tmp_path / "run"


@pytest.fixture
def attacked(monkeypatch):
    """How many images each attack was given."""
    seen, call = [], Ensemble.__call__

    def counted(self, score, images, *arguments, **options):
        seen.append(len(images))
        return call(self, score, images, *arguments, **options)

    monkeypatch.setattr(Ensemble, "__call__", counted)
    return seen


def asked(run, **options):
    names = {"inside": f"npz:{run.parent}/in.npz", "outside": [f"npz:{run.parent}/out.npz"]}
    return evaluate_run(run, **names, limit=16, device="cpu", **options)


def test_all_images_are_certified_and_a_part_is_attacked(run, attacked):
    shown = io.StringIO()
    whole, part = asked(run, budget=Budget(images=6), console=Console(file=shown))
    assert attacked == [6]
    assert (whole.images, whole.attacks, whole.aauc, whole.limit) == (16, None, None, 16)
    assert (part.images, part.attacks, part.limit) == (6, "fast", 6)
    assert part.gauc <= part.aauc <= part.auc
    assert (whole.available, part.available) == (None, 16)
    assert whole.identity != part.identity
    assert "run: of 16 images of each set, all are certified and 6 attacked" in shown.getvalue()
    apart = np.abs(part.scores.clean[:, None] - whole.scores.clean).min(1)
    assert (apart < 1e-5).all(), "the images that are attacked are among those that are certified"
    (all_of_them,) = asked(run)  # is another evaluation
    assert attacked == [6, 16]
    assert len({whole.identity, part.identity, all_of_them.identity}) == 3


def test_what_is_there_is_not_attacked_again(run, attacked):
    asked(run, budget=Budget(images=6))
    before = (run / "results.json").read_bytes()
    again = asked(run, budget=Budget(images=6))
    assert attacked == [6]
    assert (run / "results.json").read_bytes() == before
    assert list(read_results(run)) == list(again)


def test_a_budget_that_is_enough_changes_nothing(run, attacked):
    (one,) = asked(run, budget=Budget(minutes=60))
    assert (one.images, attacked, one.available) == (16, [16], None)
    (also,) = asked(run, budget=Budget(images=16))
    assert also == one


def test_too_few_minutes_for_any_image_leave_the_attack_out(run, attacked, monkeypatch):
    monkeypatch.setattr(budget, "_seconds_an_image", lambda *_: (1e-3, 1e3))
    shown = io.StringIO()
    (one,) = asked(run, budget=Budget(minutes=5), console=Console(file=shown))
    assert (one.images, one.attacks, attacked) == (16, None, [])
    assert "all are certified and none attacked, for about 5 minutes" in shown.getvalue()


def test_bounds_that_take_long_are_found_for_fewer_images(run, attacked, monkeypatch):
    monkeypatch.setattr(budget, "_seconds_an_image", lambda *_: (30.0, 60.0))
    shown = io.StringIO()
    whole, part = asked(run, budget=Budget(minutes=5), console=Console(file=shown))
    assert [(one.images, one.available, one.attacks) for one in (whole, part)] == [(10, 16, None), (5, 16, "fast")]
    assert "of 16 images of each set, 10 are certified and 5 attacked" in shown.getvalue()
    (alone,) = asked(run, budget=Budget(minutes=5), attacks=None)
    assert (alone, attacked) == (whole, [5])


def test_an_interrupted_evaluation_goes_on_though_the_machine_is_slower_now(run, attacked, monkeypatch):
    monkeypatch.setattr(budget, "_seconds_an_image", lambda *_: (1e-3, 10.0))
    *_, part = asked(run, budget=Budget(minutes=2))
    assert part.images == 10
    monkeypatch.setattr(budget, "_seconds_an_image", lambda *_: (2e-3, 25.0))
    *_, again = asked(run, budget=Budget(minutes=2))
    assert (again, attacked) == (part, [10])


def test_the_number_follows_from_the_time_of_an_image():
    five = Budget(minutes=5)
    assert five.affordable(each=1.0, parts=1) == 200
    assert five.affordable(each=1.0, parts=4) == 50
    assert five.affordable(each=100.0, parts=1) == 0
    assert five.affordable(1e-9, 1) == STEPS[-1]
    assert five.affordable(1.0, 4, begun=[20, 100]) == 100
    assert five.affordable(1.0, 4, begun=[5, 1000]) == 50
    assert all(STEPS[place] < STEPS[place + 1] for place in range(len(STEPS) - 1))


def test_only_the_default_attacks_on_a_cpu_have_a_budget_by_themselves():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert budget_for(None, None, cpu) == Budget(minutes=budget.MINUTES)
    assert budget_for(None, None, gpu) is None
    assert budget_for(None, None, None) is None
    assert budget_for(7, None, None) == Budget(images=7)
    assert budget_for(None, 0.5, gpu) == Budget(minutes=0.5)


@pytest.mark.parametrize(
    "words", [{"images": 0}, {"minutes": 0.0}, {"minutes": float("nan")}, {"images": 3, "minutes": 1.0}]
)
def test_a_budget_that_means_nothing_is_refused(words):
    with pytest.raises(BadValue):
        Budget(**words)


def test_the_clock_measures_bounds_and_passes(f, g, inside):
    class Ten(Attack):
        name = "ten"
        cost = 9

        def search(self, search):
            raise AssertionError("nothing is attacked to measure")

    for model in (f, g, ProoD(f, g, 1.0)):
        options = EvaluateOptions(attacks=Ten())
        bound, search = budget._seconds_an_image(score_of(model), options, inside, 0.01)
        assert 0 < bound < 10
        assert 0 < search < 10
    assert budget._seconds_an_image(score_of(g), EvaluateOptions(), inside, 0.01)[1] == 1e-6
