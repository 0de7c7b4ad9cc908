"""How an image gets to the page, and what is answered."""

import base64
import re

import numpy as np
import pytest
import torch

from prood.detector import Detector

BARS = """[...document.querySelectorAll('#bars li')].map((bar) => [bar.querySelector('.name').textContent,
  Number(bar.querySelector('b').textContent), bar.querySelector('.fill').getBoundingClientRect().width
  / bar.querySelector('.track').getBoundingClientRect().width])"""
PASTE = """(() => { const held = new DataTransfer();
  const bytes = Uint8Array.from(atob('%s'), (mark) => mark.charCodeAt(0));
  if (bytes.length) held.items.add(new File([bytes], 'pasted.png', {type: 'image/png'}));
  document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: held, bubbles: true})); })()"""


@pytest.mark.parametrize("name", ["noise", "ramp"])
def test_a_file_is_answered_as_the_detector_answers(page, files, detector, name):
    page.use(files[name])
    found = detector.predict(files[name])
    answer, shares = found[0], found.probabilities[0]
    assert page.text("#verdict") == ("Accepted as " + answer.name if answer.accepted else "Rejected")
    assert answer.accepted == (name == "ramp"), "the two images show both answers"
    numbers = page.value("[...document.querySelectorAll('#numbers dd')].map((number) => number.textContent)")
    assert float(numbers[0]) == pytest.approx(answer.confidence, abs=5.1e-4)
    assert float(numbers[1].strip("< ")) == pytest.approx(answer.p_in, abs=1e-3)
    assert float(numbers[-1]) == 1 / 8
    bars = page.value(BARS)
    order = np.argsort(-shares, kind="stable")
    assert [bar[0] for bar in bars] == [str(label) for label in order[:5]] + ["3 more"]
    expected = [*shares[order[:5]], shares[order[5:]].sum()]
    assert [bar[1] for bar in bars] == pytest.approx(expected, abs=5.1e-4)
    assert [bar[2] for bar in bars] == pytest.approx(expected, abs=0.03), "a bar is as long as what it says"


def test_it_opens_on_an_example_that_is_proven(tab, service, examples, detector):
    tab.open(service.url)
    others = [example for example in examples if example["kind"] == "out"]
    proofs = detector.certify([example["picture"] for example in others], 0.05)
    first = next(example for example, rejected in zip(others, proofs.rejected, strict=True) if rejected)
    assert first != others[0], "there is one before it that is not proven"
    assert tab.text("#fitted").startswith(first["name"])
    assert tab.text("#eps-value") == "0.05", "the model's own radius"
    assert tab.text("#factor-value") == "1"


def test_an_example_is_picked_and_shown_as_it_is(page, examples):
    assert {example["kind"] for example in examples} == {"in", "out"}
    number, example = next((at, example) for at, example in enumerate(examples) if example["kind"] == "in")
    page.click(f"#examples .example:nth-of-type({number + 1})")
    page.wait_for(example["name"])
    pressed = page.value("[...document.querySelectorAll('.example')].map((button) => button.ariaPressed)")
    assert pressed == [str(place == number).lower() for place in range(len(examples))]
    assert (page.pixels("#preview") == np.asarray(example["picture"])).all()


def test_a_calibration_says_what_its_threshold_is_worth(tab, serve, detector, files):
    calibrated = Detector(detector.model)
    calibrated.calibrate(torch.rand(100, 1, 28, 28, generator=torch.Generator().manual_seed(0)), accept=0.9, level=0.8)
    tab.open(serve(calibrated).url)
    tab.use(files["noise"])
    assert tab.text("#why").endswith("At least 90% of the images of its own kind are accepted, with 80% certainty.")
    told = "[...document.querySelectorAll('#numbers dt')].map((x) => [x.textContent, x.nextSibling.textContent])"
    p_value = dict(tab.value(told))["p-value"]
    assert float(p_value) == pytest.approx(calibrated.predict(files["noise"])[0].p_value, abs=5.1e-4)


def test_the_last_of_many_images_is_answered(page, files, detector):
    """The others are asked for as well, and their answers must not come back over the last one's."""
    page.value("document.querySelectorAll('.example').forEach((button) => button.click())")
    page.use(files["ramp"])
    assert page.text("#verdict") == "Accepted as " + detector.predict(files["ramp"])[0].name
    assert page.value("document.querySelectorAll('.example[aria-pressed=true]').length") == 0


def test_a_picture_can_be_dropped_anywhere_or_pasted(page, files):
    page.value("addEventListener('drop', (event) => { window.kept = event.defaultPrevented; }, {once: true})")
    page.drop(900, 300, files["ramp"])
    page.wait_for("ramp.png")
    assert page.value("kept"), "or the browser would leave the page for the picture"
    assert page.text("#verdict").startswith("Accepted")
    page.value(PASTE % base64.b64encode(files["noise"].read_bytes()).decode())
    page.wait_for("pasted.png")
    assert page.text("#verdict") == "Rejected"
    page.value(PASTE % "")
    assert re.match("There is no picture", page.text("#image-problem"))
    assert page.text("#verdict") == "Rejected", "what was there is still there"
