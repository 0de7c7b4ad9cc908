"""The certified bound, in words and as a curve."""

import re

import pytest

THRESHOLD, K = 0.131, 8
RADII = sorted({round(0.004 * place, 3) for place in range(26)} | {0.03138, 0.05})  # those of the slider


def test_the_bound_is_read_and_drawn_at_every_eps(page, files, detector, bounds):
    page.use(files["noise"])
    proven = bounds(files["noise"], *RADII)
    assert proven[0] < 0.2 < 0.9 < proven[-1], "there is something to see"
    assert page.value("document.querySelector('#eps').max") == "27"
    for place in (1, 8, 14, 27):
        page.slide("eps", place)
        eps, said = page.numbers("#claim")
        assert eps == RADII[place]
        assert proven[place] <= said <= proven[place] + 1e-3, "rounded up, by a digit at most"
    value, line = page.scale("proof-chart"), page.points("#proof-chart .line.bound")
    assert [value(y) for _, y in line] == pytest.approx(proven, abs=0.005)
    dot = "['cx', 'cy'].map((at) => Number(document.querySelector('#proof-chart .dot.bound').getAttribute(at)))"
    assert page.value(dot) == pytest.approx(line[27], abs=0.1)
    drawn = {name: value(page.level(f"#proof-chart .line.{name}")) for name in ("threshold", "clean", "floor")}
    confidence = detector.predict(files["noise"])[0].confidence
    assert drawn == pytest.approx({"threshold": THRESHOLD, "clean": confidence, "floor": 1 / K}, abs=0.005)


def test_what_the_proof_means_for_rejection(page, examples, detector, bounds):
    """A picture that is provably rejected up to a radius inside the curve."""
    number, example = next((at, example) for at, example in enumerate(examples) if example["kind"] == "in")
    reach = detector.certify(example["picture"], 0.05, radius=True)[0].radius
    assert 0.01 < reach < 0.1
    page.click(f"#examples .example:nth-of-type({number + 1})")
    page.wait_for(example["name"])
    for place, most in enumerate(bounds(example["picture"], *RADII)):
        page.slide("eps", place)
        said = "So every one of these images is rejected" in page.text("#claim-note")
        if place:
            assert said == (most < THRESHOLD), RADII[place]
    told = float(re.search(r"certified radius, ([\d.]+)", page.text("#proof-legend"))[1])
    assert reach - 1e-3 <= told <= reach + 1e-6, "rounded down"
    radius = "Number(document.querySelector('#proof-chart .line.radius').getAttribute('d').match(/M([\\d.]+)/)[1])"
    line = page.points("#proof-chart .line.bound")
    assert (page.value(radius) - line[0][0]) / (line[-1][0] - line[0][0]) == pytest.approx(reach / 0.1, abs=0.005)


def test_an_accepted_image_has_no_rejection_to_prove(page, files):
    page.use(files["ramp"])
    page.slide("eps", 1)
    assert page.text("#claim-note").startswith("The image itself is accepted")
    assert "certified radius" not in page.text("#proof-legend")
    page.slide("eps", 27)
    assert page.text("#claim-note").startswith("That is what holds for any image whatsoever")


def test_a_chart_tells_its_values_to_the_pointer_and_the_arrow_keys(page, files, bounds):
    page.use(files["noise"])
    page.value("document.querySelector('#proof-chart svg').focus()")
    page.press("ArrowRight", 11)
    (most,) = bounds(files["noise"], RADII[10])
    told = re.match(r"ε = ([\d.]+): confidence at most ([\d.]+)", page.text("#proof-chart .reading"))
    assert float(told[1]) == RADII[10]
    assert most <= float(told[2]) <= most + 1e-3
    page.press("End")
    assert page.text("#proof-chart .reading").startswith("ε = 0.1:")
    corner = "(({left, top}) => [left, top])(document.querySelector('#proof-chart svg').getBoundingClientRect())"
    left, top = page.value(corner)
    at = {"x": left + page.points("#proof-chart .line.bound")[21][0], "y": top + 60, "button": "left", "clickCount": 1}
    page.call("Input.dispatchMouseEvent", type="mousePressed", buttons=1, **at)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", **at)
    assert page.text("#proof-chart .reading").startswith("ε = 0.076:")
    assert page.text("#eps-value") == "0.076", "pressing on the curve chooses that ε"


def test_the_curve_comes_coarse_to_fine_and_never_says_more_than_is_known(tab, service, files, bounds):
    """Its requests are held back one by one; the first to fail is made again."""
    tab.open(service.url)
    tab.allowed = ("ERR_FAILED",)
    tab.call("Fetch.enable", patterns=[{"urlPattern": "*/v1/certify*"}])
    tab.give("#file", files["noise"])
    tab.call("Fetch.continueRequest", **paused(tab))
    held = paused(tab)
    assert tab.numbers("#claim") == [0.05, pytest.approx(bounds(files["noise"], 0.05)[0], abs=1e-3)]
    proven = bounds(files["noise"], *RADII)
    for place in (8, 13, 20):
        tab.slide("eps", place)
        assert tab.numbers("#claim")[-1] >= proven[place], "a larger ball's bound is one, too"
        assert "is being computed" in tab.text("#claim-note")
        assert "nothing more is proven" not in tab.text("#claim-note")
    tab.call("Fetch.continueRequest", **held)
    held = paused(tab)
    value = tab.scale("proof-chart")
    assert tab.text("#curve-progress") == "The curve is being computed: 5 of 28 radii."
    for x, y in tab.points("#proof-chart .line.bound"):
        eps = 0.1 * (x - tab.points("#proof-chart .line.bound")[0][0]) / 1000
        assert value(y) >= proven[RADII.index(min(RADII, key=lambda one: abs(one - eps)))] - 0.005
    tab.call("Fetch.failRequest", errorReason="Failed", **held)
    assert "does not answer" in tab.until("document.querySelector('#curve-problem').textContent")
    assert tab.shown("#claim")
    tab.call("Fetch.disable")
    tab.click("#curve-problem button")
    tab.until("document.querySelector('#curve-progress').hidden")
    assert tab.numbers("#claim")[-1] == pytest.approx(proven[20], abs=1e-3)


def test_where_nothing_changes_its_confidence_is_known(page, files, detector):
    page.use(files["noise"])
    page.slide("eps", 0)
    confidence = detector.predict(files["noise"])[0].confidence
    assert page.numbers("#claim") == [pytest.approx(confidence, abs=5.1e-4)]
    assert page.text("#claim-note").endswith("It is rejected as it is.")
    page.value("document.querySelector('#proof-chart svg').focus()")
    page.press("Home")
    assert page.text("#proof-chart .reading").startswith("ε = 0: the image as it is")


def paused(page):
    return {"requestId": page.browser.event("Fetch.requestPaused", page.session)["requestId"]}
