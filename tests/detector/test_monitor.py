"""The monitor: its p-values are uniform while nothing changes, and its alarm is raised where something does."""

import copy
import json

import numpy as np
import pytest

from prood.detector import Detector, Monitor
from prood.detector.calibration import Calibration, calibrated
from prood.detector.monitor import FALSE_ALARMS
from prood.errors import BadValue, Damaged, Mismatch, ProodError


def calibration(scores) -> Calibration:
    return calibrated(scores, 1 / (1 + np.exp(-scores)), accept=0.9, level=0.9)


def stream(monitor, scores, size=50):
    """Fed in parts, as a service does."""
    for part in np.array_split(scores, -(-len(scores) // size)):
        monitor.observe(part, 1 / (1 + np.exp(-part)) >= monitor.calibration.threshold)
    return monitor.standing


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def monitor(random):
    return Monitor(calibration(random.normal(size=300)), seed=1)


def test_p_values_are_those_of_polyas_urn_by_hand():
    """With one stream after the other in one bag: (how many are below + U·how many tie, itself among them)/all."""
    found = Monitor(calibration(np.arange(30.0)), seed=3)
    scores = np.array([4.5, 4.5, 100.0, -1.0, 4.7])
    uniform = np.random.default_rng([3, 1, 0]).random((2, 5))[1]
    # Of these only the gap counts: 4.5 and 4.7 lie in one.
    below, ties, bag = np.array([5, 5, 32, 0, 6]), np.array([1, 2, 1, 1, 3]), np.arange(31, 36)
    np.testing.assert_allclose(found.p_values(scores), (below + uniform * ties) / bag)
    assert found.counts.sum() == 5


@pytest.mark.slow
@pytest.mark.parametrize("levels", [None, 5])
def test_they_are_independent_and_uniform_also_with_ties_and_few_calibration_images(random, levels):
    """Against a fixed set of 20 images they are not: the last line would fail for them."""
    found = []
    for seed in range(400):
        scores = random.normal(size=20 + 200) if levels is None else random.integers(levels, size=220).astype(float)
        monitor = Monitor(calibrated(scores[:20], scores[:20], accept=0.5, level=0.5), seed=seed)
        found.append(monitor.p_values(scores[20:]))
    p = np.array(found)
    grid = np.sort(p.ravel())
    assert np.abs(grid - (np.arange(p.size) + 0.5) / p.size).max() < 0.008  # Kolmogorov and Smirnov, 80,000 numbers
    # Means of 200 independent uniform numbers have the variance 1/(12·200): 400 of them tell within a fifth or so.
    assert 0.75 < p.mean(1).var() * 12 * 200 < 1.35


@pytest.mark.slow
def test_nothing_changes_and_nothing_is_said(random):
    alarms = 0
    for seed in range(60):
        scores = random.normal(size=100 + 600)
        alarms += stream(Monitor(calibration(scores[:100]), seed=seed, false_alarms=0.1), scores[100:], 200).alarm
    assert alarms <= 12  # of a binomial with 60 · 0.1, or fewer, more than 12 has a chance below 0.01


@pytest.mark.parametrize(
    ("shift", "within"),
    [
        (lambda random, n: np.where(random.random(n) < 0.1, -6, random.normal(size=n)), 500),
        (lambda random, n: random.normal(-1, size=n), 150),
        (lambda random, n: random.normal(1, size=n), 200),  # more sure than ever: a change as well
        (lambda random, n: random.normal(0, 0.5, size=n), 400),
    ],
)
def test_a_change_after_a_while_is_found(random, monitor, shift, within):
    assert not stream(monitor, random.normal(size=1000)).alarm
    told = stream(monitor, shift(random, 1000))
    assert 1000 < told.shift_at <= 1000 + within
    assert told.seen == 2000


def test_more_rejections_than_promised(random, monitor):
    told = stream(monitor, np.where(random.random(600) < 0.4, -9.0, random.normal(size=600)))
    assert told.promise_at is not None
    assert told.accept == 0.9
    assert told.accepted < 0.7 * told.seen
    assert told.promise >= told.needed or told.promise_at < told.seen


def test_an_alarm_stays_and_says_where_it_was_raised(random, monitor):
    first = stream(monitor, np.full(60, -8.0), 60)
    assert first.shift_at < 20
    again = stream(monitor, random.normal(size=2000))
    assert (again.alarm, again.shift_at, again.promise_at) == (True, first.shift_at, first.promise_at)


def test_its_state_survives_a_restart(random, monitor, tmp_path):
    scores = random.normal(-0.2, size=300)
    whole = copy.deepcopy(monitor.calibration)
    stream(monitor, scores[:200])
    monitor.save(tmp_path / "m.json")
    later = Monitor(whole, file=tmp_path / "m.json")
    assert later.standing == monitor.standing
    assert stream(later, scores[200:]) == stream(monitor, scores[200:])
    later.save()
    assert Monitor(whole, file=tmp_path / "m.json", false_alarms=FALSE_ALARMS).standing == later.standing
    assert [one.name for one in tmp_path.iterdir()] == ["m.json"]


def test_the_seed_is_drawn(random):
    one = calibration(random.normal(size=50))
    assert Monitor(one).seed != Monitor(one).seed


def test_a_state_of_another_calibration_or_rate(random, monitor, tmp_path):
    monitor.save(tmp_path / "m.json")
    with pytest.raises(Mismatch, match="another calibration"):
        Monitor(calibration(random.normal(size=300)), file=tmp_path / "m.json")
    with pytest.raises(Mismatch, match=r"false_alarms=0.01, not 0.05"):
        Monitor(monitor.calibration, file=tmp_path / "m.json", false_alarms=0.05)


def test_a_damaged_state_is_one_line(monitor, tmp_path, random):
    """Every change of a value: taken for damage, or a state that still adds up. Never a traceback."""
    stream(monitor, random.normal(size=20))
    good, file, refused = json.loads(monitor.written()), tmp_path / "m.json", 0
    assert good.pop("sha256")
    texts = ["", "[", "7", "{}", "[" * 5000, '{"format": 1}', "\xff"]
    for key in good:
        for wrong in (None, -1, "x", [], [1], 1e400, True, {}, good[key] if key == "counts" else 2**60):
            texts.append(json.dumps(good | {key: wrong}))
    for text in texts:
        file.write_text(text)
        try:
            Monitor(monitor.calibration, file=file)
        except ProodError as error:
            refused += 1
            assert "m.json" in str(error)  # noqa: PT017
    assert refused > 80
    file.write_text(json.dumps(good))
    assert Monitor(monitor.calibration, file=file).seen == 20


def test_a_digit_that_has_changed_is_not_taken_for_what_was_seen(monitor, tmp_path, random):
    """The state adds up with any capital: an alarm would come too late, or without a reason."""
    stream(monitor, random.normal(size=20))
    good, file = json.loads(monitor.written()), tmp_path / "m.json"
    later = [one and one + 1 for one in good["shift"]]
    for changed in ({"shift": later}, {"now": [0.5, 0.5]}, {"seed": good["seed"] + 1}):
        file.write_text(json.dumps(good | changed))
        with pytest.raises(Damaged, match="checksum"):
            Monitor(monitor.calibration, file=file)
    del good["sha256"]
    file.write_text(json.dumps(good | {"alarms": [21, None]}))
    with pytest.raises(Damaged, match="do not fit"):
        Monitor(monitor.calibration, file=file)


def test_in_python_it_is_the_detectors(detector, digits, tmp_path):
    with pytest.raises(BadValue, match="no calibration"):
        detector.monitor()
    detector.calibrate(digits[:200])
    monitor = detector.monitor(tmp_path / "m.json", false_alarms=0.05)
    assert not monitor.add(detector.predict(digits[200:500])).alarm
    assert monitor.add(detector.predict(0 * digits[:100])).alarm
    assert monitor.standing.to_json()["seen"] == 400
    monitor.save()
    assert detector.monitor(tmp_path / "m.json").alarm
    with pytest.raises(BadValue, match="no file"):
        detector.monitor().save()
    with pytest.raises(Mismatch, match="another threshold"):
        monitor.add(Detector(detector.model, threshold=0.5).predict(digits[:2]))
    with pytest.raises(BadValue, match="between 0 and 1"):
        detector.monitor(false_alarms=1.0)
    with pytest.raises(BadValue, match="not finite"):
        monitor.observe(np.array([np.nan]), np.array([True]))
