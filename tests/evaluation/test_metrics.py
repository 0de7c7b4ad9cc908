import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

import prood.evaluation.metrics as metrics
from prood.errors import BadValue, ProodError, UnknownName
from prood.evaluation.metrics import auc, auc_ties_half, bootstrap, fpr, fpr_out_positive, rejected, roc, threshold
from prood.evaluation.words import PROVED

METRICS = [auc, fpr, auc_ties_half, fpr_out_positive]


def arrays(*special: float) -> st.SearchStrategy[np.ndarray]:
    """Few distinct values, so that ties are common; huge and tiny ones among them."""
    values = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([-1e30, -1e-30, 1e-30, 1e30, *special]))
    return st.lists(values, min_size=1, max_size=30).map(np.array)


finite, scores = arrays(), arrays(np.inf, -np.inf)
rates = st.sampled_from([0.95, 1.0, 0.5, 0.55, 0.07, 0.3, 1e-9])


def normal(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(1, 1, n), generator.normal(0, 1, m)


# --- against the definitions


@given(scores, scores)
def test_auc_is_the_fraction_of_pairs_won_strictly(inside, outside):
    pairs = [x > z for x in inside for z in outside]
    assert auc(torch.tensor(inside), torch.tensor(outside)) == sum(pairs) / len(pairs)


@given(scores, scores)
def test_auc_with_ties_half_counts_pairs(inside, outside):
    pairs = [1.0 if x > z else 0.5 if x == z else 0.0 for x in inside for z in outside]
    assert auc_ties_half(inside, outside) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    assert auc_ties_half(inside, outside) + auc_ties_half(outside, inside) == pytest.approx(1, abs=1e-12)


@given(scores, scores, rates)
def test_fpr_counts_what_reaches_the_largest_threshold_that_keeps_enough(inside, outside, tpr):
    t = max(t for t in inside if np.mean(inside >= t) >= tpr)
    assert threshold(inside, tpr) == t
    assert fpr(inside, outside, tpr) == np.mean(outside >= t)


@given(scores, scores, st.lists(rates))
def test_rejected_counts_what_stays_below_the_threshold_at_every_acceptance(inside, outside, accept):
    found = rejected(inside, {"clean": outside, "none": np.full(3, np.inf)}, accept)
    below = [np.mean(outside < threshold(inside, share)) for share in accept]
    np.testing.assert_allclose(found["clean"], below, rtol=0, atol=1e-12)
    assert found["clean"].tolist() == [1 - fpr(inside, outside, share) for share in accept], "to the last digit"
    assert found["none"].tolist() == [0] * len(accept), "a bound of infinity proves nothing"


@given(scores, scores, rates)
def test_fpr_with_out_positive_counts_false_alarms(inside, outside, tpr):
    t = min(t for t in outside if np.mean(outside <= t) >= tpr)
    assert fpr_out_positive(inside, outside, tpr) == np.mean(inside <= t)


@pytest.mark.parametrize(("size", "tpr", "kept"), [(20, 0.95, 19), (19, 0.95, 19), (100, 0.55, 55), (100, 0.07, 7)])
def test_the_threshold_keeps_no_more_than_needed(size, tpr, kept):
    """In floating point, 0.55·100 is above 55 and 0.07·100 above 7."""
    assert threshold(np.arange(size), tpr) == size - kept


# --- against scikit-learn


def sklearn_values(inside, outside, tpr):
    labels, values = np.repeat([1, 0], [len(inside), len(outside)]), np.concatenate([inside, outside])
    false, true, _ = roc_curve(labels, values, drop_intermediate=False)
    out_false, out_true, _ = roc_curve(1 - labels, -values, drop_intermediate=False)
    expected = (roc_auc_score(labels, values), false[np.argmax(true >= tpr)], out_false[np.argmax(out_true >= tpr)])
    return expected, (false, true)


@pytest.mark.slow
@given(finite, finite, rates)
def test_scikit_learn_agrees_where_there_are_ties_and_huge_ranges(inside, outside, tpr):
    expected, curve = sklearn_values(inside, outside, tpr)
    found = (auc_ties_half(inside, outside), fpr(inside, outside, tpr), fpr_out_positive(inside, outside, tpr))
    assert found == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(roc(inside, outside), curve, rtol=0, atol=1e-12)


@pytest.mark.parametrize("digits", [0, 1, 12])
@pytest.mark.parametrize("scale", [1e-30, 1, 1e30])
def test_scikit_learn_agrees_on_many_scores(digits, scale):
    inside, outside = (scale * np.round(values, digits) for values in normal(1500, 700))
    expected, _ = sklearn_values(inside, outside, 0.95)
    found = (auc_ties_half(inside, outside), fpr(inside, outside), fpr_out_positive(inside, outside))
    assert found == pytest.approx(expected, abs=1e-12)


# --- properties


@given(scores, scores)
@pytest.mark.parametrize("metric", METRICS)
def test_only_the_order_counts(metric, inside, outside):
    _, order = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    for monotone in (order.astype(float), np.exp(order / 10), -(2.0 ** -order.astype(float))):
        assert metric(monotone[: len(inside)], monotone[len(inside) :]) == metric(inside, outside)


@given(scores, st.data())
def test_higher_outside_scores_are_worse(inside, data):
    lower = data.draw(scores)
    higher = np.maximum(lower, np.resize(data.draw(scores), len(lower)))
    for tpr in (0.95, 0.5):
        assert fpr(inside, lower, tpr) <= fpr(inside, higher, tpr)
        assert fpr_out_positive(inside, lower, tpr) <= fpr_out_positive(inside, higher, tpr)
    assert auc(inside, lower) >= auc(inside, higher)
    assert auc_ties_half(inside, lower) >= auc_ties_half(inside, higher)


@given(scores, st.data())
def test_what_is_proved_is_attacked_in_vain_and_what_withstands_an_attack_is_rejected_clean(inside, data):
    clean = data.draw(scores)
    attacked = np.maximum(clean, np.resize(data.draw(scores), len(clean)))
    certified = np.maximum(attacked, np.resize(data.draw(scores), len(clean)))
    lines = rejected(inside, {"certified": certified, "attacked": attacked, "clean": clean})
    assert np.all(np.diff(list(lines.values()), axis=0) >= 0)
    assert all(np.all(np.diff(line) <= 0) for line in lines.values()), "accepting more rejects less"
    assert {len(line) for line in lines.values()} == {len(metrics.ACCEPT)}


@given(scores, scores)
def test_the_steps_of_the_curve_enclose_the_auc(inside, outside):
    false, true = roc(inside, outside)
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert len(false) == 1 + len({*inside, *outside})
    assert np.all(np.diff(false) + np.diff(true) > 0)
    assert np.sum(np.diff(false) * true[:-1]) == pytest.approx(auc(inside, outside), abs=1e-12)
    assert np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2) == pytest.approx(
        auc_ties_half(inside, outside), abs=1e-12
    )
    assert false[np.argmax(true >= 0.95)] == fpr(inside, outside)


