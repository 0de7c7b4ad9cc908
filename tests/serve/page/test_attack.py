"""The attack under its bound, and the way out to where there is no data."""

import json
import re
import time

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
DOT = "Number(document.querySelector('#proof-chart .dot.attacked').getAttribute('cy'))"


def asked(service, files, name, **options):
    """The same attack beside the page: it makes the same draws each time."""
    query = "&".join(f"{key}={value}" for key, value in options.items())
    return json.loads(service.get(f"v1/attack?{query}", files[name].read_bytes()))


def test_both_attacks_are_shown_as_they_went_and_the_guarded_one_stays_below(page, service, files, bounds):
    page.use(files["noise"])
    page.slide("eps", 8)
    page.attack()
    found = {on: asked(service, files, "noise", eps=0.03138, on=on) for on in ("classifier", "guarded")}
    (bound,) = bounds(files["noise"], 0.03138)
    guarded, alone = found["guarded"], found["classifier"]
    assert guarded["clean"] < guarded["found"] <= guarded["upper_bound"] == bound < 0.5 < 0.9 < alone["found"]
    told = [float(number) for number in re.findall(r"(?:to|one) (\d\.\d+)", page.text("#attack-status"))]
    assert told[:2] == pytest.approx([alone["found"], guarded["found"]], abs=6e-4)
    assert bound <= told[2] <= bound + 1e-3, "rounded up"

    value = page.scale("attack-chart")
    for kind, one in (("fooled", alone), ("attacked", guarded)):
        trace = [value(y) for _, y in page.points(f"#attack-chart .line.{kind}")]
        assert trace == pytest.approx(one["confidence"], abs=0.005)
    top = page.level("#attack-chart .line.bound")
    assert value(top) == pytest.approx(bound, abs=0.005)
    assert all(y >= top for _, y in page.points("#attack-chart .line.attacked"))
    assert page.scale("proof-chart")(page.value(DOT)) == pytest.approx(guarded["found"], abs=0.005), "a dot, too"

    outcome = {on: page.text(f"#{on}-outcome strong") for on in found}
    assert outcome["guarded"] == ("Holds: rejected" if not guarded["accepted"] else f"Accepted as {guarded['name']}")
    assert alone["name"] in outcome["classifier"]
    for on in found:
        before, after, change = (page.pixels(f"#{on}-{what}") for what in ("original", "attacked", "change"))
        assert (before == np.asarray(Image.open(files["noise"]))).all()
        assert 0 < abs(after - before).max() <= 255 * 0.03138 + 1
        assert (np.sign(change - 127.5) * (after != before) == np.sign(after - before)).all()


def test_almost_nothing_is_said_in_words_and_not_in_powers_of_ten(tab, serve, detector, files):
    model = ProoD(detector.model.classifier, detector.model.discriminator, -100.0)
    tab.open(serve(Detector(model, threshold=0.5)).url)
    tab.use(files["noise"])
    tab.attack()
    assert tab.text("#guarded-outcome").startswith("Holds: rejected Practically no confidence (0.125)")
    assert "practically no confidence: a guess among 8 classes has 0.125" in tab.text("#claim-note")
    assert not re.search("10[⁻⁰-⁹]|1/K", tab.value("document.querySelector('main').innerText"))


def test_the_attack_is_seen_while_it_climbs(page, files):
    page.use(files["noise"])
    page.value(COUNT)
    page.attack()
    assert page.value("lengths.size") > 3


def test_an_attack_can_be_stopped_and_the_service_hears_of_it(tab, serve, detector, files):
    served = serve(detector)
    tab.open(served.url)
    tab.use(files["noise"])
    tab.value("document.querySelector('#attack').focus()")
    with served.service.turns:  # nobody else gets at the model
        tab.press("Enter")
        tab.until("document.querySelector('#attack-status').textContent.includes('Searching')")
        waits(served, 1)
        assert tab.value("document.activeElement.id") == "attack-stop", "the focus goes where the button was"
        tab.press("Enter")
        waits(served, 0)
    assert tab.text("#attack-status") == "Stopped."
    assert tab.value("document.activeElement.id") == "attack"
    tab.attack()


def waits(served, count):
    end = time.monotonic() + 20
    while len(served.service.attacks.running) != count:
        assert time.monotonic() < end
        time.sleep(0.01)


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
    assert page.text("#far-note").endswith("no more than a guess: it does not know, and says so.")
