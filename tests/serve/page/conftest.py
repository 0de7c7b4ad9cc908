"""The page in a real browser, with the real service behind it and a small model of its own."""

import importlib.util
import io
import json
import re
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
import uvicorn
from PIL import Image

from prood.detector import Detector
from prood.models import ProoD, discriminator, small
from prood.serve import About, Options, create_app
from prood.serve.connection import impatient

# Tests are no package, so their browser is loaded by its path.
spec = importlib.util.spec_from_file_location("browser", Path(__file__).parents[1] / "browser.py")
browsers = sys.modules["browser"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(browsers)

EPS, THRESHOLD, K = 0.05, 0.131, 8
READY = """document.querySelector('#main').getAttribute('aria-busy') === 'false'
  && !document.querySelector('#far-body').hidden"""
ATTACKED = "document.querySelector('#attack-status').textContent.includes('proof allows')"
POINTS = (
    "document.querySelector('%s').getAttribute('d').slice(1).split('L').map((point) => point.split(' ').map(Number))"
)
LEVEL = "Number(document.querySelector('%s').getAttribute('d').match(/ ([\\d.]+)H/)[1])"
LABELS = """[...document.querySelectorAll('#%s text[text-anchor=end]')].map((text) =>
  [Number(text.getAttribute('y')) - 4, Number(text.textContent)])"""
SLIDE = """(() => { const slider = document.querySelector('#%s');
  slider.value = %d; slider.dispatchEvent(new Event('input')); })()"""
PIXELS = """(() => { const shown = document.querySelector('%s');
  const [width, height] = [shown.naturalWidth ?? shown.width, shown.naturalHeight ?? shown.height];
  const context = new OffscreenCanvas(width, height).getContext('2d');
  context.drawImage(shown, 0, 0);
  return [height, width, 4, ...context.getImageData(0, 0, width, height).data]; })()"""


class ProodPage(browsers.Page):
    """Prood's page in a tab; `allowed` are complaints that belong to a test."""

    allowed: tuple[str, ...] = ()

    def open(self, url):
        self.go(url)
        self.until(READY)

    def wait_for(self, name):
        """Until everything is said of the image of this name."""
        self.until(f"document.querySelector('#fitted').textContent.startsWith({json.dumps(name + ',')}) && {READY}")

    def use(self, file):
        self.give("#file", file)
        self.wait_for(file.name)

    def slide(self, name, place):
        self.value(SLIDE % (name, place))

    def attack(self):
        self.click("#attack")
        self.until(ATTACKED)

    def numbers(self, selector):
        """The numbers that a sentence stresses."""
        texts = self.value(f"[...document.querySelectorAll('{selector} strong')].map((part) => part.textContent)")
        return [float(text) for text in texts]

    def pixels(self, selector):
        """The red of a canvas or an image, (height, width)."""
        height, width, channels, *data = self.value(PIXELS % selector)
        return np.array(data).reshape(height, width, channels)[..., 0]

    def points(self, selector):
        """The corners of a line in a chart."""
        return self.value(POINTS % selector)

    def level(self, selector):
        """The height of a level line in a chart."""
        return self.value(LEVEL % selector)

    def check(self):
        """Nothing has complained, and no request has left the machine."""
        assert [text for text in self.complaints if not any(part in text for part in self.allowed)] == []
        asked = [url for url in self.requests if not url.startswith(("data:", "blob:http://127.0.0.1:"))]
        assert asked
        assert [url for url in asked if not re.match(r"http://127\.0\.0\.1:\d+/", url)] == []

    def scale(self, chart):
        """From a height in a chart to the value there, by the labels of its vertical axis."""
        labels = self.value(LABELS % chart)
        (y0, v0), (y1, v1) = labels[0], labels[-1]
        return lambda y: v0 + (y - y0) * (v1 - v0) / (y1 - y0)


class Served:
    """A service in a thread, on a port of its own."""

    def __init__(
        self, detector: Detector, options: Options | None = None, port: int = 0, about: About | None = None
    ) -> None:
        app = create_app(detector, options, about or About("small", EPS, inside="digits:train"))
        self.service = app.house.model(None).service
        http = impatient(10, 1000)
        config = uvicorn.Config(app, port=port, log_level="critical", ws="none", http=http, timeout_graceful_shutdown=5)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.01)
            assert self.thread.is_alive(), "the service did not start"
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"

    def get(self, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            self.url + path.lstrip("/"), data, {"Content-Type": "image/png"} if data else {}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()


def joint() -> ProoD:
    """Random; around some images its bound climbs from 1/K to the ceiling within the radii of the page."""
    torch.manual_seed(0)
    f, g = small(K, width=4), discriminator("digits", image=(1, 28, 28))
    with torch.no_grad():
        f[-1].weight.mul_(60)
    return ProoD(f, g, 1.5).eval()


@pytest.fixture(scope="session")
def detector():
    return Detector(joint(), threshold=THRESHOLD)


@pytest.fixture(scope="session")
def bounds(detector):
    """The bound of a picture's confidence at some radii; without a threshold there is no search for the largest."""
    only = Detector(detector.model)
    return lambda image, *radii: [only.certify(image, eps)[0].upper_bound for eps in radii]


@pytest.fixture
def serve():
    """Start services, which end with the test."""
    running = []

    def start(*arguments, **options):
        running.append(Served(*arguments, **options))
        return running[-1]

    yield start
    for served in running:
        served.stop()


@pytest.fixture(scope="session")
def service(detector):
    served = Served(detector)
    yield served
    served.stop()


@pytest.fixture(scope="session")
def examples(service):
    """What the service offers: name, kind, url, and the picture."""
    found = json.loads(service.get("v1/examples"))
    return [example | {"picture": Image.open(io.BytesIO(service.get(example["url"])))} for example in found]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if browsers.BROWSER is None:
        pytest.skip(f"no browser: none of {', '.join(browsers.NAMES)} is installed")
    found = browsers.Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture
def tab(browser):
    """A tab of its own, which has gone nowhere yet."""
    page = browser.page(ProodPage)
    page.size(1200, 900)
    page.prefer(color_scheme="light", reduced_motion="reduce")
    yield page
    page.check()
    page.close()


@pytest.fixture(scope="session")
def opened(browser, service):
    page = browser.page(ProodPage)
    page.size(1200, 900)
    page.open(service.url)
    yield page
    page.close()


@pytest.fixture
def page(opened):
    """The page in a tab that tests share, for opening it takes a second; each chooses its image first."""
    opened.prefer(color_scheme="light", reduced_motion="reduce")
    opened.slide("eps", 14)
    opened.forget()
    yield opened
    opened.check()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Images as files: one that the model rejects, one that it accepts, and some that are wrong."""
    folder = tmp_path_factory.mktemp("images")
    noise = torch.rand(28, 28, generator=torch.Generator().manual_seed(1))
    Image.fromarray((255 * noise).byte().numpy()).save(folder / "noise.png")
    Image.fromarray(np.tile(np.linspace(0, 255, 28).round().astype(np.uint8), (28, 1))).save(folder / "ramp.png")
    (folder / "broken.png").write_bytes((folder / "noise.png").read_bytes()[:60])
    (folder / "large.bmp").write_bytes(bytes(30_000))
    Image.new("L", (300, 300)).save(folder / "wide.png")
    return {file.stem: file for file in folder.iterdir()}