def test_a_bound_of_infinity_loses_always():
    inside, bounds = np.array([np.inf, 5.0]), np.full(3, np.inf)
    assert auc(inside, bounds) == 0
    assert fpr(inside, bounds) == fpr(inside[:1], bounds) == 1
    np.testing.assert_array_equal(roc(inside[1:], bounds), [[0, 1, 1], [0, 0, 1]])


@pytest.mark.parametrize(("outside", "share"), [(-1.0, 1), (0.0, 0), (1.0, 0), (-np.inf, 1), (np.inf, 0)])
def test_one_image_is_rejected_at_all_acceptances_or_at_none(outside, share):
    assert set(rejected(np.zeros(1), {"": np.full(1, outside)})[""]) == {share}


def test_the_acceptances_of_the_curve_hold_those_that_are_stated():
    assert set(PROVED.values()) <= set(metrics.ACCEPT)
    assert (metrics.ACCEPT[0], metrics.ACCEPT[-1]) == (0.5, 0.99)


# --- what comes in


def test_digits_that_float32_would_lose_still_rank():
    inside, outside = torch.tensor([1 + 2e-15], dtype=torch.float64), torch.tensor([1 + 1e-15], dtype=torch.float64)
    assert auc(inside, outside) == 1
    assert auc(inside.float(), outside.float()) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_of_any_kind_and_shape(dtype):
    inside = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    outside = torch.tensor([0.0, 1.0, 2.0], dtype=dtype)
    assert auc(inside, outside) == auc(np.arange(1.0, 5.0), np.arange(3.0, dtype=np.float32)) == 9 / 12
    assert fpr(inside, outside) == 2 / 3
    assert inside.flatten().tolist() == [1, 2, 3, 4]


