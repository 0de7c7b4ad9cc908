"""No value that float32 hardware of any kind returns in the ball exceeds the bound.

A case is a network, an image and an ε, with many points and many kinds of hardware (simulator.py). A few hundred run
here; PROOD_CASES=10000 runs more.
"""

import os
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from prood.bounds import BlockedLinear, NegativeLinear, Normalise, Residual, UnsupportedLayer, upper_bound
from prood.bounds.registry import NoLinearRule

CASES = int(os.environ.get("PROOD_CASES", "240"))
IMAGES = 6  # a network
EPS = np.array([0.0, 2.0**-24, 1e-6, 0.01, 0.3, 2.0])
METHODS = ("ibp", "crown-ibp", "best")
TIGHTER = ("alpha-crown", "crown")
SHAPE = (2, 4, 4)
Generator = np.random.Generator


def fill(layer: nn.Module, rng: Generator) -> None:
    """Weights that are meant to hurt."""
    kind = rng.choice(["normal", "normal", "wild", "powers", "cancelling", "subnormal", "sparse", "tiny", "large"])
    for name, values in layer.named_parameters():
        shape = tuple(values.shape)
        new = rng.normal(size=shape) / np.sqrt(max(1, values[0].numel()))
        sign = rng.choice([-1.0, 1.0], shape)
        if isinstance(layer, NegativeLinear):
            new = new * rng.choice([1, 1, 10, 60]) if name != "bias" else new
        elif kind == "wild":
            new = sign * 10.0 ** rng.uniform(-20, 20, shape)
        elif kind == "powers":
            new = sign * 2.0 ** rng.integers(-12, 12, shape)
        elif kind == "cancelling":
            if name == "bias":
                new = sign * rng.choice([1.0, 1e4, 1e8, 1e20])
            else:
                rows = new.reshape(len(new), -1)
                rows[:, 1::2] = -rows[:, : rows.shape[1] // 2 * 2 : 2]
                rows *= rng.choice([1.0, 1e4, 1e8, 1e20], (1, 1))
        elif kind == "subnormal":
            new = np.where(rng.random(shape) < 0.5, new * 1e-38, new * 1e-42 if rng.random() < 0.5 else new)
        elif kind == "sparse":
            new = np.where(rng.random(shape) < 0.5, 0.0, new)
        elif kind == "tiny":
            new = new * 10.0 ** rng.uniform(-40, -1)
        elif kind == "large":
            new = new * 10.0 ** rng.uniform(0, 8)
        if name == "bias" and rng.random() < 0.2:
            new = rng.choice([0.0, 1e-40, -1e-40, 1e8, -1e8], shape)
        with torch.no_grad():
            values.copy_(torch.from_numpy(np.asarray(new, np.float32)))


def network(rng: Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    shape: tuple[int, ...] = SHAPE

    def add(*new: nn.Module) -> None:
        nonlocal shape
        for layer in new:
            for part in layer.modules():
                if not list(part.children()):
                    fill(part, rng)
            layers.append(layer.eval())
            with torch.no_grad():
                shape = tuple(layer(torch.zeros(1, *shape)).shape[1:])

    def activation() -> nn.Module:
        return nn.LeakyReLU(float(rng.choice([0.01, 0.3, 0.5]))) if rng.random() < 0.1 else nn.ReLU()

    def norm() -> nn.Module:
        mean = rng.normal(size=shape[0]) * rng.choice([0.0, 0.3, 10.0, 1e4])
        if rng.random() < 0.5:
            return Normalise(mean.tolist(), np.exp(rng.normal(size=shape[0])).tolist())
        layer = nn.BatchNorm2d(shape[0], affine=bool(rng.random() < 0.7))
        layer.running_mean.copy_(torch.from_numpy(mean))
        layer.running_var.copy_(torch.from_numpy(10 ** rng.uniform(-6, 3, shape[0])))
        return layer

    def convolution(width: int) -> nn.Conv2d:
        groups = 2 if shape[0] == 2 and width % 2 == 0 and rng.random() < 0.3 else 1
        mode = "circular" if rng.random() < 0.2 and min(shape[1:]) > 1 else "zeros"
        kernel, stride, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.choice([1, 1, 2]))
        padding = max(1, dilation * (kernel - 1) // 2)
        bias = bool(rng.random() < 0.8)
        return nn.Conv2d(
            shape[0], width, kernel, stride, padding, dilation, groups=groups, padding_mode=mode, bias=bias
        )

    if rng.random() < 0.5:
        add(norm())
    while rng.random() < 0.3 and min(shape[1:]) > 1:  # averages in front, perhaps several in a row
        add(nn.AvgPool2d(int(rng.integers(2, min(shape[1:]) + 1))))
    for _ in range(rng.integers(0, 3)):
        what = rng.choice(["conv", "conv", "norm", "residual", "average", "max"])
        if what == "conv":
            add(convolution(int(rng.integers(1, 4))), activation())
        elif what == "norm":
            add(norm(), activation())
        elif what == "residual":
            body = nn.Sequential(nn.Conv2d(shape[0], 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, shape[0], 1))
            add(Residual(body), activation())
        elif what == "average" and min(shape[1:]) > 1:
            padding, include = int(rng.integers(0, 2)), bool(rng.random() < 0.5)
            divisor = 3 if rng.random() < 0.2 else None
            add(nn.AvgPool2d(2, int(rng.integers(1, 3)), padding, False, include, divisor))
        elif what == "max" and min(shape[1:]) > 1 and rng.random() < 0.4:
            add(nn.MaxPool2d(2))
    add(nn.Flatten())
    for _ in range(rng.integers(0, 3)):
        kind = BlockedLinear if rng.random() < 0.5 else nn.Linear
        add(kind(shape[0], int(rng.integers(1, 6)), bias=bool(rng.random() < 0.8)))
        if rng.random() < 0.9:
            add(activation())
    if rng.random() < 0.6:
        if rng.random() < 0.8:
            add(nn.ReLU())
        add(NegativeLinear(shape[0], bias=float(rng.choice([3.0, 0.0, -1e-40, 1e8]))))
    else:
        add(nn.Linear(shape[0], 1))
    return nn.Sequential(*layers).eval()


def pictures(rng: Generator) -> Tensor:
    images = rng.random((IMAGES, *SHAPE))
    special = rng.choice([0.0, 1.0, 1e-40, 2.0**-149, 2.0**-126, 2.0**-24, 0.01, 1 - 2.0**-24], images.shape)
    images = np.where(rng.random(images.shape) < rng.choice([0.0, 0.3, 0.9]), special, images)
    return torch.from_numpy(images.astype(np.float32))


def bounds(
    net: nn.Module, images: Tensor, eps: Tensor, arithmetic: str = "sound", methods: tuple[str, ...] = METHODS
) -> dict[str, Tensor]:
    found = {}
    for method in methods:
        try:
            found[method] = upper_bound(net, images, eps, method=method, arithmetic=arithmetic).detach()
        except NoLinearRule:
            assert method not in ("ibp", "best")
    return found


def violations(
    simulator: ModuleType, seed: int, arithmetic: str = "sound", methods: tuple[str, ...] = METHODS
) -> tuple[int, int, float]:
    """Of IMAGES cases: those with a value above a bound, those with a finite one, and the smallest margin in ulps."""
    rng = np.random.default_rng(seed)
    net, images = network(rng), pictures(rng)
    eps = rng.permutation(EPS)
    try:
        found = bounds(net, images, torch.from_numpy(eps), arithmetic, methods)
    except UnsupportedLayer:  # a batch norm with subnormal weights, which is refused
        found = {}
    if not found:  # or no linear bound for one of its layers
        return 0, 0, np.inf
    points = np.stack([simulator.points_of(x.numpy(), e, rng, 3) for x, e in zip(images, eps, strict=True)])
    rows = points.reshape(-1, *SHAPE)
    values = [hardware.run(net, rows).reshape(IMAGES, -1) for hardware in simulator.kinds(rng, 6)]
    with torch.no_grad():
        values.append(net(torch.from_numpy(rows)).reshape(IMAGES, -1).numpy())  # the hardware that we have
    largest = np.stack(values).max((0, 2))  # NaN if one is
    lowest = np.stack([bound.numpy() for bound in found.values()]).min(0)
    wrong = ~(largest <= lowest) & (lowest != np.inf)
    finite = np.isfinite(lowest) & np.isfinite(largest)
    with np.errstate(all="ignore"):
        margin = (lowest.astype(float) - largest)[finite] / np.spacing(np.abs(largest[finite]))
    return int(wrong.sum()), int(finite.sum()), float(margin.min(initial=np.inf))


@pytest.mark.slow
def test_no_hardware_exceeds_the_bounds(simulator: ModuleType) -> None:
    informative, closest = 0, np.inf
    for seed in range(CASES // IMAGES):
        wrong, finite, margin = violations(simulator, seed)
        assert not wrong, f"seed {seed}: {wrong} bounds are exceeded"
        informative, closest = informative + finite, min(closest, margin)
    print(f"{CASES} cases, {informative} with a finite bound, the smallest margin is {closest} units in the last place")
    assert informative > CASES / 2


@pytest.mark.slow
def test_no_hardware_exceeds_the_tighter_bounds(simulator: ModuleType) -> None:
    informative = 0
    for seed in range(CASES // IMAGES // 3):
        wrong, finite, _ = violations(simulator, seed, methods=TIGHTER)
        assert not wrong, f"seed {seed}: {wrong} bounds are exceeded"
        informative += finite
    assert informative > CASES // 12


def exact_maximum(net: nn.Sequential, image: Tensor, eps: float) -> Fraction:
    """Of a network of linear layers, over the ball inside [0, 1]ⁿ, in rational numbers."""
    slope, offset = [Fraction(1)], Fraction(0)
    for layer in reversed(net):
        weight, bias = ([[Fraction(v) for v in row] for row in layer.weight.tolist()], layer.bias.tolist())
        offset += sum((s * Fraction(b) for s, b in zip(slope, bias, strict=True)), Fraction(0))
        slope = [sum(s * row[i] for s, row in zip(slope, weight, strict=True)) for i in range(len(weight[0]))]
    low, high = ([min(max(Fraction(x) + d, 0), 1) for x in image.tolist()] for d in (-Fraction(eps), Fraction(eps)))
    return offset + sum(max(s * a, s * b) for s, a, b in zip(slope, low, high, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_the_exact_maximum_of_an_affine_network(seed: int) -> None:
    """The bound is a float32 number that is not below what float32 hardware returns: one more place is enough."""
    rng = np.random.default_rng(seed)
    net = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 1))
    for layer in net:
        fill(layer, rng)
    images = torch.from_numpy(pictures(rng).flatten(1)[:, :6].numpy().copy())
    for image, eps in zip(images, EPS.tolist(), strict=True):
        largest = exact_maximum(net, image, eps)
        for bound in bounds(net, image[None], torch.tensor([eps], dtype=torch.float64)).values():
            above = np.nextafter(bound.numpy(), np.float32(np.inf)).item()
            assert above == np.inf or Fraction(above) >= largest


def exactly(value: Fraction) -> np.float32:
    """The nearest float32 number, of two the even one: by the definition."""
    near = np.float32(float(value))
    candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    distance = [abs(Fraction(float(c)) - value) for c in candidates]
    best = [c for c, d in zip(candidates, distance, strict=True) if d == min(distance)]
    return next((c for c in best if not c.view(np.int32) & 1), best[0])


def test_the_simulated_fused_operation_rounds_once(simulator: ModuleType) -> None:
    rng = np.random.default_rng(0)
    w, x, acc = (rng.normal(size=3000) * 2.0 ** rng.integers(-40, 40, 3000) for _ in range(3))
    w[::3], x[::3] = 1 + 2.0 ** -rng.integers(1, 24, 1000), 1 + 2.0 ** -rng.integers(1, 24, 1000)
    acc[::3] = 2.0 ** -rng.integers(20, 60, 1000) * rng.choice([-1, 1], 1000)  # breaks ties, or just does not
    acc[1::3] *= 2.0**-90
    w[1::3] *= 2.0**-90
    w, x, acc = (v.astype(np.float32) for v in (w, x, acc))
    fused = simulator.fma(w, x, acc)
    expected = [
        exactly(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))) for a, b, c in zip(w, x, acc, strict=True)
    ]
    assert (fused == np.array(expected)).all()
    twice = (w.astype(float) * x.astype(float) + acc.astype(float)).astype(np.float32)
    assert (twice != fused).any()  # rounding to float64 first would not do


def test_the_simulated_sum_is_the_one_of_the_order(simulator: ModuleType) -> None:
    rng = np.random.default_rng(1)
    w, x = (rng.normal(size=7).astype(np.float32) for _ in range(2))
    for fused in (False, True):
        total = Fraction(0)
        for a, b in zip(w, x, strict=True):
            product = Fraction(float(a)) * Fraction(float(b))
            product = product if fused else Fraction(float(exactly(product)))
            total = Fraction(float(exactly(total + product)))
        assert simulator.Hardware(fused=fused).dot(w[None], x[None])[0] == np.float32(float(total))


@pytest.mark.slow
def test_the_check_finds_bounds_that_forget_rounding(simulator: ModuleType) -> None:
    wrong = [violations(simulator, seed, "plain")[0] for seed in range(20)]
    assert sum(wrong) > 20, f"{sum(wrong)} of {20 * IMAGES} plain bounds are exceeded"
