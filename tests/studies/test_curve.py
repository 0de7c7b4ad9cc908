"""The fit of a fusion: on scores whose best curve is known, and on small networks."""

import numpy as np
import pytest
import torch

from prood.data import ImageSet
from prood.errors import BadValue, Unsupported
from prood.evaluation import auc, evaluate
from prood.models import Curve, Fusion, ProoD
from prood.studies import best_shift, fit_fusion, pairs
from prood.studies.curve import SHIFTS, TRUST, FitOptions, Pairs, pairs_of

QUICK = FitOptions(starts=2, directions=6, smallest=0.1)


def made_up(seed: int, images: int = 400) -> Pairs:
    """As outlier exposure and a discriminator on CIFAR: s tells most, g varies little, and its bounds are above it."""
    random = np.random.default_rng(seed)
    g_in, g_out = random.normal(0.3, 0.7, images), 0.4 - random.gamma(0.8, 1.6, images)
    s_out = np.where(random.random(images) < 0.2, random.normal(1.0, 2.0, images), random.normal(-5.5, 0.8, images))
    values = random.normal(7.0, 4.0, images), g_in, s_out, g_out
    return Pairs(*map(torch.tensor, values), torch.tensor(g_out + random.uniform(0.2, 0.6, images)))


def test_a_measure_is_that_of_the_scores():
    sample, curve = made_up(0), Curve(3.0, 2.0, 0.5)
    inside = curve(sample.s_in, sample.g_in)
    assert sample.measure(curve)[0] == auc(inside, curve(sample.s_out, sample.g_out))
    assert sample.measure(curve)[1] == pytest.approx(auc(inside, sample.bound_out), abs=1e-3)
    assert sample.classifier_auc == auc(sample.s_in, sample.s_out)
    assert sample.ceiling == auc(sample.g_in, sample.bound_out)


@pytest.mark.parametrize("drop", [0.0, 0.01, 0.05])
def test_a_fit_keeps_the_auc_and_is_above_every_shift(drop):
    sample = made_up(1)
    least = sample.classifier_auc - drop
    fitted = fit_fusion(sample, least, QUICK)
    assert fitted.auc >= least
    assert (fitted.auc, fitted.gauc) == sample.measure(fitted.curve)
    assert fitted.gauc <= sample.ceiling
    reached = [(shift, *sample.measure(Curve.shifted(shift))) for shift in SHIFTS]
    worth = [gauc + TRUST * shift for shift, found, gauc in reached if found >= least]
    assert fitted.gauc + TRUST * fitted.curve.offset > max(worth, default=0.0)
    assert best_shift(sample, least).auc >= least


def test_it_holds_on_images_that_the_fit_has_not_seen():
    sample, other = made_up(2, 1000), made_up(3, 1000)
    least = sample.classifier_auc - 0.02
    fitted, single = fit_fusion(sample, least, QUICK), best_shift(sample, least)
    assert sum(other.measure(fitted.curve)) > sum(other.measure(single.curve))


@pytest.mark.slow
def test_a_known_best_curve_is_found():
    """All inside have g above 0.2 and s above 1.2. Of those outside one half lacks g, the other half s: a minimum.

    On this small scale a single shift is too soft for it.
    """
    s_in, g_in = torch.linspace(1.2, 2.4, 100).double(), torch.linspace(0.2, 0.6, 100).double().flip(0)
    s_out = torch.cat([torch.linspace(-0.8, 0.3, 50), torch.linspace(1.2, 2.4, 50)]).double()
    g_out = torch.cat([torch.linspace(0.2, 0.6, 50), torch.linspace(-0.8, 0.04, 50)]).double()
    sample = Pairs(s_in, g_in, s_out, g_out, g_out)
    assert sample.measure(Curve(0.4, 50.0, 0.0)) == (1.0, pytest.approx(sample.ceiling))  # nothing of either is lost
    found = fit_fusion(sample, 1.0)
    assert found.auc == 1.0
    assert found.gauc == pytest.approx(sample.ceiling, abs=0.002)
    single = best_shift(sample, 1.0)
    assert single.auc < 1.0 or single.gauc < sample.ceiling - 0.02


def test_without_a_curve_that_is_good_enough_the_highest_auc():
    sample = made_up(4)
    found, single = fit_fusion(sample, 1.0, QUICK), best_shift(sample, 1.0)
    assert single.auc == max(sample.measure(Curve.shifted(shift))[0] for shift in SHIFTS)
    assert 1.0 > found.auc >= single.auc


def test_where_all_are_as_good_the_one_that_listens_to_the_classifier():
    apart = Pairs(*(torch.linspace(low, low + 1, 50).double() for low in (5, 5, -5, -5, -4)))
    found = fit_fusion(apart, 1.0, QUICK)
    assert (found.auc, found.gauc) == (1.0, 1.0)
    assert found.curve.offset > 5
    assert best_shift(apart, 1.0, (-3.0, 0.0, 2.0)).curve == Curve.shifted(2.0)


def test_the_same_images_give_the_same_curve():
    assert fit_fusion(made_up(5), 0.9, QUICK) == fit_fusion(made_up(5), 0.9, QUICK)


def test_what_cannot_be_fitted():
    constant = torch.ones(10).double()
    with pytest.raises(Unsupported):
        fit_fusion(Pairs(torch.arange(10).double(), constant, constant, constant, constant), 0.5)
    with pytest.raises(BadValue):
        FitOptions(smallest=0.0)


@pytest.mark.slow
@torch.no_grad()
def test_pairs_measure_what_an_evaluation_measures(f, g, inside, outside):
    f[-1].weight.mul_(300)
    dark, eps = ImageSet("dark", outside["dark"].images), 0.01
    sample = pairs(f, g, dark, inside, eps)
    again = pairs_of(f, g, dark, {"noise": outside["noise"], "bright": inside}, eps)["bright"]
    assert all(
        torch.allclose(one, other) for one, other in zip(vars(sample).values(), vars(again).values(), strict=True)
    )
    for model, curve in (
        (ProoD(f, g, 1.5), Curve.shifted(1.5)),
        (Fusion(f, g, Curve(1.0, 3.0, -0.5), 2.0), Curve(1.0, 3.0, -0.5)),
    ):
        (found,) = evaluate(model, inside=dark, outside={"bright": inside}, eps=eps)
        assert sample.measure(curve) == pytest.approx((found.auc, found.gauc), abs=1e-3)
        assert 0 < found.gauc < found.auc
