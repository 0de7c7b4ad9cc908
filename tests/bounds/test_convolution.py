"""Convolutions as products of matrices: the same linear maps as torch's, and the same certificates."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import Box, Budget, Method, NegativeLinear, Normalise, convolution, strict, upper_bound
from prood.bounds.arithmetic import searching
from prood.bounds.certificate import _bound
from prood.bounds.convolution import convolve, convolve_transposed, own_functions, plain_sums

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace convolutions here as on a GPU."""
    monkeypatch.setattr(convolution, "DEVICES", frozenset({"cpu"}))


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that were replaced, as they are called."""
    called: list[str] = []

    def watch(name: str) -> Any:
        original = getattr(convolution, name)

        def function(*arguments: Any) -> Any:
            called.append(name)
            return original(*arguments)

        return function

    for name in ("convolve", "convolve_transposed", "columns"):
        monkeypatch.setattr(convolution, name, watch(name))
    return called


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor | None, tuple[int, int], tuple[int, int]]:
    torch.manual_seed(draw(st.integers(0, 2**20)))
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, stride = draw(pair), draw(pair)
    padding = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))  # also wider than the kernel
    sides = draw(st.tuples(st.integers(3, 9), st.integers(3, 9)))  # also ones that the stride does not divide
    count, channels, width = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = torch.randn(count, channels, *sides, dtype=torch.float64)
    if draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(width, channels, *kernel, dtype=torch.float64)
    bias = torch.randn(width, dtype=torch.float64) if draw(st.booleans()) else None
    return x, weight, bias, stride, padding


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from([1, 100, 1 << 27]))
def test_both_directions_are_those_of_torch(case: tuple[Any, ...], largest: int) -> None:
    x, weight, bias, stride, padding = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "LARGEST", largest)  # image by image, a few at a time, all at once
        result = convolve(x, weight, bias, stride, padding)
        expected = F.conv2d(x, weight, bias, stride, padding)
        assert result.is_contiguous()
        torch.testing.assert_close(result, expected, **CLOSE)

        slope = torch.randn_like(expected)
        missing = tuple((x.shape[2 + i] + 2 * padding[i] - weight.shape[2 + i]) % stride[i] for i in range(2))
        back = convolve_transposed(slope, weight, None, stride, padding, missing)
    torch.testing.assert_close(back, F.conv_transpose2d(slope, weight, None, stride, padding, missing), **CLOSE)
    # ⟨Wx, s⟩ = ⟨x, Wᵀs⟩
    linear = expected if bias is None else expected - bias[:, None, None]
    torch.testing.assert_close((linear * slope).sum(), (x * back).sum(), rtol=1e-12, atol=1e-10)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_columns_are_those_of_unfold(case: tuple[Any, ...]) -> None:
    x, weight, _, stride, padding = case
    kernel = tuple(weight.shape[2:])
    assert torch.equal(convolution.columns(x, kernel, stride, padding), F.unfold(x, kernel, 1, padding, stride))


def test_an_input_that_no_window_reaches_gets_zero() -> None:
    slope, weight = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1)
    back = convolve_transposed(slope, weight, None, (3, 3), (0, 0), (2, 1))
    assert back.shape == (1, 1, 6, 5)
    assert back.sum() == 4
    assert not back[:, :, 4:].any()


def same_gradients(ours: Tensor, theirs: Tensor, *variables: Tensor) -> None:
    pull = torch.randn_like(theirs)
    one, other = (torch.autograd.grad(result, variables, pull, retain_graph=True) for result in (ours, theirs))
    torch.testing.assert_close(one, other, **CLOSE)


def test_gradients_are_those_of_torch() -> None:
    torch.manual_seed(0)
    x, y, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((3, 2, 7, 6), (3, 4, 4, 6), (4, 2, 3, 3), (4,))
    )
    forwards = convolve(x, weight, bias, (2, 1), (1, 1))
    same_gradients(forwards, F.conv2d(x, weight, bias, (2, 1), 1), x, weight, bias)
    backwards = convolve_transposed(y, weight, None, (2, 1), (1, 1), (0, 0))
    same_gradients(backwards, F.conv_transpose2d(y, weight, None, (2, 1), (1, 1)), y, weight)


def test_nothing_is_replaced_on_a_cpu(replaced: list[str]) -> None:
    assert {"cuda"} == convolution.DEVICES
    with strict(CPU):
        nn.Conv2d(1, 1, 3)(torch.rand(1, 1, 5, 5))
    assert not replaced


def test_modules_are_replaced_inside_strict_only(on_the_cpu: None, replaced: list[str]) -> None:
    layer, x = nn.Conv2d(2, 3, 3, stride=2, padding=1), torch.rand(2, 2, 7, 7)
    with strict(CPU):
        inside = layer(x)
        assert replaced == ["convolve", "columns"]
        with own_functions():
            layer(x)
    layer(x)
    with strict(CPU, transforms=True):
        layer(x)
    assert replaced == ["convolve", "columns"]
    torch.testing.assert_close(inside, layer(x))


def test_tensors_elsewhere_are_left_alone(replaced: list[str]) -> None:
    with strict(torch.device("cuda")):  # only its settings need no GPU
        assert not torch.backends.cudnn.enabled
        nn.Conv2d(1, 1, 3)(torch.rand(1, 1, 5, 5))
    assert torch.backends.cudnn.enabled
    assert not replaced


def test_a_search_on_a_gpu_uses_torch_s_own(on_the_cpu: None, replaced: list[str]) -> None:
    layer, x = nn.Conv2d(1, 1, 3), torch.rand(1, 1, 5, 5)
    with strict(torch.device("cuda")), strict(CPU):
        with searching(torch.device("cuda")):
            assert torch.backends.cudnn.enabled
            layer(x)
        assert not torch.backends.cudnn.enabled
        assert not replaced
        with searching(CPU):
            layer(x)
    assert replaced


REST = {
    "groups": nn.Conv2d(2, 2, 3, groups=2),
    "dilation": nn.Conv2d(2, 2, 3, dilation=2),
    "same": nn.Conv2d(2, 2, 3, padding="same"),
}


@pytest.mark.parametrize("name", REST)
def test_the_rest_is_left_to_torch(name: str, on_the_cpu: None, replaced: list[str]) -> None:
    layer, x = REST[name], torch.rand(1, 2, 6, 6)
    with strict(CPU):
        assert torch.equal(layer(x), layer(x))
        layer(x[0])  # a single image
        layer(x[:0])
    assert not replaced


def test_what_torch_refuses_stays_refused(on_the_cpu: None) -> None:
    with plain_sums(CPU):
        with pytest.raises(RuntimeError):
            F.conv2d(torch.rand(1, 1, 2, 2), torch.rand(1, 1, 3, 3))
        with pytest.raises(RuntimeError):
            F.conv2d(torch.rand(1, 2, 4, 4), torch.rand(1, 1, 3, 3))
        with pytest.raises(RuntimeError):
            F.conv2d(torch.rand(1, 1, 4, 4), torch.rand(1, 1, 3, 3).double())
        with pytest.raises(RuntimeError):
            F.conv_transpose2d(torch.rand(1, 1, 4, 4), torch.rand(1, 1, 3, 3), stride=2, output_padding=2)


def network(seed: int, **options: Any) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(seed)
    net = nn.Sequential(
        Normalise([0.4, 0.5], [0.3, 0.2]),
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3, stride=2, padding=1, **options),
        nn.ReLU(),
        nn.Conv2d(5, 4, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 4, 6),
        nn.ReLU(),
        NegativeLinear(6),
    )
    return net.eval(), torch.rand(5, 2, 8, 8)


METHODS: list[Method] = ["ibp", "crown-ibp", "best", "alpha-crown", "crown", "bab"]
BUDGET = Budget(steps=5, unit_steps=2, splits=8, split_steps=2, seconds=30, batch=8)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_bounds_agree_and_hold(
    method: Method, norm: Any, mode: str, monkeypatch: pytest.MonkeyPatch, replaced: list[str]
) -> None:
    net, x = network(7, padding_mode=mode)
    eps = 0.02 if norm == "linf" else 0.2
    before = upper_bound(net, x, eps, method=method, norm=norm, budget=BUDGET)
    assert not replaced
    monkeypatch.setattr(convolution, "DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr(convolution, "LARGEST", 3000)  # in pieces
    after = upper_bound(net, x, eps, method=method, norm=norm, budget=BUDGET)
    assert "convolve" in replaced
    assert (method == "ibp") != ("convolve_transposed" in replaced)
    # Searches may go other ways, by a rounding; intervals are those of float32.
    close = {"ibp": 1e-5, "alpha-crown": 1e-4, "crown": 1e-4, "bab": 1e-2}.get(method, 1e-6)
    torch.testing.assert_close(after, before, rtol=close, atol=close)
    for _ in range(50):
        step = (torch.rand_like(x) * 2 - 1).sign() * eps
        step = step if norm == "linf" else step * (1 - 1e-6) / x[0].numel() ** 0.5
        with torch.no_grad(), strict(CPU):
            assert (net((x + step).clamp(0, 1))[:, 0] <= after).all()


def test_linear_bounds_agree_to_the_last_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, before they are rounded to float32."""
    net, x = network(3)
    box = Box.sound_ball(x, 0.01).double()
    with torch.no_grad():
        before = _bound(net.double(), box, "best", BUDGET)
        monkeypatch.setattr(convolution, "DEVICES", frozenset({"cpu"}))
        with plain_sums(CPU):
            after = _bound(net, box, "best", BUDGET)
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)
