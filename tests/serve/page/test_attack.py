"""The attack under its bound, and the way out to where there is no data."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from prood.detector import Detector
from prood.models import ProoD

K = 8
COUNT = """(() => { window.lengths = new Set();
  const count = () => { const line = document.querySelector('#attack-chart .line.attacked');
    if (line) lengths.add(line.getAttribute('d').split('L').length); };
  const watched = document.querySelector('#attack-chart');
  new MutationObserver(count).observe(watched, {childList: true, subtree: true}); })()"""
DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def below(page):
    """Whether all that is drawn of the search lies under the line of the bound."""
    top = page.level("#attack-chart .line.bound")
    return all(y >= top for _, y in page.points("#attack-chart .line.attacked"))


def test_the_attack_approaches_the_bound_and_stays_below(page, service, files, bounds):
    page.use(files["noise"])
    page.slide("eps", 8)
    page.attack()
    # Once more, beside the page: it makes the same draws each time.
    result = json.loads(service.get("v1/attack?eps=0.03138", files["noise"].read_bytes()))
    (bound,) = bounds(files["noise"], 0.03138)
    assert result["clean"] < result["found"] <= result["upper_bound"] == bound
    status = page.text("#attack-status")
    got, allowed = (float(found) for found in re.findall(r"(?:got to|allows) ([\d.]+\d)", status))
    assert got == pytest.approx(result["found"], abs=5.1e-4)
    assert got <= bound <= allowed <= bound + 1e-3
    assert ("still rejected" in status) == (not result["accepted"])

    value = page.scale("attack-chart")
    trace = [value(y) for _, y in page.points("#attack-chart .line.attacked")]
    assert trace == pytest.approx(result["confidence"], abs=0.003)
    assert value(page.level("#attack-chart .line.bound")) == pytest.approx(bound, abs=0.003)
    assert below(page)
    dot = page.value("Number(document.querySelector('#proof-chart .dot.attacked').getAttribute('cy'))")
    assert page.scale("proof-chart")(dot) == pytest.approx(result["found"], abs=0.005), "and a dot under the curve"

    before, after, change = page.pixels("#original"), page.pixels("#attacked"), page.pixels("#change")
    assert (before == np.asarray(Image.open(files["noise"]))).all()
    assert 0 < abs(after - before).max() <= 255 * 0.03138 + 1
    assert (np.sign(change - 127.5) * (after != before) == np.sign(after - before)).all()


def test_close_to_one_kth_it_is_drawn_in_powers_of_ten(page, examples, detector):
    page.click("#examples .example:nth-of-type(1)")
    page.wait_for(examples[0]["name"])
    page.slide("eps", 1)
    page.attack()
    excess = detector.certify(examples[0]["picture"], 0.004)[0].upper_bound - 1 / K
    assert excess < 0.02
    assert page.text("#attack-chart .name:last-of-type") == "confidence − 1/K"
    lead, exponent = re.search(r"allows 1/K \+ ([\d.]+)·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", page.text("#attack-status")).groups()
    allowed = float(lead) * 10.0 ** int(exponent.translate(DIGITS))
    assert excess <= allowed * (1 + 1e-9) <= excess * 1.11, "rounded up, by a digit at most"
    assert below(page)


def test_where_the_bound_is_one_kth_itself_there_is_nothing_to_climb(tab, serve, detector, files):
    model = ProoD(detector.model.classifier, detector.model.discriminator, -100.0)
    tab.open(serve(Detector(model, threshold=0.5)).url)
    tab.use(files["noise"])
    tab.attack()
    assert re.search(r"got to 1/K after .* allows 1/K \+ 1·10⁻¹⁵", tab.text("#attack-status"))
    assert below(tab)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_climb_is_animated_unless_motion_is_unwanted(page, files, motion):
    page.prefer(color_scheme="light", reduced_motion=motion)
    page.use(files["noise"])
    page.value(COUNT)
    page.attack()
    seen = page.value("[...lengths]")
    assert len(seen) == 1 if motion == "reduce" else len(seen) > 3


def test_another_image_takes_the_attack_with_it(page, files):
    page.use(files["noise"])
    page.attack()
    assert page.shown("#attack-body")
    page.use(files["ramp"])
    assert not page.shown("#attack-body")
    assert page.text("#attack-status") == ""
    assert not page.value("document.querySelector('#proof-chart .dot.attacked')")
    page.slide("eps", 0)
    page.click("#attack")
    assert "nothing may be changed" in page.text("#attack-status")


def test_far_away_the_confidence_falls_to_one_kth(page, files, detector):
    page.use(files["ramp"])
    pixels = np.asarray(Image.open(files["ramp"]), np.float32)
    for place in (0, 3, 8, 32):
        page.slide("factor", place)
        factor = 1024 ** (place / 32)
        assert float(page.text("#factor-value")) == pytest.approx(factor, rel=0.006)
        stretched = 0.5 + factor * (torch.from_numpy(pixels / 255)[None, None] - 0.5)
        with torch.no_grad():
            expected = (detector.model(stretched).exp() / K).max().item()
        assert page.numbers("#far-claim")[-1] == pytest.approx(expected, abs=2e-3)
        assert page.pixels("#far-picture") == pytest.approx(np.clip(127.5 + factor * (pixels - 127.5), 0, 255), abs=2)
    assert page.numbers("#far-claim") == [1024, 1 / K]
    assert page.text("#far-note").endswith("that is 1/K: it does not know, and says so.")
