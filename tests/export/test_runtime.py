"""What the proof assumes of the runtime on this machine: plain sums, and functions that are good to many digits."""

import numpy as np
import onnxruntime
import pytest
import torch
from flint import arb, ctx
from onnx import TensorProto, helper, numpy_helper

from prood.export.graph import ROOM, sigmoid


def session(nodes, inputs, output, constants=()):
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info("y", output, ["a", "b", "c", "d"][: len(inputs[0][2])])],
        [numpy_helper.from_array(value, name) for name, value in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("channels", [(1, 16), (16, 64), (64, 64)])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_are_plain_sums(channels, stride):
    """A transform mixes neighbouring windows: a huge pixel would leave its rounding in outputs that do not see it."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((channels[1], channels[0], 3, 3), dtype=np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride, stride], pads=[1, 1, 1, 1])
    run = session([node], [("x", TensorProto.FLOAT, ["N", channels[0], 16, 16])], TensorProto.FLOAT, [("w", weight)])
    x = rng.standard_normal((2, channels[0], 16, 16), dtype=np.float32)
    moved = x.copy()
    moved[:, :, 7, 7] = 1e30
    (before,), (after,) = run.run(None, {"x": x}), run.run(None, {"x": moved})
    seen = np.zeros(before.shape[2:], dtype=bool)
    seen[
        (7 - 1 + stride - 1) // stride : (7 + 1) // stride + 1, (7 - 1 + stride - 1) // stride : (7 + 1) // stride + 1
    ] = True
    np.testing.assert_array_equal(before[:, :, ~seen], after[:, :, ~seen])
    assert (np.abs(after[:, :, seen]) > 1e20).mean() > 0.9


def test_exponentials_leave_most_of_the_room():
    ctx.prec = 120
    points = np.concatenate([np.linspace(-700, 0, 1401), np.linspace(-3, 0, 601), [-1e-300, -1e-16]])
    run = session([helper.make_node("Exp", ["x"], ["y"])], [("x", TensorProto.DOUBLE, ["N", 1])], TensorProto.DOUBLE)
    (values,) = run.run(None, {"x": points[:, None]})
    for x, value in zip(points.tolist(), values[:, 0].tolist(), strict=True):
        exact = arb(x).exp()
        assert abs(arb(value) - exact) <= exact * ROOM / 1024, x


def test_our_sigmoid_keeps_all_digits():
    ctx.prec = 120
    points = torch.cat([torch.linspace(-740, 740, 1481), torch.linspace(-3, 3, 601)]).double()
    for x, value in zip(points.tolist(), sigmoid(points).tolist(), strict=True):
        exact = 1 / (1 + (-arb(x)).exp())
        assert abs(arb(value) - exact) <= exact * 2.0**-50 + arb(2) ** -1073, x
    assert sigmoid(torch.tensor([-torch.inf, torch.inf])).tolist() == [0, 1]
    assert sigmoid(torch.tensor(torch.nan)).isnan()


def test_probabilities_of_the_classifier_are_no_larger_than_one():
    rng = np.random.default_rng(0)
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    run = session([node], [("x", TensorProto.DOUBLE, ["N", "K"])], TensorProto.DOUBLE)
    for scale in (1, 30, 1000):
        (values,) = run.run(None, {"x": scale * rng.standard_normal((200, 100))})
        assert (values <= 1 + ROOM / 1024).all()
        np.testing.assert_allclose(values.sum(1), 1, rtol=ROOM / 64)
