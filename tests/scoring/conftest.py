"""A small joint model in a run's folder, and pictures in every kind of source."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.detector import Detector
from prood.models import ProoD, discriminator, save, small

SHAPE = (1, 8, 8)


def joint(seed: int = 0) -> ProoD:
    """Random, with confidences of many sizes and bounds below the ceiling."""
    torch.manual_seed(seed)
    f, g = small(4, channels=1, width=4), discriminator("digits", image=SHAPE)
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(0.5)
    return ProoD(f, g, 0.0).eval()


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "run"
    save(joint(), folder / "model.safetensors", classes=list("abcd"), threshold=0.55)
    return folder


@pytest.fixture
def detector(run) -> Detector:
    return Detector.load(run)


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """90 images in bytes; smooth ones, for some of which g is low."""
    coarse = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (90, 1, 3, 3)).astype(np.float32))
    return torch.nn.functional.interpolate(coarse, size=(8, 8), mode="bilinear").round().to(torch.uint8).numpy()


@pytest.fixture(scope="session")
def contents(images) -> list[bytes]:
    """The same as PNG files."""
    found = []
    for image in images:
        content = io.BytesIO()
        Image.fromarray(image[0]).save(content, "png")
        found.append(content.getvalue())
    return found


@pytest.fixture
def photos(tmp_path, contents) -> Path:
    """The same in folders of thirty, with one that is no picture, a hidden one and a file that is none."""
    folder = tmp_path / "photos"
    for number, content in enumerate(contents):
        place = folder / f"part-{number // 30}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:03}.png").write_bytes(content)
    (folder / "part-1" / "broken.jpg").write_bytes(b"no picture")
    (folder / "part-1" / ".hidden.png").write_bytes(contents[0])
    (folder / "notes.md").write_text("no picture")
    return folder


def write_tar(path: Path, contents: list[bytes], first: int = 0) -> None:
    """As WebDataset writes them: a picture and what belongs to it, under one key."""
    with tarfile.open(path, "w") as archive:
        for number, content in enumerate(contents, first):
            for name, data in ((f"{number:03}.png", content), (f"{number:03}.cls", b"3")):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
