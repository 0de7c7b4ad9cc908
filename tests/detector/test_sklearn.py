"""The detector as an outlier detector of scikit-learn."""

import numpy as np
import pytest
from sklearn.base import clone, is_outlier_detector
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler
from sklearn.utils import get_tags

from prood.detector.sklearn import OutlierDetector


@pytest.fixture
def arrays(digits) -> np.ndarray:
    return digits.numpy()


def test_it_is_an_outlier_detector(detector, arrays):
    estimator = OutlierDetector(detector, accept=0.9, level=0.8)
    assert is_outlier_detector(estimator)
    assert estimator.fit(arrays[:200]) is estimator
    assert detector.threshold is None  # the one given stays as it was
    found = estimator.detector_.predict(arrays[200:400])
    signs = estimator.predict(arrays[200:400])
    assert set(signs) == {-1, 1}
    assert ((signs == 1) == found.accepted).all()
    decision = estimator.decision_function(arrays[200:400])
    assert ((decision >= 0) == found.accepted).all()
    np.testing.assert_allclose(decision, estimator.score_samples(arrays[200:400]) - estimator.offset_)
    order = np.argsort(found.score)
    assert (np.diff(decision[order]) >= 0).all()
    assert (estimator.score_samples(arrays[200:400]) == found.score).all()
    assert estimator.detector_.calibration.accept == 0.9
    assert estimator.detector_.calibration.confidence == 0.8


def test_the_image_at_the_threshold_is_accepted(detector, arrays):
    estimator = OutlierDetector(detector).fit(arrays[:200])
    decision = estimator.decision_function(arrays[:200])
    assert (decision == 0).sum() == 1
    assert (estimator.predict(arrays[:200]) == np.where(decision >= 0, 1, -1)).all()
    assert (estimator.fit_predict(arrays[:200]) == estimator.predict(arrays[:200])).all()


def test_where_confidences_tie_the_sign_is_that_of_the_verdict(detector, arrays):
    # With a threshold that rounding has put among ties, an accepted image may have a score below the offset.
    estimator = OutlierDetector(detector).fit(arrays[:200])
    estimator.offset_ += 10.0
    accepted = estimator.predict(arrays) == 1
    assert ((estimator.decision_function(arrays) >= 0) == accepted).all()
    estimator.offset_ -= 1000.0
    assert ((estimator.decision_function(arrays) >= 0) == accepted).all()


def test_it_can_be_cloned_and_set(detector, arrays):
    estimator = OutlierDetector(detector, accept=0.9).fit(arrays[:100])
    other = clone(estimator)
    assert other.get_params()["accept"] == 0.9
    with pytest.raises(NotFittedError):
        other.predict(arrays[:2])
    other.set_params(accept=0.5).fit(arrays[:100])
    assert other.offset_ > estimator.offset_
    before = clone(OutlierDetector(detector, tpr=0.5, confidence=0.95)).fit(arrays[:100])  # the names before
    assert before.offset_ == other.offset_


def test_it_works_in_a_pipeline(detector, arrays):
    estimator = OutlierDetector(detector).fit(arrays[:200])
    scaled = make_pipeline(FunctionTransformer(lambda x: (x / 255).astype(np.float32)), OutlierDetector(detector))
    scaled.fit(arrays[:200])
    assert (scaled.predict(arrays[200:300]) == estimator.predict(arrays[200:300])).all()
    assert (scaled.decision_function(arrays[200:300]) == estimator.decision_function(arrays[200:300])).all()
    assert (scaled.score_samples(arrays[200:300]) == estimator.score_samples(arrays[200:300])).all()


def test_a_table_of_pixels_is_a_set_of_images(detector, arrays):
    table = arrays.reshape(len(arrays), -1)
    estimator = OutlierDetector(detector).fit(table[:200])
    assert estimator.n_features_in_ == 784
    assert (estimator.predict(table) == estimator.predict(arrays)).all()
    bright = make_pipeline(MinMaxScaler(clip=True), OutlierDetector(detector)).fit(table[:200])
    assert bright.predict(table).shape == (1000,)


def test_its_scores_rank(detector, arrays):
    estimator = OutlierDetector(detector).fit(arrays[:200])
    truth = np.repeat([1, 0], 100)
    scores = np.concatenate([estimator.score_samples(arrays[:100]), estimator.score_samples(255 - arrays[:100])])
    decisions = np.concatenate(
        [estimator.decision_function(arrays[:100]), estimator.decision_function(255 - arrays[:100])]
    )
    assert roc_auc_score(truth, decisions) == roc_auc_score(truth, scores)


def test_its_tags_say_that_it_takes_images(detector):
    tags = get_tags(OutlierDetector(detector))
    assert tags.estimator_type == "outlier_detector"
    found = tags.input_tags
    assert (found.two_d_array, found.three_d_array, found.positive_only, found.sparse) == (False, True, True, False)


@pytest.mark.parametrize("kind", ["bytes", "floats", "table", "last"])
def test_images_that_cannot_be_written_to_pass_without_a_warning(detector, arrays, kind, recwarn):
    some = arrays[:200] if kind in ("bytes", "last") else (arrays[:200] / 255).astype(np.float32)
    some = some.reshape(200, -1) if kind == "table" else np.moveaxis(some, 1, -1) if kind == "last" else some
    expected = OutlierDetector(detector).fit(some).score_samples(some)
    some.flags.writeable = False
    estimator = OutlierDetector(detector).fit(some)
    assert (estimator.score_samples(some) == expected).all()
    if kind == "bytes":
        assert estimator.detector_.predict(some[0]).score == pytest.approx(expected[:1], abs=1e-4)
    assert not [one for one in recwarn if "writable" in str(one.message)]
