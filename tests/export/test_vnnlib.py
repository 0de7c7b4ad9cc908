"""Instances for other verifiers: the network is g, the box holds the ball, and below the threshold is rejected."""

import csv
import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from prood.detector import Detector
from prood.errors import AlreadyThere, BadValue
from prood.export import VnnLib, export_vnnlib, open_session
from prood.export.alone import check_network, members_of, network_model
from prood.export.vnnlib import box, thresholds
from prood.models import discriminator

EPS = 0.05


@pytest.fixture(scope="session")
def bare() -> Detector:
    torch.manual_seed(0)
    return Detector(discriminator("digits", image=(1, 28, 28)), threshold=1.3)


@pytest.fixture(params=["detector", "odd", "gated", "committee", "bare"])
def any_detector(request) -> Detector:
    found = request.getfixturevalue(request.param)
    return found if found.threshold is not None else Detector(found.model, threshold=0.7, image=found.shape)


def images_for(detector: Detector, count: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, *detector.shape, generator=generator) ** torch.linspace(0.2, 4, count)[:, None, None, None]


def between(detector: Detector, found: np.ndarray) -> Detector:
    """The same detector with a threshold that half of these values do not reach."""
    low, high = np.sort(np.unique(found))[len(np.unique(found)) // 2 :][:2]
    return Detector(detector.model, threshold=(low + high) / 2, image=detector.shape)


def values(detector: Detector, images: torch.Tensor) -> np.ndarray:
    """Of each output of the file, by ONNX Runtime."""
    content = network_model(detector.discriminator, detector.shape, {}).SerializeToString()
    session = open_session(content)
    return np.concatenate([session.run(["Y"], {"X": image[None].numpy()})[0] for image in images])


@torch.no_grad()
def test_the_network_is_g(any_detector):
    g, images = any_detector.discriminator, images_for(any_detector)
    expected = np.stack([member.eval()(images).numpy() for member in members_of(g)], 1)
    assert np.allclose(values(any_detector, images), expected, rtol=1e-4, atol=1e-4)
    content = network_model(g, any_detector.shape, {}).SerializeToString()
    assert check_network(content, g, images[:3]) < 1e-4


def test_it_consists_of_stock_operators(committee):
    model = network_model(committee.discriminator, committee.shape, {})
    kinds = {node.op_type for node in model.graph.node}
    assert kinds <= {"Sub", "Div", "Conv", "AveragePool", "Relu", "Flatten", "Gemm", "Concat"}
    types = {one.data_type for one in model.graph.initializer}
    assert types == {onnx.TensorProto.FLOAT}


@torch.no_grad()
def test_exactly_what_lies_below_a_threshold_is_rejected_by_g_alone(any_detector):
    images = images_for(any_detector, 80)
    any_detector = between(any_detector, any_detector.upper_bound(images, 0.0, method="ibp"))
    taus = np.array(thresholds(any_detector))
    outputs = np.stack([member.covered(images).numpy() for member in members_of(any_detector.discriminator)], 1)
    below = (outputs < taus).any(1)
    assert below.any()
    assert not below.all()
    found = any_detector.predict(images)
    assert not found.accepted[below].any()
    if any_detector.count:
        assert np.array_equal(np.array(found.reason, dtype=object) == "discriminator", below)
    else:
        assert np.array_equal(~found.accepted, below)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.83, 0.99])
def test_a_threshold_is_the_smallest_number_that_is_not_rejected(threshold, gated, detector):
    for one in (Detector(gated.model, threshold=threshold), Detector(detector.model, threshold=threshold)):
        (tau,) = thresholds(one)
        assert abs(tau - one.stop) < 1e-4 * (1 + abs(tau))  # that is λ⁻¹ of its score, less Δ, and a little room
        before = np.nextafter(np.float32(tau), np.float32(-np.inf))
        for g, rejected in ((before, True), (np.float32(tau), False)):
            score = one.model.shifted(torch.tensor([g]))
            assert one.rule.rejects(one.rule.bound(score.double()).numpy())[0] == rejected


def test_a_threshold_that_no_g_decides_is_refused(detector, bare):
    with pytest.raises(BadValue, match="higher"):
        thresholds(Detector(detector.model, threshold=0.1))  # below 1/8
    with pytest.raises(BadValue, match="lower"):
        thresholds(Detector(bare.model, threshold=1e39))


@pytest.mark.parametrize("eps", [0.0, 1e-9, 0.1, 8 / 255, 2.0])
def test_the_box_holds_the_ball_and_hardly_more(eps):
    image = torch.rand(1, 5, 20, generator=torch.Generator().manual_seed(2))
    image[0, 0, :3] = torch.tensor([0.0, 1.0, 1e-30])
    low, high = box(image, eps)
    assert low.dtype == high.dtype == np.float32
    for x, least, most in zip(image.flatten().tolist(), low.ravel(), high.ravel(), strict=True):
        ends = max(Fraction(x) - Fraction(eps), Fraction(0)), min(Fraction(x) + Fraction(eps), Fraction(1))
        assert Fraction(float(least)) <= ends[0] <= ends[1] <= Fraction(float(most))
        inner = np.nextafter(np.nextafter(least, np.float32(1)), np.float32(1))
        outer = np.nextafter(np.nextafter(most, np.float32(0)), np.float32(0))
        assert Fraction(float(inner)) >= ends[0] or least == 1
        assert Fraction(float(outer)) <= ends[1] or most == 0


