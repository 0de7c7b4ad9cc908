"""Discriminators that average the image first, in ONNX Runtime: torch's numbers, and a bound about the large image."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from prood.attacks import PGD
from prood.detector import Detector
from prood.export import export, open_session, run
from prood.models import ProoD, discriminator, score_of, small

pytestmark = pytest.mark.slow  # its files take seconds to export

FRONTS = {"p3 p2": (3, 26, 33)}  # no power of two, two in a row, and a rest on one side


@pytest.fixture(scope="module", params=FRONTS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Detector, Path]:
    torch.manual_seed(0)
    shape = FRONTS[request.param]
    g = discriminator(f"{request.param} 6s2 fc12", image=shape, far_penalty=1e-3)
    f = small(4, width=4, channels=shape[0])
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(1.0)
    detector = Detector(ProoD(f, g, 0.5), threshold=0.5)
    path = tmp_path_factory.mktemp("enlarged") / "model.onnx"
    export(detector, path)
    return detector, path


@pytest.mark.parametrize("level", ["disabled", "all"])
def test_the_runtime_agrees_with_torch(level: str, made: tuple[Detector, Path]) -> None:
    detector, path = made
    images = torch.rand(5, *detector.shape, generator=torch.manual_seed(1))
    said, session = detector.predict(images), open_session(path, level)
    bounds = []
    for eps in (0.0, 0.01, 0.1):
        got = run(session, images, eps)
        np.testing.assert_allclose(got["p_in"], said.p_in, atol=1e-6, rtol=0)
        np.testing.assert_allclose(got["confidence"], said.confidence, atol=1e-5, rtol=0)
        bound = detector.joint().upper_bound(images, float(np.float32(eps))).numpy()
        np.testing.assert_allclose(got["upper_bound"], bound, atol=1e-6, rtol=0)
        bounds.append(got["upper_bound"])
    assert (bounds[0] < bounds[2]).any()  # it says something


def test_no_attack_exceeds_the_bound(made: tuple[Detector, Path]) -> None:
    detector, path = made
    images, session = torch.rand(5, *detector.shape, generator=torch.manual_seed(2)), open_session(path, "all")
    bound = run(session, images, 0.05)["upper_bound"]
    outcome = PGD(steps=15, uniform=1, gaussian=0)(score_of(detector.model), images, 0.05, goal=math.inf)
    assert (run(session, outcome.images, 0.0)["confidence"] <= bound).all()
    assert (detector.predict(outcome.images).confidence <= bound).all()
    for seed in range(10):
        signs = torch.randint(-1, 2, images.shape, generator=torch.manual_seed(seed))
        assert (run(session, (images + 0.05 * signs).clamp(0, 1), 0.0)["confidence"] <= bound).all()
