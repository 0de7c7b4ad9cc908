"""Every operator of the table, in ONNX Runtime and in torch: the same numbers, to the last digit."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.errors import Unsupported
from prood.export.operators import TABLE
from prood.export.translate import trace, translate

GRAINS = 1 + 2.0**-50
KINDS = {torch.float64: 11, torch.float32: 1}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.arange(12, dtype=torch.float64).reshape(3, 4) / 7)

    def forward(self, x: Tensor, y: Tensor) -> list[Tensor]:
        return [self.function(x, y, self.weight)]


def in_place(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    fits = x > 0
    alias = fits
    fits &= y > 0
    return (alias & (x < 1)).double()


FUNCTIONS = {
    "grains": lambda x, y, w: (-x * GRAINS + x) * 2.0**60 + -((x + GRAINS) * (1 - 2.0**-53)),
    "arithmetic": lambda x, y, w: (x + y) * (x - y) / (2 - x) + 1 / (y * y + 1) - abs(-x),
    "extremes": lambda x, y, w: torch.maximum(x, y) + torch.minimum(x, 2 * y) + x.relu() + y.clamp(min=0.1),
    "clamps": lambda x, y, w: x.clamp(-0.5, 0.5) + y.clamp(max=0.3) + torch.clamp_min(x, 0.2),
    "between": lambda x, y, w: torch.lerp(x, y, 0.5),
    "comparisons": lambda x, y, w: (
        (x > y).double() + 2 * (x < 0.1).double() + 4 * (x >= y).double() + 8 * (y <= 0).double()
        + 16 * (x == x.relu()).double() + 32 * (y != 0).double() + 64 * (y == 0).double() + 128 * (x >= 0).double()
        + 256 * (x < y).double() + 512 * (x <= y).double() + 1024 * (x != y.relu()).double()
    ),
    "choices": lambda x, y, w: torch.where(x > 0, x, y) + torch.where(x > 0, 1.0, y) + torch.where(x > 0, x, 3),
    "numbers": lambda x, y, w: torch.where(x > 0, 0.5, 1.0).to(x.dtype) * y,
    "truth": lambda x, y, w: torch.where(x > 0, y > 0, y < -1).double() + (~(x > 0) | (y > 0)).double(),
    "in place": in_place,
    "no numbers": lambda x, y, w: torch.where(x > 0, x, torch.nan).isnan().double(),
    "sums": lambda x, y, w: x.sum(1, keepdim=True) + y.flatten(1).sum(1)[:, None] + (x > 0).sum(-1, keepdim=True),
    "means": lambda x, y, w: x.reshape(-1, 2, 2).mean((1, 2)),
    "largest": lambda x, y, w: x.amax(1) + y.amax(1, keepdim=True)[:, 0] + w.amax(),
    "all and any": lambda x, y, w: (x > -1).all(1).double() + 2 * (y > 1).any(1).double() + (w > 1).any().double(),
    "scalars": lambda x, y, w: x * torch.as_tensor(3.0, dtype=torch.float64).amax() + torch.as_tensor(2).double(),
    "shapes": lambda x, y, w: torch.unflatten(x, 1, (2, 2)).transpose(1, 2).flatten(1)[:, None].squeeze(1),
    "permuted": lambda x, y, w: x.reshape(-1, 2, 2).permute(2, 0, 1)[1] + y[:, :2],
    "slices": lambda x, y, w: x[:, 1::2] + y[:, :2] + x[:, -2:] + w[0, 1:3],
    "selected": lambda x, y, w: x[:, 2] + w.T[1, 0] + torch.cat([x, y]).unflatten(0, (2, -1)).unbind(0)[1][:, 0],
    "padded": lambda x, y, w: F.pad(x.reshape(-1, 1, 2, 2), (1, 2, 0, 1)).flatten(1),
    "padded with ones": lambda x, y, w: F.pad(x[:, :2], (1, 1), value=1.5),
    "looked up": lambda x, y, w: w[0][(x > 0)[:, 1:].sum(1)][:, None] * y + w[:, 0][(y > 0).sum(1).clamp(max=2), None],
    "joined": lambda x, y, w: torch.stack([x, y, 2 * x], 2).flatten(1) + torch.cat([x, y, x], 1),
    "expanded": lambda x, y, w: x[:, :, None].expand(-1, -1, 3).flatten(1),
    "filled": lambda x, y, w: torch.ones_like(x) + torch.zeros_like(y) + x.new_full((4,), 2.5) + x.new_ones(()),
    "products": lambda x, y, w: x @ w.T + F.linear(y, w, w[:, 0]) + F.linear(x, w),
    "batches": lambda x, y, w: torch.bmm(x.reshape(-1, 2, 2), y.reshape(-1, 2, 2)).flatten(1),
    "powers": lambda x, y, w: torch.exp(x).float(),
    "classes": lambda x, y, w: torch.softmax(x, 1).float() + (torch.arange(4) == y.argmax(1, keepdim=True)),
    "convolved": lambda x, y, w: F.conv2d(
        x.float().reshape(-1, 1, 2, 2), w[:2, :2].float().reshape(2, 1, 2, 1), w[0, :2].float(), (1, 1), (1, 0), (1, 2)
    ).flatten(1),
    "pooled": lambda x, y, w: F.avg_pool2d(x.float().reshape(-1, 1, 2, 2), 2).flatten(1),
}  # fmt: skip


def batch(n: int) -> tuple[Tensor, Tensor]:
    """Quarters and zeros among them, for ties."""
    source = torch.Generator().manual_seed(n)
    x, y = torch.randn(2, n, 4, generator=source, dtype=torch.float64)
    return torch.where(x.abs() < 0.5, 0, x), torch.where(y > 0, y, (4 * y).round() / 4)


def written(function) -> bytes:
    from onnx import checker, helper

    module = Function(function)
    traces = [trace(module, *batch(n)) for n in (3, 5)]
    writer = translate(traces, TABLE, ["x", "y"], ["z"])
    shape = {"elem_type": 11, "shape": ["N", 4]}
    (result,) = module(*batch(3))
    graph = helper.make_graph(
        writer.nodes,
        "test",
        [helper.make_tensor_value_info(name, **shape) for name in ("x", "y")],
        [helper.make_tensor_value_info("z", KINDS[result.dtype], [f"size {n}" for n in range(result.ndim)])],
        list(writer.initializers.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    checker.check_model(model)
    return model.SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operator_means_the_same(name):
    import onnxruntime

    session = onnxruntime.InferenceSession(written(FUNCTIONS[name]), providers=["CPUExecutionProvider"])
    for n in (1, 4, 9):
        x, y = batch(n)
        with torch.no_grad():
            (expected,) = Function(FUNCTIONS[name])(x, y)
        (got,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
        assert got.dtype == expected.numpy().dtype
        tolerance = (
            1e-15
            if name in ("products", "batches", "sums", "means", "between")
            else 1e-7
            if expected.dtype == torch.float32
            else 0
        )
        np.testing.assert_allclose(got, expected.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_every_operator_of_the_table_is_among_them():
    used = {str(node.target) for f in FUNCTIONS.values() for node in trace(Function(f), *batch(3)).graph.nodes}
    assert set(TABLE) - used <= {"aten.alias.default", "aten.to.device"}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x, y, w: torch.erf(x), "the operator aten.erf.default, which the export does not know"),
        (lambda x, y, w: x * len(x), "depends on the number of images"),
        (lambda x, y, w: x[: len(x) - 1], "depends on the number of images"),
        (lambda x, y, w: sum(x), "depends on the number of images"),
        (lambda x, y, w: x[:1].expand(len(x), 4) * 2, "grows with the number of images"),
        (lambda x, y, w: (x @ y.T).flatten(1)[:, None], "two sizes"),
        (lambda x, y, w: torch.add(x, y, alpha=2), "with {'alpha': 2}"),
        (lambda x, y, w: torch.div(x, y, rounding_mode="floor"), "the operator aten.div.Tensor_mode"),
        (lambda x, y, w: ((x > 0).long() > 0.5).double(), "would be cut"),
        (lambda x, y, w: x.unbind(1)[0], "along axis"),
        (lambda x, y, w: F.pad(x[:, None], (1, 1), mode="reflect"), "reflect"),
        (lambda x, y, w: x[:, (y > 0).sum(1).clamp(max=2)], "aten.index.Tensor"),
        (lambda x, y, w: x / GRAINS, "a runtime may drop Div"),
        (lambda x, y, w: x + 1e-60, "a runtime may drop Add"),
        (lambda x, y, w: x - 1e-60, "a runtime may drop Sub"),
    ],
)
def test_what_cannot_be_translated_is_refused(function, said):
    with pytest.raises(Unsupported, match=said):
        written(function)
