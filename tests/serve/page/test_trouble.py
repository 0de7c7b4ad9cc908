"""What goes wrong: files, limits, names, tokens, and a service that goes away."""

import re

import pytest

from prood.detector import Detector
from prood.serve import Options

NASTY = '<img src="x" onerror="document.title=1">'


@pytest.fixture
def narrow(serve, detector):
    """A service with small limits, whose model has no threshold, and odd names."""
    return serve(Detector(detector.model, classes=[NASTY] * 8), Options(body_bytes=20_000, pixels=50_000))


def test_a_bad_file_gets_one_clear_line_and_changes_nothing(tab, narrow, files):
    tab.open(narrow.url)
    tab.allowed = ("the server responded with a status of 4",)  # the browser reports what the page has handled
    before = tab.text("#fitted").split(",")[0]
    wrong = {"broken": "cannot read|can be read", "large": "too large: the service takes up to 20 kB", "wide": "pixels"}
    for name, words in wrong.items():
        tab.give("#file", files[name])
        said = tab.until("document.querySelector('#image-problem').textContent")
        assert re.search(words, said), said
        assert "\n" not in said
        assert tab.value("document.querySelector('#image-problem').role") == "alert"
        assert tab.text("#fitted").startswith(before), "the image before is still there, and all that was said of it"
        tab.until("document.querySelector('#main').ariaBusy === 'false'")
        assert [tab.shown(f"#{part}-body") for part in ("answer", "proof", "far")] == [True] * 3
        assert not tab.value("document.querySelector('.stale')")
        tab.use(files["noise"])
        assert not tab.shown("#image-problem")
        before = "noise.png"


def test_without_a_threshold_nothing_is_accepted_or_rejected_and_names_are_text(tab, narrow, files):
    tab.open(narrow.url)
    tab.use(files["noise"])
    assert tab.text("#verdict") == "Looks like nothing it knows"
    tab.use(files["ramp"])
    assert tab.text("#verdict") == f"Looks most like {NASTY}"
    assert tab.text("#bars .name") == NASTY
    assert not tab.value("document.querySelector('#proof-chart .line.threshold, main img[src=x]')")
    assert "reject" not in tab.text("#claim-note")


def test_a_service_that_went_away_is_said_and_asked_again(tab, serve, detector, files):
    first = serve(detector)
    tab.open(first.url)
    first.stop()
    tab.allowed = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
    tab.give("#file", files["ramp"])
    assert "does not answer" in tab.until("document.querySelector('#image-problem').textContent")
    serve(detector, port=first.port)
    tab.click("#image-problem button")
    tab.wait_for("ramp.png")
    assert tab.text("#verdict").startswith("Accepted")


def test_an_attack_that_fails_leaves_the_rest_and_can_be_tried_again(tab, serve, detector, files):
    first = serve(detector)
    tab.open(first.url)
    tab.use(files["ramp"])
    first.stop()
    tab.allowed = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
    tab.click("#attack")
    assert "does not answer" in tab.until("document.querySelector('#attack-problem').textContent")
    assert tab.shown("#proof-body")
    serve(detector, port=first.port)
    tab.click("#attack-problem button")
    tab.until("document.querySelector('#attack-status').textContent.includes('proof allows')")
    assert not tab.shown("#attack-problem")


def test_a_token_is_asked_for_and_kept_in_the_tab(tab, serve, detector):
    served = serve(detector, Options(token="let me in"))
    tab.allowed = ("the server responded with a status of 401",)
    tab.go(served.url)
    tab.until("document.activeElement.id === 'token'")
    assert not tab.shown("main")
    tab.call("Input.insertText", text="wrong")
    tab.press("Enter")
    assert tab.until("document.querySelector('#model-problem').textContent") == "This token is not accepted."
    tab.call("Input.insertText", text="let me in")
    tab.press("Enter")
    tab.until("!document.querySelector('#far-body').hidden")
    assert not tab.shown("#token-form")
    assert not any("let" in url for url in tab.requests)
    assert tab.value("JSON.stringify(localStorage)") == "{}"
    tab.open(served.url)  # not asked again
