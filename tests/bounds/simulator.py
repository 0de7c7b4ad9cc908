"""Float32 hardware of many kinds: networks evaluated one IEEE operation at a time, in a chosen order.

NumPy's float32 operations are single IEEE operations, rounded to nearest, ties to even. A fused multiply-add is made of
float64: the product of two float32 numbers is exact there, and the sum is rounded to odd, from where the rounding to
float32 gives what a single rounding gives (53 ≥ 24 + 2 digits).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from prood.bounds import BlockedLinear, NegativeLinear, Normalise, Residual

Array = np.ndarray
F32 = np.float32
TINY = F32(2.0**-126)
ORDERS = ("forward", "reverse", "ascending", "descending", "up", "down", "pairwise", "lanes", "random")


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b in float64, and the error of that sum, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fma(w: Array, x: Array, acc: Array) -> Array:
    """w·x + acc, rounded once."""
    product = w.astype(np.float64) * x.astype(np.float64)
    total, error = two_sum(product, np.broadcast_to(acc.astype(np.float64), product.shape))
    even = (np.ascontiguousarray(total).view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(np.isfinite(total) & even & (error != 0), odd, total).astype(F32)


@dataclass
class Hardware:
    order: str = "forward"
    fused: bool = False
    flush: bool = False  # subnormal operands and results
    ulps: int = 0  # error of the exponential: RN(exp) moved by so many places, at most 3
    formula: int = 0  # how a normalisation is arranged
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def z(self, values: Array) -> Array:
        values = np.asarray(values, F32)
        return np.where(np.abs(values) < TINY, F32(0), values) if self.flush else values

    def times(self, a: Array, b: Array) -> Array:
        return self.z(self.z(a) * self.z(b))

    def plus(self, a: Array, b: Array) -> Array:
        return self.z(self.z(a) + self.z(b))

    def dot(self, w: Array, x: Array) -> Array:
        """Σ w·x over the last axis."""
        w, x = np.broadcast_arrays(self.z(w), self.z(x))
        products = self.times(w, x)
        keys = {
            "reverse": -np.arange(w.shape[-1]) + 0 * products,
            "ascending": np.abs(products),
            "descending": -np.abs(products),
            "up": products,
            "down": -products,
            "random": self.rng.random(products.shape),
        }.get(self.order)
        if keys is not None:
            places = np.argsort(keys, axis=-1, kind="stable")
            w, x, products = (np.take_along_axis(v, places, -1) for v in (w, x, products))
        if self.order == "pairwise":
            while products.shape[-1] > 1:
                if products.shape[-1] % 2:
                    products = np.concatenate([products, np.zeros_like(products[..., :1])], -1)
                products = self.plus(products[..., ::2], products[..., 1::2])
            return products[..., 0]
        lanes = 4 if self.order == "lanes" else 1
        acc = [np.zeros(products.shape[:-1], F32) for _ in range(lanes)]
        for i in range(products.shape[-1]):
            old = acc[i % lanes]
            new = fma(w[..., i], x[..., i], old) if self.fused else old + products[..., i]
            acc[i % lanes] = self.z(new)
        while len(acc) > 1:
            acc = [self.plus(a, b) for a, b in zip(acc[::2], acc[1::2], strict=True)]
        return acc[0]

    def affine(self, w: Array, x: Array, bias: Array | None) -> Array:
        """(…, n) → (…, m) for w of shape (m, n): the bias is one more product, anywhere in the order."""
        x = x[..., None, :]
        if bias is None:
            return self.dot(w, x)
        if self.order in ("lanes", "pairwise"):  # libraries add it at the end
            return self.plus(self.dot(w, x), bias)
        w = np.concatenate([w, bias[:, None]], 1)
        return self.dot(w, np.concatenate([x, np.ones_like(x[..., :1])], -1))

    def exp(self, h: Array) -> Array:
        with np.errstate(all="ignore"):
            value = np.exp(h.astype(np.float64)).astype(F32)
        places = self.rng.integers(-3, 4, h.shape) if self.ulps == 9 else np.full(h.shape, self.ulps)
        bits = np.ascontiguousarray(value).view(np.int32).astype(np.int64) + places
        moved = np.clip(bits, 0, 0x7F800000).astype(np.int32).view(F32)
        return self.z(np.where(np.isfinite(value), moved, value))

    def run(self, layer: nn.Module, x: Array) -> Array:
        with np.errstate(all="ignore"), torch.no_grad():
            return self.z(self._run(layer, self.z(x)))

    def _run(self, layer: nn.Module, x: Array) -> Array:
        match layer:
            case nn.Sequential():
                for child in layer:
                    x = self.run(child, x)
                return x
            case Residual():
                return self.plus(self.run(layer.body, x), self.run(layer.shortcut, x))
            case NegativeLinear():
                return self.affine(-self.exp(layer.log_weight.numpy()), x, layer.bias.numpy())
            case BlockedLinear():
                w = layer.weight.numpy().reshape(layer.out_features, -1, layer.block)
                blocks = self.dot(w, x.reshape(len(x), 1, -1, layer.block))  # (N, out, blocks)
                total = self.dot(np.ones_like(blocks), blocks)
                return total if layer.bias is None else self.plus(total, layer.bias.numpy())
            case nn.Linear():
                return self.affine(layer.weight.numpy(), x, None if layer.bias is None else layer.bias.numpy())
            case nn.Conv2d():
                return self._convolve(layer, x)
            case nn.AvgPool2d():
                return self._average(layer, x)
            case Normalise() | nn.BatchNorm2d():
                return self._normalise(layer, x)
            case nn.LeakyReLU():
                return np.where(x > 0, x, self.times(x, F32(layer.negative_slope)))
            case nn.ReLU():
                return np.maximum(x, F32(0))
            case nn.MaxPool2d() | nn.Flatten() | nn.Identity():
                return layer(torch.from_numpy(np.ascontiguousarray(x))).numpy()
        raise TypeError(type(layer))

    def _convolve(self, layer: nn.Conv2d, x: Array) -> Array:
        (ph, pw), mode = layer.padding, "constant" if layer.padding_mode == "zeros" else "wrap"
        x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), mode)
        with torch.no_grad():
            like = nn.functional.conv2d(
                torch.from_numpy(x), layer.weight, None, layer.stride, 0, layer.dilation, layer.groups
            )
        columns = nn.functional.unfold(torch.from_numpy(x), layer.kernel_size, layer.dilation, 0, layer.stride).numpy()
        columns = columns.reshape(len(x), layer.groups, -1, columns.shape[-1]).transpose(0, 1, 3, 2)  # (N, g, L, n)
        weight = layer.weight.numpy().reshape(layer.groups, -1, columns.shape[-1])
        bias = None if layer.bias is None else layer.bias.numpy().reshape(layer.groups, -1)
        groups = [self.affine(weight[g], columns[:, g], None if bias is None else bias[g]) for g in range(layer.groups)]
        return np.concatenate(groups, -1).transpose(0, 2, 1).reshape(like.shape)

    def _average(self, layer: nn.AvgPool2d, x: Array) -> Array:
        shape = layer(torch.from_numpy(x)).shape
        settings = {"kernel_size": layer.kernel_size, "padding": layer.padding, "stride": layer.stride}
        places = torch.from_numpy(x).flatten(0, 1)[:, None]
        columns = nn.functional.unfold(places, **settings).numpy().transpose(0, 2, 1)
        inside = nn.functional.unfold(torch.ones_like(places), **settings).numpy().transpose(0, 2, 1)
        count = inside.sum(-1) if not layer.count_include_pad else np.full(columns.shape[:2], columns.shape[-1])
        count = count if layer.divisor_override is None else np.full_like(count, layer.divisor_override)
        total = self.dot(np.ones_like(columns), columns)
        count = count.astype(F32)
        value = self.times(total, F32(1) / count) if self.formula % 2 else self.z(total / count)
        return value.reshape(shape)

    def _normalise(self, layer: Normalise | nn.BatchNorm2d, x: Array) -> Array:
        one = F32(1)
        if isinstance(layer, Normalise):
            mean, std = layer.mean.numpy(), layer.std.numpy()
            if self.formula == 0:
                return self.z(self.plus(x, -mean) / std)
            if self.formula == 1:
                return self.times(self.plus(x, -mean), one / std)
            shift = self.times(-mean, one / std) if self.formula == 2 else self.z(-mean / std)
            return self._scaled(one / std, x, shift)
        mean, var = (v.numpy()[:, None, None] for v in (layer.running_mean, layer.running_var))
        scale = one / np.sqrt(self.plus(var, F32(layer.eps)))
        weight, bias = (
            (layer.weight.numpy()[:, None, None], layer.bias.numpy()[:, None, None])
            if layer.affine
            else (np.ones_like(mean), np.zeros_like(mean))
        )
        if self.formula == 0:
            return self.plus(self.times(self.times(self.plus(x, -mean), scale), weight), bias)
        alpha = self.times(scale, weight)
        if self.formula == 1:
            return self._scaled(alpha, self.plus(x, -mean), bias)
        return self._scaled(alpha, x, self._scaled(-mean, alpha, bias))

    def _scaled(self, w: Array, x: Array, shift: Array) -> Array:
        w, x, shift = np.broadcast_arrays(self.z(w), self.z(x), self.z(shift))
        return self.z(fma(w, x, shift)) if self.fused else self.plus(self.times(w, x), shift)


def kinds(rng: np.random.Generator, count: int) -> list[Hardware]:
    """Hardware of many kinds, every order among them if `count` allows."""
    shuffled = list(rng.permutation(ORDERS))
    return [
        Hardware(
            order=str(shuffled[i % len(ORDERS)]),
            fused=bool(rng.random() < 0.5),
            flush=bool(rng.random() < 0.4),
            ulps=int(rng.choice([-3, 0, 3, 9])),
            formula=int(rng.integers(4)),
            rng=rng,
        )
        for i in range(count)
    ]


def points_of(image: Array, eps: float, rng: np.random.Generator, count: int) -> Array:
    """Float32 points that lie in the ball and in [0, 1]: its corners, the image, what float32 arithmetic makes of ε."""
    low, high = (_end(image, eps, sign) for sign in (-1, 1))
    made = [np.clip(image - F32(eps), 0, 1), np.clip(image + F32(eps), 0, 1)]
    share = rng.random((count, *image.shape)) < rng.random((count, *[1] * image.ndim))
    corners = np.where(share, low, high)
    random = (low + (high - low) * rng.random((2, *image.shape))).astype(F32)
    return np.concatenate([[image, low, high], made, corners, np.clip(random, low, high)]).astype(F32)


def _end(image: Array, eps: float, sign: int) -> Array:
    x = image.astype(np.float64)
    end = np.clip(x + sign * eps, 0, 1).astype(F32)
    for _ in range(2):  # inwards until it is inside in exact arithmetic
        distance, error = two_sum(sign * end.astype(np.float64), -sign * x)
        outside = (distance > eps) | ((distance == eps) & (error > 0))
        end = np.where(outside, np.nextafter(end, image), end)
    distance, error = two_sum(sign * end.astype(np.float64), -sign * x)
    assert not ((distance > eps) | ((distance == eps) & (error > 0))).any()
    return end
