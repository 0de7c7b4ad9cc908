"""What the table says of an image: rejected provably, rejected, or not."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prood.bounds import Norm
from prood.certification import table
from prood.certification.certify import Request
from prood.certification.record import Certificate, ImageReference, ModelReference
from prood.certification.table import CertifiedImage, show
from prood.data import load
from prood.detector import Answer, Detector, Rule
from prood.models import Discriminator, ProoD, build, save

CPU = torch.device("cpu")


def certify_images(path: Path, names: list[str], eps: list[float], **options: Any) -> list[CertifiedImage]:
    what, kept = (
        Detector.load(path, device=options.pop("device", CPU)),
        {key: options.pop(key, None) for key in ("out", "limit")},
    )
    what.threshold = options.pop("threshold", what.threshold)
    return table.certify_images(what, path, names, Request(eps, **options), **kept)


@pytest.fixture(scope="module")
def model() -> ProoD:
    torch.manual_seed(0)
    g = build({"name": "discriminator", "size": "digits", "image": [1, 28, 28]}).eval()
    f = build({"name": "small", "classes": 4, "width": 4}).eval()
    assert isinstance(g, Discriminator)
    return ProoD(f, g, 1.5)


def row(
    confidence: float,
    bounds: dict[float, float],
    threshold: float | None,
    radius: float = math.nan,
    *,
    cap: float = 1.0,
    searched: bool = False,
) -> CertifiedImage:
    """`cap` is the highest confidence that g allows for the image itself."""
    certificates = tuple(
        Certificate(
            ImageReference("a", 0, ""), ModelReference("m", ""), "linf", eps, "best", 0.0, classes=4, confidence=bound
        )
        for eps, bound in bounds.items()
    )
    rule = Rule(4, threshold)
    accepted = None if threshold is None else bool(rule.accepts(confidence))
    reason = rule.reasons(np.float64(confidence), np.float64(cap)).item()
    answer = Answer(0, "cat", confidence, 0.5, accepted, None, reason)
    return CertifiedImage("a[0]", answer, certificates, rule, radius, searched)


@pytest.mark.parametrize(
    ("confidence", "bounds", "threshold", "said"),
    [
        (0.3, {0.01: 0.4}, 0.5, "provably"),
        (0.3, {0.01: 0.5}, 0.5, "yes"),  # the bound must be below it
        (0.3, {0.01: 0.6}, 0.5, "yes"),
        (0.5, {0.01: 0.6}, 0.5, "no"),  # what is as high as the threshold is accepted
        (0.7, {0.01: 0.9}, 0.5, "no"),
        (0.3, {0.1: 0.6, 0.01: 0.4}, 0.5, "provably"),  # the smallest radius decides, wherever it stands
        (0.3, {0.01: 0.5001, 0.1: 0.4999}, 0.5, "provably"),  # proven in the larger ball, so in the smaller one
        (0.3, {0.01: 0.4}, None, None),
    ],
)
def test_rejected(confidence: float, bounds: dict[float, float], threshold: float | None, said: str | None) -> None:
    assert row(confidence, bounds, threshold).rejected == said


def cells(rows: list[CertifiedImage]) -> list[list[str]]:
    """The cells of `show`, row by row."""
    table = show(rows)
    return [list(line) for line in zip(*(column.cells for column in table.columns), strict=True)]  # type: ignore[arg-type]


def test_the_columns() -> None:
    rows = [
        row(0.3, {0.01: 0.4}, 0.5, 0.02),
        row(0.3, {0.01: 0.6}, 0.5, 0.004, searched=True),
        row(0.3, {0.01: 0.9}, 0.5),
        row(0.3, {0.01: 0.9}, 0.5, cap=0.4),
        row(0.3, {0.01: 0.9}, 0.5, 0.0, cap=0.4, searched=True),
        row(0.7, {0.01: 0.9}, 0.5),
    ]
    assert [line[-1].partition(": --radius")[0] for line in cells(rows)] == [
        "rejected; stays rejected for every change up to 0.02",
        "rejected; stays rejected for every change up to 0.004",
        "rejected as it is; not provable: g alone is not sure enough",
        "rejected as it is; not proved for changes of 0.01",
        "rejected as it is; not proved for any change, however small",
        "accepted: nothing is proved about accepted images",
    ]
    assert [column.header for column in show(rows).columns][-1] == "verdict"
    without = [row(0.3, {0.01: 0.4}, None)]
    assert [column.header for column in show(without).columns][-1] == "≤ within 0.01 (linf)"
    assert show([]).columns


@pytest.mark.slow
def test_the_models_own_threshold_is_the_default(model: ProoD, tmp_path: Path) -> None:
    images = load("faces:test").floats([0])
    with torch.no_grad():
        confidence = model.confidence(images).item()
    bound = model.upper_bound(images, 0.05).item()
    assert confidence < bound
    between = (confidence + bound) / 2
    for name, threshold, said in (
        ("p", bound + 1e-6, "provably"),
        ("y", between, "yes"),
        ("n", confidence - 1e-6, "no"),
    ):
        path = tmp_path / name / "model.safetensors"
        save(model, path, classes=["a", "b", "c", "d"], threshold=threshold, tpr=0.95)
        assert Detector.load(path.parent).threshold == threshold
        (found,) = certify_images(path.parent, ["faces:test"], [0.05], limit=1, device=CPU)
        assert (found.rule.threshold, found.rejected) == (threshold, said)
        # One that is given wins.
        (found,) = certify_images(path.parent, ["faces:test"], [0.05], limit=1, device=CPU, threshold=0.0)
        assert (found.rule.threshold, found.rejected) == (0.0, "no")
        assert math.isnan(found.radius)


@pytest.mark.slow
def test_the_radius_is_at_least_what_the_certificates_prove(model: ProoD, tmp_path: Path) -> None:
    """The search for it ends just below the radius sought, which must not contradict 'provably'."""
    images, eps = load("faces:test").floats([0]), 0.0123456789
    threshold = math.nextafter(model.upper_bound(images, eps).item(), 1)
    assert model.certified_radius(images, threshold).item() < eps
    save(model, tmp_path / "model.safetensors", classes=["a", "b", "c", "d"])
    options = {"limit": 1, "device": CPU, "threshold": threshold, "batch": 1, "radius": True}
    (found,) = certify_images(tmp_path, ["faces:test"], [0.2, eps], **options)  # type: ignore[arg-type]
    assert found.rejected == "provably"
    assert found.radius == eps


def test_without_a_search_the_radius_is_one_of_those_asked_for(model: ProoD, tmp_path: Path) -> None:
    images = load("faces:test").floats([0])
    save(model, tmp_path / "model.safetensors", classes=["a", "b", "c", "d"])
    threshold = math.nextafter(model.upper_bound(images, 0.02).item(), 1)
    (found,) = certify_images(tmp_path, ["faces:test"], [0.01, 0.02, 0.3], limit=1, threshold=threshold)
    assert found.radius == 0.02
    assert not found.searched


@pytest.mark.parametrize(("norm", "largest"), [("linf", 1.0), ("l2", 28.0), ("l1", 784.0)])
def test_the_radius_is_searched_in_all_of_the_images_space(
    model: ProoD, tmp_path: Path, norm: Norm, largest: float
) -> None:
    save(model, tmp_path / "model.safetensors", classes=["a", "b", "c", "d"])
    always = 1.0  # which no confidence of this model reaches
    assert model.ceiling(4) < always
    options = {"limit": 1, "device": CPU, "threshold": always, "norm": norm, "radius": True}
    (found,) = certify_images(tmp_path, ["faces:test"], [0.01], **options)  # type: ignore[arg-type]
    assert found.radius == largest
    assert model.certified_radius(load("faces:test").floats([0]), always, norm=norm).item() == largest


def test_what_is_proven_stays_true_when_it_is_rounded() -> None:
    """No number printed as a bound is below the bound, no radius printed above the one that is proven."""
    rows = [
        row(0.3, {1 / 60: 0.748001, 0.3: 0.25000000001}, 0.9, 0.01789999),
        row(0.3, {1 / 60: 0.5, 0.3: 1.0}, 0.9, 0.3),
    ]
    words = "rejected; stays rejected for every change up to"
    assert [line[4:] for line in cells(rows)] == [
        ["0.7481", "0.2501", f"{words} 0.01789"],
        ["0.5000", "1.0000", f"{words} 0.3"],
    ]
    assert [column.header for column in show(rows).columns][4:6] == ["≤ within 0.01666 (linf)", "≤ within 0.3 (linf)"]


@pytest.mark.parametrize("bound", [-3e38, -1e-30, 3e38, math.inf])
def test_bounds_of_any_size_can_be_shown(bound: float) -> None:
    (line,) = cells([row(0.3, {0.1: bound}, 0.9, math.inf)])
    assert float(line[4]) >= bound
