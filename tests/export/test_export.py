"""The file in ONNX Runtime, however it optimises: torch's numbers, and a bound that no attack exceeds."""

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor

from prood.attacks import PGD
from prood.data import load, smooth_noise
from prood.detector import Detector
from prood.export import OUTPUTS, open_session, run
from prood.export.graph import in_order_of
from prood.export.translate import lost
from prood.models import fingerprint, score_of

pytestmark = pytest.mark.slow  # its files take seconds to export

LEVELS = ("disabled", "basic", "extended", "all")
FILES = {"detector": "file", "odd": "odd_file", "gated": "gated_file", "committee": "committee_file"}
opened = functools.cache(open_session)


@pytest.fixture(scope="module")
def sessions(file: Path) -> dict[str, Any]:
    return {level: opened(file, level) for level in LEVELS}


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Real digits, faces, smooth and uniform noise, and a black and a white image."""
    digits = load("digits:test")
    source = torch.Generator().manual_seed(0)
    parts = [
        digits.floats()[::50],
        load("faces", like=digits).floats()[:10],
        torch.rand(8, 1, 28, 28, generator=source),
    ]
    return torch.cat(
        [*parts, smooth_noise(8, (1, 28, 28), 0).floats(), torch.zeros(1, 1, 28, 28), torch.ones(1, 1, 28, 28)]
    )


@pytest.mark.parametrize("level", LEVELS)
def test_outside_the_range_the_guard_counts_and_nothing_is_proven(
    level: str, sessions: dict[str, Any], detector: Detector, images: Tensor
) -> None:
    beyond = 3 * images - 1
    got = run(sessions[level], beyond, 0.01)
    model = detector.model
    with torch.no_grad():
        said = model.in_logit(beyond).double().sigmoid().numpy()
        bare = (model.discriminator.with_far_penalty(0)(beyond) + model.shift).double().sigmoid().numpy()
    np.testing.assert_allclose(got["p_in"], said, atol=1e-6, rtol=0)
    assert (bare - said > 1e-3).any()
    outside = ((beyond < 0) | (beyond > 1)).flatten(1).any(1).numpy()
    assert outside.any()
    assert (got["upper_bound"][outside] == 1).all()


@pytest.mark.parametrize("level", LEVELS)
def test_the_runtime_agrees_with_torch(
    level: str, sessions: dict[str, Any], detector: Detector, images: Tensor
) -> None:
    said = detector.predict(images)
    with torch.no_grad():
        probabilities = detector.model.log_probabilities(images).exp().numpy()
    for eps in (0.0, 0.01, 0.1, 1.0):
        got = run(sessions[level], images, eps)
        assert [got[name].dtype for name in OUTPUTS] == [np.float32, np.float64, np.float64, np.float64]
        assert (got["probabilities"].argmax(1) == said.label).all()
        np.testing.assert_allclose(got["probabilities"], probabilities, atol=1e-5, rtol=0)
        np.testing.assert_allclose(got["probabilities"].sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(got["probabilities"].max(1), got["confidence"], atol=2e-7)
        np.testing.assert_allclose(got["p_in"], said.p_in, atol=1e-6, rtol=0)
        np.testing.assert_allclose(got["confidence"], said.confidence, atol=1e-5, rtol=0)
        bound = detector.model.upper_bound(images, float(np.float32(eps))).numpy()
        np.testing.assert_allclose(got["upper_bound"], bound, atol=1e-6, rtol=0)


def test_no_attack_exceeds_the_bound(sessions: dict[str, Any], detector: Detector, images: Tensor) -> None:
    attack, informative = PGD(steps=15, uniform=1, gaussian=0), 0
    for eps in (0.003, 0.03, 0.1):
        outcome = attack(score_of(detector.model), images, eps, goal=math.inf)
        bounds = np.min([run(session, images, eps)["upper_bound"] for session in sessions.values()], 0)
        assert (detector.predict(outcome.images).confidence <= bounds).all()
        for session in sessions.values():
            assert (run(session, outcome.images, 0.0)["confidence"] <= bounds).all()
        informative += int((bounds < detector.model.ceiling(8) - 1e-3).sum())
    assert informative > 20  # not the ceiling for all of them


@pytest.mark.parametrize("which", FILES)
def test_corners_of_the_ball_stay_below_the_bound(which: str, request: pytest.FixtureRequest) -> None:
    detector, session = request.getfixturevalue(which), opened(request.getfixturevalue(FILES[which]), "all")
    torch.manual_seed(0)
    images = torch.rand(5, *detector.shape)
    for eps in (0.0, 1e-6, 0.02):
        bound = run(session, images, eps)["upper_bound"]
        near = detector.model.upper_bound(images, float(np.float32(eps))).numpy()
        np.testing.assert_allclose(bound, near, atol=1e-6, rtol=0)
        for _ in range(20):
            moved = (images + eps * torch.randint(-1, 2, images.shape)).clamp(0, 1)
            assert (run(session, moved, 0.0)["confidence"] <= bound).all()
            assert (detector.predict(moved).confidence <= bound).all()


def test_the_class_stays_on_top_far_from_the_data() -> None:
    """Where p(in) is nothing, all probabilities are 1/K in float32."""
    torch.manual_seed(0)
    logits = torch.randn(500, 7, dtype=torch.float64)
    exact = torch.softmax(logits, 1) * 1e-30 + 1 / 7
    values = in_order_of(logits, exact)
    assert (exact.float().argmax(1) == 0).all()
    assert (values.argmax(1) == logits.argmax(1)).all()
    assert (values.topk(2).values.diff() < 0).all()
    assert (values - exact).abs().max() < 1e-7
    assert torch.equal(in_order_of(logits, torch.softmax(logits, 1)), torch.softmax(logits, 1).float())


def test_rows_do_not_depend_on_their_batch(sessions: dict[str, Any], images: Tensor) -> None:
    whole = run(sessions["all"], images[:7], 0.05)
    for n in range(7):
        one = run(sessions["all"], images[n : n + 1], 0.05)
        for name in OUTPUTS:
            assert one[name].shape[0] == 1
            np.testing.assert_allclose(one[name][0], whole[name][n], rtol=1e-6)


@pytest.mark.parametrize("level", ["disabled", "all"])
@pytest.mark.parametrize("eps", [-0.1, -1e-30, math.nan, -math.inf])
def test_a_radius_that_is_none_proves_nothing(level: str, eps: float, sessions: dict[str, Any], images: Tensor) -> None:
    got = run(sessions[level], images[:3], eps)
    assert (got["upper_bound"] == 1).all()
    np.testing.assert_array_equal(got["confidence"], run(sessions[level], images[:3], 0.0)["confidence"])


@pytest.mark.parametrize("eps", [1.0, 1e30, math.inf])
def test_huge_radii_give_the_bound_of_all_images(
    eps: float, sessions: dict[str, Any], detector: Detector, images: Tensor
):
    bound = run(sessions["all"], images[:3], eps)["upper_bound"]
    assert (bound <= detector.model.ceiling(8) * (1 + 1e-11)).all()
    assert (bound >= detector.model.ceiling(8)).all()


@pytest.mark.parametrize("level", ["disabled", "all"])
@pytest.mark.parametrize("pixel", [-1e-6, 1 + 1e-6, math.nan, math.inf])
def test_pixels_out_of_range_prove_nothing(level: str, pixel: float, sessions: dict[str, Any], images: Tensor) -> None:
    good, bad = images[[0, 20, 30]], images[[0, 20, 30]].clone()
    bad[1, 0, 3, 4] = pixel
    bound = run(sessions[level], bad, 0.01)["upper_bound"]
    assert bound[1] == 1
    np.testing.assert_array_equal(bound[[0, 2]], run(sessions[level], good, 0.01)["upper_bound"][[0, 2]])


@pytest.mark.parametrize("level", ["disabled", "all"])
def test_sums_in_float32_are_covered_too(level: str, odd: Detector, odd_file: Path) -> None:
    """Torch adds Δ in float32. Where the bound is the ceiling, and the network reaches it, nothing is left to spare."""
    bias, shift = odd.model.discriminator.last.bias, odd.model.shift
    assert (bias + shift).double() > bias.double() + shift.double()
    bound = run(opened(odd_file, level), torch.rand(4, *odd.shape), 1.0)["upper_bound"]
    assert (bound >= odd.model.ceiling(3)).all()


def test_only_what_is_asked_for_is_computed(sessions: dict[str, Any], images: Tensor) -> None:
    options = onnxruntime.RunOptions()
    options.only_execute_path_to_fetches = True
    feed = {"images": images.numpy(), "eps": np.array(0.1, np.float32)}
    (alone,) = sessions["all"].run(["confidence"], feed, options)
    np.testing.assert_array_equal(alone, run(sessions["all"], images, 0.1)["confidence"])


def test_what_the_file_says(file: Path, detector: Detector) -> None:
    model = onnx.load(file)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["classes"]) == [f"digit {n}" for n in range(8)]
    assert json.loads(facts["image"]) == [1, 28, 28]
    assert float(facts["shift"]) == 1.5
    assert float(facts["threshold"]) == 0.5
    assert facts["weights"] == fingerprint(detector.model)
    assert "sha256" not in facts  # it came from no file
    assert model.producer_name == "prood"
    assert model.producer_version == facts["version"]
    session = opened(file, "all")
    assert [(entry.name, entry.type, entry.shape) for entry in session.get_inputs()] == [
        ("images", "tensor(float)", ["N", 1, 28, 28]),
        ("eps", "tensor(float)", []),
    ]
    assert [(entry.name, entry.type, entry.shape) for entry in session.get_outputs()] == [
        ("probabilities", "tensor(float)", ["N", 8]),
        *((name, "tensor(double)", ["N"]) for name in OUTPUTS[1:]),
    ]
    assert all(entry.doc_string for entry in (*model.graph.input, *model.graph.output))
    assert model.opset_import[0].version == 20


def test_every_weight_is_there_once(file: Path, detector: Detector) -> None:
    weights = 4 * sum(parameter.numel() for parameter in detector.model.parameters())
    assert file.stat().st_size < weights + 500_000
    wide = [entry for entry in onnx.load(file).graph.initializer if entry.data_type == onnx.TensorProto.DOUBLE]
    assert max(math.prod(entry.dims) for entry in wide) <= 64


def optimised(path: Path, folder: Path, **options: Any) -> onnx.ModelProto:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"], **options)
    return onnx.load(folder / "optimised.onnx")


@pytest.mark.parametrize("which", FILES.values())
def test_the_runtime_removes_nothing_that_rounds_outwards(which: str, tmp_path: Path, request: Any) -> None:
    """With all constants folded, but none removed: there is no product or sum that looks like none in float32."""
    path = request.getfixturevalue(which)
    model = optimised(path, tmp_path, disabled_optimizers=["NoopElimination"])
    constants = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
    met = [(node.op_type, constants[name]) for node in model.graph.node for name in node.input if name in constants]
    assert not [(op, constant) for op, constant in met if lost(op, constant)]
    kept, whole = (
        sum(node.op_type in ("Mul", "Add", "Sub", "Div") for node in one.graph.node)
        for one in (optimised(path, tmp_path), model)
    )
    nothing = {"Mul": 1, "Div": 1, "Add": 0, "Sub": 0}
    idle = sum(op in nothing and constant.size == 1 and constant.item() == nothing[op] for op, constant in met)
    assert whole - kept <= idle


@pytest.mark.parametrize("which", FILES.values())
def test_fused_products_keep_their_scale_and_their_blocks(which: str, tmp_path: Path, request: Any) -> None:
    model = optimised(request.getfixturevalue(which), tmp_path)
    fused = [node for node in model.graph.node if node.op_type in ("FusedMatMul", "FusedGemm", "Gemm")]
    scales = [entry.f for node in fused for entry in node.attribute if entry.name in ("alpha", "beta")]
    assert scales
    assert all(scale == 1 for scale in scales)
    assert not [node for node in model.graph.node if node.op_type == "BatchNormalization"]