NOTHING = [([], [1.0]), ([1.0], []), ([math.nan], [1.0]), ([1.0], [0.0, math.nan])]


@pytest.mark.parametrize(("inside", "outside"), NOTHING)
@pytest.mark.parametrize("metric", [*METRICS, roc, lambda *scores: bootstrap("auc", *scores)])
def test_no_score_or_no_number_is_an_error(metric, inside, outside):
    with pytest.raises(ProodError, match="at least one" if not (inside and outside) else "not a number"):
        metric(torch.tensor(inside), torch.tensor(outside))


@pytest.mark.parametrize("tpr", [0, -0.1, 1.01, 95, math.nan])
def test_a_rate_is_above_0_and_at_most_1(tpr):
    one = torch.ones(1)
    for call in (lambda: fpr(one, one, tpr), lambda: fpr_out_positive(one, one, tpr), lambda: threshold(one, tpr)):
        with pytest.raises(BadValue):
            call()


# --- the bootstrap

BOOTSTRAPPED = [("auc", auc), ("fpr", fpr), ("proved80", lambda x, z: 1 - fpr(x, z, 0.8))]


def values_of_resamples(metric, inside, outside, resamples, seed):
    draws = metrics._draws(len(inside), len(outside), resamples, seed)
    return [metric(inside[x], outside[z]) for xs, zs in draws for x, z in zip(xs, zs, strict=True)]


@given(scores, scores, st.integers(1, 50), st.integers(0, 2**32))
@pytest.mark.parametrize(("name", "metric"), BOOTSTRAPPED)
def test_the_bootstrap_is_the_loop_over_its_resamples(name, metric, inside, outside, resamples, seed):
    values = np.sort(values_of_resamples(metric, inside, outside, resamples, seed))
    assert len(values) == resamples
    low, high = (np.quantile(values, q, method=to) for q, to in ((0.125, "lower"), (0.875, "higher")))
    assert bootstrap(name, inside, outside, resamples=resamples, level=0.75, seed=seed) == (low, high)


@pytest.mark.parametrize(("name", "metric"), BOOTSTRAPPED)
def test_chunks_do_not_change_the_interval(name, metric, monkeypatch):
    inside, outside = normal(301, 200)
    whole = bootstrap(name, inside, outside, resamples=200)
    values = values_of_resamples(metric, inside, outside, 200, 0)
    for chunk in (1, 501 * 7, 501 * 200 + 500):
        monkeypatch.setattr(metrics, "CHUNK", chunk)
        assert values_of_resamples(metric, inside, outside, 200, 0) == values
        assert bootstrap(name, inside, outside, resamples=200) == whole


def test_both_sides_are_drawn_with_replacement_and_apart():
    ((first, second),) = metrics._draws(100, 100, 500, 0)
    for drawn in (first, second):
        assert drawn.shape == (500, 100)
        np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=100) / 500, 1, atol=0.25)
        distinct = np.mean([len(set(row)) for row in drawn])
        assert distinct == pytest.approx(100 * (1 - 0.99**100), abs=1)
    assert np.mean(first == second) < 0.02


