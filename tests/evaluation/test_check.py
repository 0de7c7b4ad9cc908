import numpy as np
import pytest
import torch

from prood import ProodError, evaluate
from prood.attacks import APGD
from prood.evaluation import BoundViolated
from prood.evaluation.check import confirm
from prood.models import InLogit

QUICK = APGD(iterations=5, restarts=1)


class TooLow(InLogit):
    """A bound that forgets half of the radius."""

    def upper_bound(self, images, eps, *, method="best"):
        return super().upper_bound(images, eps / 2, method=method)


class Rounded(InLogit):
    """A right bound, computed with an error such as float32 makes; in float64 it is exact."""

    def upper_bound(self, images, eps, *, method="best"):
        return super().upper_bound(images, eps, method=method) - (1e-5 if images.dtype == torch.float32 else 0)


def test_a_wrong_bound_stops_the_evaluation_and_saves_its_input(g, inside, outside, tmp_path):
    noise = {"noise": outside["noise"]}
    with pytest.raises(BoundViolated, match=r"bug in a bound; report it with the input saved in .*violation\.npz"):
        evaluate(TooLow(g), inside=inside, outside=noise, eps=0.1, attacks=QUICK, folder=tmp_path, stop="never")
    assert issubclass(BoundViolated, ProodError)  # one line on the command line
    with np.load(tmp_path / "violation.npz") as saved:
        assert (saved["scores"] > saved["bounds"]).all()
        assert np.abs(saved["points"] - saved["images"]).max() <= 0.1
        with torch.no_grad():
            again = g.double()(torch.tensor(saved["points"]))
        np.testing.assert_allclose(again, saved["scores"])
        assert saved["eps"] == 0.1
    assert not (tmp_path / "results.json").exists()


def test_a_rounding_error_is_told_from_a_wrong_bound_and_counted(g, inside, outside):
    (result,) = evaluate(Rounded(g), inside=inside, outside={"noise": outside["noise"]}, eps=0.0, attacks=QUICK)
    assert result.rounding["images"] > 0
    assert 0 < result.rounding["largest"] <= 1.1e-5
    assert (result.scores.attacked <= result.scores.certified).all()
    (exact,) = evaluate(g, inside=inside, outside={"noise": outside["noise"]}, eps=0.1, attacks=QUICK)
    assert exact.rounding == {"images": 0, "largest": 0.0}


def test_only_what_exceeds_is_raised(g, outside):
    images = outside["noise"].floats()
    with torch.no_grad():
        found = g(images).double()
    bound = found.clone()
    bound[3] -= 1e-6
    confirmed = confirm(Rounded(g), images, images, found, bound, 0.0, None)
    assert torch.equal(confirmed, found)
    assert g.last.bias.dtype == torch.float32  # the model itself stays as it was
