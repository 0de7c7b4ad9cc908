"""The page in a real browser: its script runs, its plots are laid out and drawn."""

import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from prood.report import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")

MODELS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#111418"]
GROUNDS = {"light": (255, 255, 255), "dark": (20, 23, 27)}


def rgb(name):
    return tuple(int(name[place : place + 2], 16) for place in (1, 3, 5))


@pytest.fixture(scope="module")
def file(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(results, path)
    return path


@pytest.fixture
def browse(tmp_path):
    def browse(url, *options, width=1280, height=900, scheme="light"):
        command = [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},{height}",
            "--virtual-time-budget=3000", "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", *options, url,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
        assert "CONSOLE" not in done.stderr, re.findall(r".*CONSOLE.*", done.stderr)
        return done.stdout

    return browse


def test_the_script_shows_one_radius_and_folds_the_gallery(browse, file, parse):
    tree = parse(browse(file.as_uri(), "--dump-dom"))
    assert "hidden" not in tree.all("form")[0]["attrs"]

    def shown(entry):
        return not any("hidden" in outer["attrs"] for outer in (*entry["within"], entry))

    figures = {name: tree.all("figure", within=name) for name in ("scores", "roc", "radius")}
    assert {name: len(found) for name, found in figures.items()} == {"scores": 70, "roc": 14, "radius": 7}
    assert {name: sum(map(shown, found)) for name, found in figures.items()} == {"scores": 35, "roc": 7, "radius": 7}
    assert ["open" in fold["attrs"] for fold in tree.all("details", within="gallery")] == [True] + [False] * 6


PROBE = """<script>addEventListener("load", () => {
  const boxes = (query) => [...document.querySelectorAll(query)].map((x) => x.getBoundingClientRect());
  const seen = (query) => boxes(query).filter((box) => box.width > 0 || box.height > 0);
  const texts = (svg) => [...svg.querySelectorAll("text")].map((x) => x.getBoundingClientRect());
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
  const charts = [...document.querySelectorAll(".chart svg")].filter((svg) => svg.getBoundingClientRect().width > 0);
  const overlaps = charts.filter((svg) => texts(svg).some((a, i) => texts(svg).some((b, k) => k > i && !apart(a, b))));
  const inside = (svg, box) => { const frame = svg.getBoundingClientRect();
    return box.left >= frame.left - 1 && box.right <= frame.right + 1 && box.bottom <= frame.bottom + 1; };
  const clipped = charts.filter((svg) => texts(svg).some((box) => !inside(svg, box)));
  const out = document.body.appendChild(document.createElement("pre"));
  out.id = "probe";
  out.textContent = JSON.stringify({
    charts: charts.length, narrowest: Math.min(...charts.map((svg) => svg.getBoundingClientRect().width)),
    lines: seen(".line").length, steps: seen(".steps").length, bands: seen(".band").length,
    pictures: [...document.images].filter((image) => image.naturalWidth === 28).length,
    strokes: [...new Set([...document.querySelectorAll(".chart .line")].map((line) => getComputedStyle(line).stroke))],
    overlaps: overlaps.length, clipped: clipped.length,
    wide: document.documentElement.scrollWidth - innerWidth,
  });
});</script></body>"""


@pytest.mark.parametrize("width", [1280, 500])  # headless Chromium has no narrower window
def test_plots_are_laid_out_without_overlap(browse, file, parse, tmp_path, width):
    probed = tmp_path / "probed.html"
    probed.write_text(file.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    tree = parse(browse(probed.as_uri(), "--dump-dom", width=width))
    found = json.loads(tree.all("pre")[0]["text"])
    assert (found["charts"], found["pictures"]) == (35 + 7 + 7 + 7, len(tree.all("img")))
    assert found["narrowest"] >= 150
    assert found["lines"] >= 7 * 13 + 7 * 8
    assert found["steps"] >= 7 * (3 + 3 + 4 + 4 + 4)
    assert found["bands"] == 21
    assert (found["overlaps"], found["clipped"]) == (0, 0)
    assert set(found["strokes"]) == {f"rgb{rgb(name)}" for name in MODELS}
    assert found["wide"] <= 0, "the page itself never scrolls sideways"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_drawn_in_its_colours(browse, file, tmp_path, scheme):
    shot = tmp_path / "shot.png"
    browse(file.as_uri(), f"--screenshot={shot}", height=6000, scheme=scheme)
    with Image.open(shot) as opened:
        image = opened.convert("RGB")
    assert image.size == (1280, 6000)
    colours = {colour: count for count, colour in image.getcolors(image.width * image.height)}
    assert max(colours, key=colours.get) == GROUNDS[scheme]
    assert len(colours) > 500
    drawn = [sum(abs(a - b) for a, b in zip(colour, GROUNDS[scheme], strict=True)) > 60 for colour in colours]
    assert sum(drawn) > 300
    if scheme == "light":
        for name in MODELS:
            assert colours.get(rgb(name), 0) > 20, f"{name} is not drawn"
