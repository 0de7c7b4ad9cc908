"""An evaluation in parts: what is measured is kept, each process reads its own, and the last one puts all together."""

import numpy as np
import pytest
import torch

from prood import processes
from prood.evaluation import EvaluateOptions, evaluate
from prood.evaluation.measuring import Evaluator
from prood.evaluation.parts import Shelf
from prood.models import score_of


def same(one, other, tolerance=0.0):
    """In other batches an image rounds differently, and an attack goes on from there."""
    for name in ("inside", "clean", "attacked", "certified"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=tolerance, err_msg=name)
    np.testing.assert_array_equal(one.gallery, other.gallery)
    np.testing.assert_array_equal(one.gallery_clean, other.gallery_clean)
    assert (one.gallery_attacked.astype(int) - other.gallery_attacked).__abs__().max() <= (1 if tolerance else 0)


@pytest.fixture
def evaluator(f):
    return Evaluator(score_of(f), EvaluateOptions(batch=4, attacks="fast", stop="never"))


@torch.no_grad()
def test_whoever_is_last_puts_together_what_all_have_measured(evaluator, outside, tmp_path, monkeypatch):
    images, inside, loaded = outside["dark"], torch.zeros(3, dtype=torch.float64), []
    whole, statistics = evaluator.run(images, 0.1, inside, lambda _: None)
    own = Shelf.own
    monkeypatch.setattr(Shelf, "own", lambda self, *rest: loaded.append(self.path(*rest[:1]).name) or own(self, *rest))
    monkeypatch.setattr(processes, "world_size", lambda: 3)
    for rank in (2, 0, 1):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        shelf = evaluator.shelf(images, tmp_path / "shelf")
        loaded.clear()
        evaluator.measured(images, 0.1, inside, lambda _: None, shelf=shelf)
        assert {name[0] for name in loaded} == {str(rank)}  # of its own only
        with shelf.taken() as parts:
            assert (parts is None) == (rank != 1)
            if parts is not None:
                found, costs = evaluator.together(images, inside, parts, all_of_them=True)
    same(found, whole, 1e-5)
    assert {name: costs[name] for name in ("forward", "by")} == {name: statistics[name] for name in ("forward", "by")}
    assert not (tmp_path / "shelf").exists()


def test_an_evaluation_that_was_cut_short_goes_on_with_its_next_part(f, inside, outside, tmp_path, monkeypatch):
    options = {"inside": inside, "outside": {"dark": outside["dark"]}, "eps": 0.1, "batch": 7, "attacks": "fast"}
    (whole,) = evaluate(f, **options, folder=tmp_path / "whole")
    part, made = Evaluator._part, []

    def cut(self, images, rows, *rest):
        made.append(rows.tolist())
        if len(made) == 3:
            raise KeyboardInterrupt
        return part(self, images, rows, *rest)

    monkeypatch.setattr(Evaluator, "_part", cut)
    with pytest.raises(KeyboardInterrupt):
        evaluate(f, **options, folder=tmp_path / "cut")
    next((tmp_path / "cut").rglob("0-of-1-1-*.npz")).write_bytes(b"half")  # a copy that broke off
    (again,) = evaluate(f, **options, folder=tmp_path / "cut")
    assert [rows[0] for rows in made] == [0, 7, 14, 7, 14, 21, 28]
    same(again.scores, whole.scores)
    assert (again.identity, again.aauc, again.gauc) == (whole.identity, whole.aauc, whole.gauc)
    assert [file.suffix for file in (tmp_path / "cut" / "scores").iterdir()] == [".npz"]
    assert not list((tmp_path / "cut" / "scores").glob(".*"))
