"""What a user meets in a notebook: completion, short answers, names and text where objects are meant."""

import pytest
import torch

import prood
from prood import data
from prood.detector import Detector
from prood.errors import BadValue, NotFound
from prood.evaluation import EvaluateOptions, evaluate
from prood.models import ProoD, discriminator, small
from prood.training import Run

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def detector() -> Detector:
    torch.manual_seed(0)
    classifier = small(8, width=4)
    with torch.no_grad():
        classifier[-1].weight.mul_(60)  # an untrained one is unsure of everything
    return Detector(ProoD(classifier, discriminator("digits", image=SHAPE), 12), threshold=0.4)


def test_completion_offers_the_public_names() -> None:
    assert dir(prood) == sorted(prood.__all__)


def test_everything_is_shown_in_a_few_lines(detector: Detector) -> None:
    images = torch.rand(7, *SHAPE)
    recipe = prood.load_recipe("quickstart")
    results = evaluate(detector, inside="digits:test", outside="uniform", eps="0.1", limit=8)
    shown = {
        "size='digits'": detector.discriminator,
        "shift=12": detector.model,
        "threshold=0.4": repr(detector),
        "7 images": detector.predict(images),
        "provably rejected": detector.certify(images, "8/255"),
        "digits against photographs": recipe,
        "GAUC": results,
        "eps=0.1": next(iter(results)),
        "1,000 images": data.load("digits:test"),
        "confidence 0.95": detector.calibrate(data.load("digits:validation")),
    }
    for words, one in shown.items():
        text = one if isinstance(one, str) else repr(one)  # of a detector that is calibrated below, as it was
        assert words in text
        assert len(text) < 300
        assert text.count("\n") <= 1
    assert "1 image," in repr(detector.predict(images[:1]))
    detector.threshold = 0.4


def test_a_detector_is_evaluated_by_the_names_of_sets_as_its_model_is_by_sets(detector: Detector) -> None:
    inside, outside = data.load("digits:test"), data.open_set("uniform", like=data.load("digits:test"), count=8, seed=0)
    named = evaluate(detector, inside="digits", outside=["uniform"], eps=["4/255"], limit=8, attacks="none")
    given = evaluate(detector.model, inside=inside, outside={"uniform": outside.load()}, eps=4 / 255, limit=8)
    (one,), (other,) = named, given
    assert (one.auc, one.gauc, one.accuracy, one.eps) == (other.auc, other.gauc, other.accuracy, other.eps)
    assert one.fingerprints == other.fingerprints
    assert one.attacks is None
    mixed = evaluate(detector, inside=inside, outside={"noise": "uniform"}, eps=4 / 255, limit=8)
    assert next(iter(mixed)).outside == "noise"
    assert next(iter(mixed)).auc == next(iter(given)).auc


def test_no_attacks_may_be_said_in_words() -> None:
    assert EvaluateOptions(attacks="none") == EvaluateOptions()


@pytest.mark.parametrize("eps", [8, "8", [0.1, 300], "0.1,2"])
def test_a_radius_beyond_all_pixels_is_refused(detector: Detector, eps: object) -> None:
    with pytest.raises(BadValue, match="above 1"):
        evaluate(detector, inside="digits:test", outside="uniform", eps=eps)  # type: ignore[arg-type]
    if not isinstance(eps, list) and "," not in str(eps):
        with pytest.raises(BadValue, match="8/255"):
            detector.certify(torch.rand(1, *SHAPE), eps)  # type: ignore[arg-type]


def test_other_norms_have_longer_radii(detector: Detector) -> None:
    assert detector.certify(torch.rand(1, *SHAPE), 2.0, norm="l2").eps == 2


def test_what_cannot_be_evaluated_is_named(detector: Detector) -> None:
    with pytest.raises(BadValue, match="Detector"):
        evaluate("runs/prood", inside="digits:test", outside="uniform", eps=0.1)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="bytes divided by 255"):
        evaluate(detector, inside=torch.rand(1, *SHAPE), outside="uniform", eps=0.1)  # type: ignore[arg-type]


def test_a_run_that_is_not_finished_says_how_to_go_on(tmp_path) -> None:
    Run(tmp_path).open({"method": "plain"}, resume=False)
    for open_it in (prood.load, Detector.load):
        with pytest.raises(NotFound, match="--resume"):
            open_it(tmp_path)
