import numpy as np
import pytest
import torch

from prood import evaluate
from prood.attacks import APGD
from prood.errors import ProodError
from prood.evaluation import BoundViolated
from prood.evaluation.measuring import confirm
from prood.models import InLogit

QUICK = APGD(iterations=5, restarts=1)


class TooLow(InLogit):
    """A bound that forgets half of the radius."""

    def upper_bound(self, images, eps, **options):
        return super().upper_bound(images, eps / 2, **options)


def test_a_wrong_bound_stops_the_evaluation_and_saves_its_input(g, inside, outside, tmp_path):
    noise = {"noise": outside["noise"]}
    with pytest.raises(BoundViolated, match=r"violation\.npz"):
        evaluate(TooLow(g), inside=inside, outside=noise, eps=0.1, attacks=QUICK, folder=tmp_path, stop="never")
    assert issubclass(BoundViolated, ProodError)  # one line on the command line
    with np.load(tmp_path / "violation.npz") as saved:
        assert (saved["scores"] > saved["bounds"]).all()
        assert np.abs(saved["points"] - saved["images"]).max() <= 0.1 + 1e-6
        with torch.no_grad():
            again = g(torch.tensor(saved["points"]))
        np.testing.assert_allclose(again, saved["scores"], rtol=1e-5)
        assert saved["eps"] == 0.1
    assert not (tmp_path / "results.json").exists()


def test_there_is_no_tolerance_and_at_radius_zero_none_is_needed(g, inside, outside):
    (result,) = evaluate(g, inside=inside, outside={"noise": outside["noise"]}, eps=0.0, attacks=QUICK)
    assert (result.scores.attacked <= result.scores.certified).all()
    assert result.certificate == "best, float32"


def test_only_what_exceeds_is_saved(outside, tmp_path):
    images = outside["noise"].floats()
    found = torch.zeros(len(images), dtype=torch.float64)
    confirm(images, images, found, found, 0.0, tmp_path)
    bound = found.clone()
    bound[3] -= 1e-12
    with pytest.raises(BoundViolated):
        confirm(images, images, found, bound, 0.0, tmp_path)
    with np.load(tmp_path / "violation.npz") as saved:
        np.testing.assert_array_equal(saved["images"], images[3:4])