def test_the_seed_alone_decides():
    inside, outside = normal(50, 40)
    np.random.seed(1)  # noqa: NPY002 – the global generator is what must not matter
    first = bootstrap("auc", inside, outside, seed=3)
    np.random.seed(2)  # noqa: NPY002
    assert bootstrap("auc", torch.tensor(inside), outside, seed=3) == first
    assert bootstrap("auc", inside, outside, seed=4) != first


@pytest.mark.slow
@given(scores, st.data())
def test_intervals_of_the_same_images_are_ordered(inside, data):
    clean = data.draw(scores)
    attacked = np.maximum(clean, np.resize(data.draw(scores), len(clean)))
    certified = np.maximum(attacked, np.resize(data.draw(scores), len(clean)))
    for name, sign in (("auc", 1), ("fpr", -1)):
        ends = [sign * np.array(bootstrap(name, inside, z, resamples=30)) for z in (certified, attacked, clean)]
        assert np.all(np.diff(ends, axis=0) >= 0)


def test_the_same_images_are_drawn_whatever_their_scores():
    """Two detectors that rank the images the other way round must still see the same images in each resample."""
    inside, outside = np.arange(30.0), np.zeros(1) + 14.5
    low, high = bootstrap("auc", inside, outside, resamples=99)
    turned = bootstrap("auc", 29 - inside, outside, resamples=99)  # each resample's AUC becomes 1 − AUC
    assert turned == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.slow
@given(scores, scores)
def test_a_higher_level_has_a_wider_interval(inside, outside):
    for name in ("auc", "fpr"):
        low, high = bootstrap(name, inside, outside, resamples=40, level=0.5)
        wider_low, wider_high = bootstrap(name, inside, outside, resamples=40, level=0.99)
        assert 0 <= wider_low <= low <= high <= wider_high <= 1


@pytest.mark.parametrize("outside", [-1.0, 0.0, 2.0, np.inf])
@pytest.mark.parametrize(("name", "metric"), BOOTSTRAPPED)
def test_single_scores_leave_nothing_to_draw(name, metric, outside):
    value = metric(np.zeros(1), np.full(1, outside))
    assert bootstrap(name, np.zeros(1), np.full(1, outside), resamples=10) == (value, value)


@pytest.mark.parametrize(("name", "truth"), [("auc", 0.76025), ("fpr", 0.74048)])
def test_most_intervals_hold_the_true_value(name, truth):
    """For N(1, 1) against N(0, 1) the AUC is Φ(1/√2), and the FPR at a TPR of 95 % is 1 − Φ(1 − 1.64485)."""
    intervals = [bootstrap(name, *normal(200, 200, seed), resamples=200, level=0.9) for seed in range(200)]
    assert 0.83 < np.mean([low <= truth <= high for low, high in intervals]) < 0.97


@pytest.mark.parametrize("options", [{"resamples": 0}, {"level": 0.0}, {"level": 1.0}, {"level": 95}])
def test_impossible_options_of_the_bootstrap(options):
    with pytest.raises(BadValue):
        bootstrap("auc", torch.ones(1), torch.ones(1), **options)


def test_an_unknown_metric_is_an_error_that_names_the_known():
    with pytest.raises(UnknownName):
        bootstrap("aupr", torch.ones(1), torch.ones(1))


def test_intervals_of_several_kinds_of_scores_are_those_of_each():
    inside, clean = normal(40, 30, 0)
    kinds = {"clean": clean, "certified": clean + 0.5}
    together = metrics.intervals(inside, kinds, resamples=50, level=0.8, seed=5)
    for metric in ("auc", "fpr"):
        for name, values in kinds.items():
            assert together[metric][name] == bootstrap(metric, inside, values, resamples=50, level=0.8, seed=5)
    with pytest.raises(BadValue):
        metrics.intervals(inside, {"clean": clean, "other": clean[1:]})
