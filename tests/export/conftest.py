"""Two small joint models, and one of them as a file."""

from pathlib import Path

import pytest
import torch
from torch import nn

from prood.bounds import BlockedLinear, NegativeLinear, Normalise
from prood.detector import Detector
from prood.export import export
from prood.models import Discriminator, Gate, Gated, ProoD, discriminator, small
from prood.models.committee import committee_of


def digits_model(seed: int = 0) -> ProoD:
    """As the quickstart's: random, but with confidences of many sizes and bounds below the ceiling."""
    torch.manual_seed(seed)
    f, g = small(8, width=4), discriminator("digits", image=(1, 28, 28), far_penalty=1e-3)
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    return ProoD(f, g, 1.5).eval()


def odd_model(seed: int = 0) -> ProoD:
    """Colours, sides that are no powers of two, pooling that leaves a rest, a stride that skips inputs."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        Normalise([0.4, 0.5, 0.6], [0.2, 0.3, 0.25]),
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 6, (2, 1), stride=3, padding=(1, 0)),
        nn.ReLU(),
        nn.Flatten(),
        BlockedLinear(54, 6),
        nn.ReLU(),
        NegativeLinear(6),
    )
    f = nn.Sequential(nn.Flatten(), nn.Linear(3 * 13 * 17, 3))
    return ProoD(f, Discriminator(network), 0.7).eval()  # 3 + 0.7 is rounded up in float32


ODD = (3, 13, 17)


def gated_model(seed: int = 0) -> Gated:
    """With caps below what the confidence is of most images, and two knots that are next to each other."""
    model = digits_model(seed)
    gate = Gate((-3.0, 2.6, 2.75, 3.2, 3.6), (-8.5, -0.7, 0.9, 1.3, 3.3))
    return Gated(model.classifier, model.discriminator, gate, model.shift.item()).eval()


def committee_model(seed: int = 0) -> Gated:
    """Two members, of which each is the least for some images, behind the same gate."""
    model = gated_model(seed)
    g = discriminator("digits-S", image=(1, 28, 28), far_penalty=1e-3).eval()
    with torch.no_grad():
        g.last.log_weight.sub_(1.0)
    members, images = [model.discriminator, g], torch.rand(200, 1, 28, 28) ** 2
    with torch.no_grad():
        seen = [one.covered(images).double().numpy() for one in members]
    return Gated(model.classifier, committee_of(members, seen, (0.6, 0.4)), model.gate, 1.5).eval()


@pytest.fixture(scope="session")
def detector() -> Detector:
    return Detector(digits_model(), threshold=0.5, classes=[f"digit {n}" for n in range(8)])


@pytest.fixture(scope="session")
def file(detector: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    export(detector, path)
    return path


@pytest.fixture(scope="session")
def odd() -> Detector:
    return Detector(odd_model(), image=ODD)


@pytest.fixture(scope="session")
def odd_file(odd: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "odd.onnx"
    export(odd, path, opset=18)
    return path


@pytest.fixture(scope="session")
def gated() -> Detector:
    return Detector(gated_model(), threshold=0.5)


@pytest.fixture(scope="session")
def gated_file(gated: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "gated.onnx"
    export(gated, path)
    return path


@pytest.fixture(scope="session")
def committee() -> Detector:
    return Detector(committee_model(), threshold=0.5)


@pytest.fixture(scope="session")
def committee_file(committee: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "committee.onnx"
    export(committee, path)
    return path
