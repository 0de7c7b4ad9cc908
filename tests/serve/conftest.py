"""A small joint model with a calibration, and clients of its service."""

import asyncio
import io
import threading
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from prood.detector import Detector
from prood.models import ProoD, discriminator, small
from prood.serve import About, Options, create_app
from prood.serve.app import Application
from prood.serve.service import Service

NAMES = tuple("abcdefgh")


def joint() -> ProoD:
    """Random, but with confidences of many sizes and bounds below the ceiling."""
    torch.manual_seed(0)
    f, g = small(8, width=4), discriminator("digits", image=(1, 28, 28))
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(0.5)
    return ProoD(f, g, 1.5).eval()


@pytest.fixture(scope="session")
def pictures() -> np.ndarray:
    """Bytes (N, H, W): squares of many greys on noise."""
    random = np.random.default_rng(0)
    found = random.integers(0, 256, (100, 28, 28), dtype=np.uint8)
    for place, picture in enumerate(found):
        picture[4:20, 4 : 8 + place % 16] = 2 * place
    return found


@pytest.fixture(scope="session")
def images(pictures: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pictures)[:, None].float() / 255


@pytest.fixture(scope="session")
def detector(images: torch.Tensor) -> Detector:
    found = Detector(joint(), classes=NAMES)
    found.calibrate(images, accept=0.6, level=0.9)
    return found


@pytest.fixture(scope="session")
def files(pictures: np.ndarray) -> list[bytes]:
    return [encoded(picture) for picture in pictures]


def encoded(picture: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind, **options)
    return file.getvalue()


class Client:
    """Requests to an application without a socket, on a loop of its own; `many` are sent at once."""

    def __init__(self, app: Application) -> None:
        self.app, self.loop = app, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60)

    @property
    def service(self) -> Service:
        """Of the first model."""
        return self.app.house.model(None).service

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        return self.many([(method, path, options)])[0]

    def get(self, path: str, **options: object) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: object) -> httpx.Response:
        return self.request("POST", path, **options)

    def picture(self, path: str, file: bytes, kind: str = "image/png") -> httpx.Response:
        return self.post(path, content=file, headers={"content-type": kind})

    def many(self, requests: list[tuple[str, str, dict]]) -> list[httpx.Response]:
        async def send() -> list[httpx.Response]:
            return await asyncio.gather(*(self.http.request(m, path, **options) for m, path, options in requests))

        return asyncio.run_coroutine_threadsafe(send(), self.loop).result(120)

    def warm(self) -> None:
        asyncio.run_coroutine_threadsafe(self.service.warm(), self.loop).result(60)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.http.aclose(), self.loop).result(20)
        for model in self.app.house.models.values():
            model.service.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


@pytest.fixture
def service(detector: Detector) -> Iterator[Callable[..., Client]]:
    """`service(batch=1, …)` is a client of an application with these options."""
    clients = []

    def start(detector: Detector = detector, about: About | None = None, **options: object) -> Client:
        clients.append(Client(create_app(detector, Options(**options), about or About("small", 0.02))))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.fixture
def client(service: Callable[..., Client]) -> Client:
    return service()


@pytest.fixture(scope="session")
def refused() -> Callable[..., httpx.Response]:
    """`refused(answer, status, said)` checks that an answer refuses in one line that says no more than it should."""

    def check(answered: httpx.Response, status: int, said: str) -> httpx.Response:
        assert answered.status_code == status, answered.text
        line = answered.json()["error"]
        assert said in line
        assert "\n" not in line
        assert len(line) < 200
        assert "/work" not in line
        assert "object at" not in line
        return answered

    return check
