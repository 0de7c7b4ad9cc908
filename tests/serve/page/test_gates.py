"""A gated model on the page: which gate rejects, and a curve that is the gated bound. Node runs the page's modules."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from PIL import Image

from prood import serve as served
from prood.detector import Detector
from prood.models import Gate, Gated

PAGE = Path(served.__file__).with_name("page")
# What the modules ask of a browser when they are loaded and send a picture.
BROWSER = """globalThis.matchMedia = () => ({ matches: true });
globalThis.document = { baseURI: %s };
"""
CURVE = """import { readFileSync } from "node:fs";
const { get } = await import("%(page)s/api.js");
const { Curve, radii } = await import("%(page)s/curve.js");
const { gates } = await import("%(page)s/gates.js");
const model = await get("v1/model");
const curve = new Curve(radii(model.eps), new File([readFileSync("%(file)s")], "x.png", { type: "image/png" }), model);
await curve.begin(3);
await curve.complete(() => 3, () => {});
const { eps, radius, reason } = curve;
const said = gates(curve, model, radius).map(([, words]) => words);
const bounds = eps.map((_, at) => curve.limit(at)), rejected = eps.map((_, at) => curve.rejected(at));
console.log(JSON.stringify({ eps, radius, reason, said, bounds, rejected }));
"""


@pytest.fixture
def node(tmp_path):
    """Run a module beside the page's own; what it prints, read as JSON."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for file in PAGE.glob("*.js"):
        shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def run(text, url="http://127.0.0.1/", **values):
        code = BROWSER % json.dumps(url) + text % ({"page": str(tmp_path)} | values)
        (tmp_path / "run.mjs").write_text(code)
        done = subprocess.run(["node", tmp_path / "run.mjs"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def gated(detector):
    """Its g rejects what is firmly below the gate, and its bounds are far below those of the joint model."""
    model = detector.model
    gate = Gate((-6.0, 0.0, 1.5), (-9.0, -5.0, -1.0))
    return Gated(model.classifier, model.discriminator, gate, 1.5).eval()


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    file = tmp_path_factory.mktemp("gates") / "noise.png"
    noise = torch.rand(28, 28, generator=torch.Generator().manual_seed(1))
    Image.fromarray((255 * noise).byte().numpy()).save(file)
    return file


@pytest.mark.slow
def test_the_curve_in_the_browser_is_the_gated_bound(node, serve, detector, gated, picture):
    free = Detector(gated)
    threshold = float(free.upper_bounds(picture, [0.03])[0, 0])
    ours = Detector(gated, threshold=threshold)
    found = node(CURVE, serve(ours).url, file=picture)
    expected = ours.upper_bounds(picture, found["eps"])[0]
    assert found["bounds"] == pytest.approx(expected, abs=1e-6)
    assert found["bounds"][8] < Detector(detector.model).upper_bounds(picture, found["eps"])[0][8] - 0.01
    assert found["reason"] == ours.predict(picture)[0].reason == "discriminator"
    assert found["rejected"] == [bool(ours.rule.rejects(bound)) for bound in expected]
    assert len(set(found["rejected"])) == 2, "proved at small radii, and not at large ones"
    assert found["said"][0].endswith(f"rejects, provably up to ε = {int(found['radius'] * 1e4) / 1e4:.4f}")
    assert found["said"][1] == "no longer asked"


SAID = """const { gates } = await import("%(page)s/gates.js");
const model = { threshold: 0.5, p_in_threshold: 0.25 };
const cases = [[null, null], [true, null], [false, "confidence"], [false, "discriminator"]];
const answers = cases.map(([accepted, reason]) => ({ accepted, reason, confidence: 0.4, p_in: 0.3 }));
console.log(JSON.stringify(answers.map((answer) => [undefined, -1, 0.01].map((reach) =>
  gates(answer, model, reach).map(([, words]) => words)))));
"""


def test_each_gate_says_what_it_does_and_what_is_proved(node):
    undecided, accepted, by_confidence, by_g = node(SAID)
    assert undecided == [[], [], []]
    both = [["0.300, needs 0.250: passes", "0.400, needs 0.500: passes"]] * 3
    assert accepted == both
    assert by_confidence == [[both[0][0], "0.400, needs 0.500: rejects, which no proof covers"]] * 3
    ends = ["", ", not provably", ", provably up to ε = 0.0100"]
    assert by_g == [[f"0.300, needs 0.250: rejects{end}", "no longer asked"] for end in ends]


POINT = """const { point } = await import("%(page)s/point.js");
const price = [{ eps: 0.01, accepted: 0.951, rejected: 0.5, proved: 0.125, sets: 8 }];
const models = [
  { threshold: null, accept: null, provable: null, price: [] },
  { threshold: 0.5, accept: null, provable: null, price: [] },
  { threshold: 0.5, accept: 0.95, provable: 0, price },
  { threshold: 0.5, accept: 0.95, provable: 0.3, price: [...price, { ...price[0], sets: 1, attacked: 0.25 }] },
];
console.log(JSON.stringify(models.map(point)));
"""


def test_the_point_in_use_in_words(node):
    none, unknown, ungated, gated = node(POINT)
    assert none == []
    assert unknown == ["What is provably rejected at this threshold was not evaluated."]
    assert ungated[0] == gated[0] == "The threshold accepts 95% of its own kind."
    assert "no gate" in ungated[1]
    assert "30%" in gated[1]
    assert [word in ungated[2] for word in ("8 sets", "50% rejected", "12.5% provably", "ε = 0.01")] == [True] * 4
    assert "one set" in gated[3]
    assert ["under attack" in ungated[2], "50% rejected, 25% under attack, 12.5% provably" in gated[3]] == [False, True]


@pytest.mark.slow
def test_the_page_shows_both_gates(tab, serve, gated, picture):
    ours = Detector(gated, threshold=0.2)
    tab.open(serve(ours).url)
    tab.use(picture)
    assert ours.predict(picture)[0].reason == "discriminator"
    assert "the discriminator rejects it" in tab.text("#why")
    shown = tab.value("[...document.querySelectorAll('#gates dd')].map((words) => words.textContent)")
    assert "rejects" in shown[0]
    assert shown[1] == "no longer asked"