def read_back(text: str) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """The assertions as VNN-LIB 1.0 has them: lower and upper ends of X, and the least Y."""
    found: dict[str, dict[str, float]] = {">=X": {}, "<=X": {}, ">=Y": {}}
    for sign, name, number in re.findall(r"\(assert \((<=|>=) ([XY][\w\[\],]*) (-?[\d.]+)\)\)", text):
        found[sign + name[0]][name] = float(number)
    return found[">=X"], found["<=X"], found[">=Y"]


@pytest.mark.parametrize("version", ["2.0", "1.0"])
def test_an_instance_says_what_is_meant(committee, tmp_path, version):
    images = images_for(committee, 3)
    written = export_vnnlib(committee, images, tmp_path / "out", VnnLib(EPS, version=version, timeout=7))
    assert (written.instances, len(written.thresholds)) == (3, 2)
    with (tmp_path / "out" / "instances.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [(row[0], row[2]) for row in rows] == [("onnx/g.onnx", "7")] * 3
    for row, image in zip(rows, images, strict=True):
        low, high, least = read_back((tmp_path / "out" / row[1]).read_text())
        expected = box(image, EPS)
        assert np.array_equal(np.float32(list(low.values())), expected[0].ravel())
        assert np.array_equal(np.float32(list(high.values())), expected[1].ravel())
        assert tuple(least.values()) == written.thresholds
        assert list(low) == list(high)
    assert open_session(tmp_path / "out" / rows[0][0]).get_inputs()[0].shape == [1, 1, 28, 28]
    about = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (about["eps"], about["vnnlib"], about["thresholds"]) == (EPS, version, list(written.thresholds))
    assert [one["file"] for one in about["instances"]] == [row[1] for row in rows]


def test_the_package_vnnlib_reads_the_same(committee, odd, tmp_path):
    vnnlib = pytest.importorskip("vnnlib")
    compat = pytest.importorskip("vnnlib.compat")
    for number, one in enumerate((committee, Detector(odd.model, threshold=0.7, image=odd.shape))):
        images = images_for(one, 2)
        written = export_vnnlib(one, images, tmp_path / str(number), VnnLib(EPS))
        for place, image in enumerate(images):
            query = vnnlib.parse_query_file(str(tmp_path / str(number) / "vnnlib" / f"{place:05d}.vnnlib"))
            (network,) = query.networks
            assert network.inputs[0].shape == [1, *one.shape]
            assert network.outputs[0].shape == [1, len(written.thresholds)]
            (case,) = compat.transform(query)
            low, high = box(image, EPS)
            assert case.input_box == list(zip(low.ravel().tolist(), high.ravel().tolist(), strict=True))
            (polytope,) = case.output_constraints  # A·Y ≤ b
            assert np.array_equal(np.array(polytope.coeff_matrix), -np.eye(len(written.thresholds)))
            assert list(polytope.rhs) == [-tau for tau in written.thresholds]


def test_no_counterexample_is_found_where_rejection_is_proved(gated, tmp_path):
    images = images_for(gated, 60)
    gated = between(gated, gated.upper_bound(images, EPS))
    (tau,) = thresholds(gated)
    proof = gated.certify(images, eps=EPS)
    proved = images[torch.from_numpy(proof.rejected)]
    assert 0 < len(proved) < 60
    for image in proved[:6]:
        low, high = map(torch.from_numpy, box(image, EPS))
        point = image.clone()
        for _ in range(10):
            point.requires_grad_(True)
            (slope,) = torch.autograd.grad(gated.discriminator(point[None]).sum(), point)
            point = (point.detach() + 0.02 * slope.sign()).clamp(low, high)
        corners = torch.where(torch.rand(20, *image.shape) < 0.5, low, high)
        assert (values(gated, torch.cat([point[None], corners])) < tau).all()


def test_folders_are_replaced_whole_or_not_at_all(detector, tmp_path):
    images = images_for(detector, 2)
    export_vnnlib(detector, images, tmp_path / "out", VnnLib(EPS))
    with pytest.raises(AlreadyThere, match="overwrite"):
        export_vnnlib(detector, images, tmp_path / "out", VnnLib(EPS))
    export_vnnlib(detector, images[:1], tmp_path / "out", VnnLib(EPS, overwrite=True))
    assert len(list((tmp_path / "out" / "vnnlib").iterdir())) == 1
    (tmp_path / "mine").mkdir()
    with pytest.raises(AlreadyThere):  # which no export wrote
        export_vnnlib(detector, images, tmp_path / "mine", VnnLib(EPS, overwrite=True))
    with pytest.raises(BadValue, match="no images"):
        export_vnnlib(detector, images[:0], tmp_path / "none", VnnLib(EPS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]
    with pytest.raises(BadValue):
        VnnLib(EPS, version="3.0")
    with pytest.raises(BadValue):
        VnnLib(-1.0)


def test_texts_have_no_exponents_and_no_signed_zeros(detector, tmp_path):
    images = torch.full((1, 1, 28, 28), 1e-30)
    export_vnnlib(detector, images, tmp_path / "out", VnnLib(0.0))
    text = Path(tmp_path / "out" / "vnnlib" / "00000.vnnlib").read_text()
    assert not re.search(r"\d[eE][-+]?\d|-0\.0\)", text)
