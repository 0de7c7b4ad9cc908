"""What one takes along: a link, a command, a certificate."""

import json
import shutil
import subprocess
import time

import pytest

from prood import certification
from prood.certification.certify import certifier
from prood.certification.verify import Verifier
from prood.models import save
from prood.serve import About

EPS = 0.02


@pytest.fixture(scope="module")
def made(detector, tmp_path_factory):
    """The model as a file, and what a service knows that was started with it."""
    file = tmp_path_factory.mktemp("model") / "small.safetensors"
    save(detector.model, file)
    return file, About("small", EPS, "digits:train", certificate=certifier(detector, file, "small"))


@pytest.fixture
def text(tab):
    def clicked(button):
        tab.click(button)
        return tab.until("!document.querySelector('#share-text').hidden && document.querySelector('#share-text').value")

    return clicked


def test_a_link_leads_to_the_same_picture_and_eps(tab, text, service, files, examples):
    tab.open(service.url)
    tab.use(files["noise"])
    tab.slide("eps", 20)
    claim, link = tab.text("#claim"), text("#copy-link")
    assert tab.value("location.href") == link
    tab.go("about:blank")
    tab.open(link)
    tab.wait_for("noise.png")
    assert tab.text("#claim") == claim
    assert all("picture=" not in url.partition("#")[0] for url in tab.requests), "it is sent to no server"

    number = next(at for at, example in enumerate(examples) if example["kind"] == "in")
    tab.click(f"#examples .example:nth-of-type({number + 1})")
    tab.wait_for(examples[number]["name"])
    link = text("#copy-link")
    assert len(link) < 80
    tab.go("about:blank")
    tab.open(link)
    assert tab.text("#fitted").startswith(examples[number]["name"] + ",")
    assert tab.text("#eps-value") == "0.072"
    tab.value("location.hash = '#example=nothing'")
    tab.until("document.querySelector('#image-problem').textContent.includes('not here')")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_command_gives_the_bound_that_is_shown(tab, text, service, files, bounds, examples):
    tab.open(service.url)
    tab.use(files["noise"])
    said = ran(text("#copy-curl"), files["noise"].parent)
    assert said["certificates"][0]["upper_bound"][0] == pytest.approx(bounds(files["noise"], 0.05)[0], abs=1e-6)
    assert said["eps"] == [0.05]
    tab.click("#examples .example:nth-of-type(1)")
    tab.wait_for(examples[0]["name"])
    said = ran(text("#copy-curl"), files["noise"].parent)
    assert said["certificates"][0]["upper_bound"][0] == pytest.approx(bounds(examples[0]["picture"], 0.05)[0], abs=1e-6)


def ran(command, folder):
    done = subprocess.run(["sh", "-c", f"{command} -s"], capture_output=True, text=True, cwd=folder, timeout=60)
    return json.loads(done.stdout)


def test_a_certificate_is_saved_and_an_independent_path_confirms_it(tab, serve, detector, files, made, tmp_path):
    file, about = made
    tab.open(serve(detector, about=about).url)
    tab.use(files["noise"])
    tab.browser.call(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), browserContextId=tab.context
    )
    tab.click("#download")
    tab.until("document.querySelector('#share-status button')")
    assert "prood verify noise-0.02.jsonl --model small" in tab.text("#share-status")
    tab.click("#share-status button")
    saved, picture = tmp_path / "noise-0.02.jsonl", tmp_path / "noise.png"
    end = time.monotonic() + 20
    while not (saved.exists() and picture.exists() and picture.stat().st_size and saved.stat().st_size):
        assert time.monotonic() < end
        time.sleep(0.02)
    (certificate,), note = certification.read(saved)
    assert note == ""
    assert (certificate.input.name, certificate.eps, certificate.model.path) == ("noise.png", EPS, "small")
    assert certificate.confidence == pytest.approx(detector.certify(files["noise"], EPS)[0].upper_bound, abs=1e-6)
    verdict = Verifier(model=str(file), input=str(tmp_path)).verify(certificate)
    assert verdict.outcome == "confirmed", verdict.reason


def test_a_service_without_certificates_offers_none(page, files):
    page.use(files["noise"])
    assert not page.shown("#download")
