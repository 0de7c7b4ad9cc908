"""The detector as one of pytorch-ood's: against its protocol, and against the real class where it is installed."""

import importlib.util
import inspect
import sys
from types import ModuleType

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from prood.detector import Detector
from prood.detector.pytorch_ood import OutlierScore
from prood.errors import Unsupported


@pytest.fixture
def api(monkeypatch) -> ModuleType:
    """pytorch-ood's own file with its protocol, without the rest of the package, which needs torchvision."""
    package = importlib.util.find_spec("pytorch_ood")
    if package is None or package.submodule_search_locations is None:
        pytest.skip("pytorch-ood is not installed: pip install --no-deps pytorch-ood")
    file = f"{package.submodule_search_locations[0]}/api.py"
    spec = importlib.util.spec_from_file_location("pytorch_ood_api", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "pytorch_ood_api", module)  # dataclasses look there for their annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def floats(digits) -> torch.Tensor:
    return digits[:300].float() / 255


def test_higher_is_more_out_of_distribution(model, floats):
    score = OutlierScore(Detector(model))
    found = score.predict(floats)
    assert found.shape == (300,)
    assert found.device == floats.device
    assert (found.argsort() == model.confidence(floats).argsort(descending=True)).all()
    assert torch.equal(score(floats), found)


def test_fit_calibrates_on_what_is_labelled_as_inside(model, floats):
    labels = torch.arange(300) % 8
    labels[::3] = -1
    score = OutlierScore(Detector(model), accept=0.9, level=0.8)
    assert OutlierScore(Detector(model), tpr=0.9, confidence=0.8).asked == score.asked  # the names before
    assert score.fit(DataLoader(TensorDataset(floats, labels), batch_size=64)) is score
    by_hand = Detector(model)
    expected = by_hand.calibrate(floats[labels >= 0], tpr=0.9, confidence=0.8)
    assert score.detector.calibration is not None
    assert len(score.detector.calibration) == 200
    assert score.detector.threshold == pytest.approx(expected.threshold, rel=1e-6)


def test_it_knows_no_features(model):
    score = OutlierScore(Detector(model))
    with pytest.raises(Unsupported):
        score.predict_features(torch.rand(2, 5))
    with pytest.raises(Unsupported):
        score.fit_features(torch.rand(2, 5), torch.zeros(2))


def test_it_moves_and_has_no_hyperparameters(model, floats):
    score = OutlierScore(Detector(model))
    assert score.to("cpu") is score
    assert score.device == torch.device("cpu")
    assert score.get_hyperparameters() == {}
    assert score.set_hyperparameters() is score
    with pytest.raises(ValueError, match="no hyperparameters to set, but got temperature"):
        score.set_hyperparameters(temperature=1)


def test_it_has_everything_that_their_detectors_have(api, model):
    score = OutlierScore(Detector(model))
    for name, theirs in vars(api.Detector).items():
        if name.startswith("_") and name != "__call__":
            continue
        assert hasattr(score, name), name
        if inspect.isfunction(theirs):
            ours = inspect.signature(getattr(OutlierScore, name))
            if name in ("fit", "predict", "to"):
                assert list(ours.parameters) == list(inspect.signature(theirs).parameters), name
    assert api.Detector.requires_fit is score.requires_fit is False
    api.Detector.register(OutlierScore)
    assert isinstance(score, api.Detector)


def test_their_detectors_and_ours_agree_on_the_sign(api, model, floats):
    class Confidence(api.Detector):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return -model.confidence(x)  # what their maximum softmax probability does

    order = Confidence().predict(floats).argsort()
    assert torch.equal(OutlierScore(Detector(model))(floats).argsort(), order)


def test_the_whole_package(model):
    try:
        import pytorch_ood
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"pytorch-ood cannot be imported here: {error}")
    assert isinstance(OutlierScore(Detector(model)), pytorch_ood.api.Detector)
