"""Answers about images by name, one after the other."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from prood.detector import Detector
from prood.detector.answering import answered, threshold_words
from prood.detector.named import inputs


@pytest.fixture
def pictures(digits, tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for file, image in zip(files, digits, strict=False):
        Image.fromarray(image[0].numpy()).save(file)
    return files


def test_each_image_gets_the_detectors_answer(model, digits, pictures):
    detector = Detector(model, threshold=0.3)
    named = inputs([*map(str, pictures), "digits:test"], detector.shape, 3)
    found = list(answered(detector, named, batch=2))
    assert [one.image for one in found] == [*map(str, pictures), *(f"digits:test[{row}]" for row in range(3))]
    expected = detector.predict(torch.cat([digits[:5], digits[:3]]))
    assert [one.answer.label for one in found] == expected.label.tolist()
    assert [one.answer.confidence for one in found] == pytest.approx(expected.confidence.tolist(), rel=1e-6)
    assert [one.answer.accepted for one in found] == expected.accepted.tolist()
    assert set(found[0].to_json()) == {
        *("image", "label", "name", "confidence", "p_in", "accepted", "reason", "error"),
    }


def test_a_damaged_image_is_a_line_and_the_others_go_on(model, pictures):
    pictures[1].write_bytes(b"no picture")
    pictures[4].write_bytes(pictures[3].read_bytes()[:90])
    detector = Detector(model, threshold=0.3)
    found = list(answered(detector, inputs(list(map(str, pictures)), detector.shape, None), batch=4))
    assert [one.answer is None for one in found] == [False, True, False, False, True]
    assert all(str(pictures[place]) in found[place].error for place in (1, 4))
    assert found[1].to_json()["confidence"] is None
    (alone,) = answered(detector, inputs([str(pictures[2])], detector.shape, None))
    assert found[2].answer.confidence == pytest.approx(alone.answer.confidence, rel=1e-6)
    assert found[2].answer.label == alone.answer.label


def test_the_threshold_in_words():
    assert "0.566: 95%" in threshold_words(0.566, 0.95)
    assert "%" not in threshold_words(0.566, None)
    assert "prood calibrate" in threshold_words(None, None)
