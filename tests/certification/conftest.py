"""Small discriminators in real files, and a float32 network that sums in any order we like."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from prood.certification import (
    Certificate,
    ImageReference,
    ModelReference,
    file_sha256,
    image_sha256,
)
from prood.certification.certify import stated
from prood.detector import Detector
from prood.models import Gate, Gated, ProoD, discriminator, save, small

ORDERS = ("sequential", "reversed", "rising", "magnitude", "pairwise", "blocks", "fused")


@pytest.fixture
def make_model(tmp_path) -> Callable:
    """A discriminator's file with random weights, or that of a joint model, which may have a gate."""

    def make(name="g", size="digits", image=(1, 6, 6), seed=0, scale=1.0, shift=None, gate=None, change=None) -> Path:
        torch.manual_seed(seed)
        model = discriminator(size, image=image)
        with torch.no_grad():
            for key, value in model.named_parameters():
                if "body" in key:
                    value.mul_(scale)
            model.last.log_weight.sub_(2.0)
            if change is not None:
                change(model)
        path = tmp_path / name / "model.safetensors"
        if gate is not None:
            model = Gated(small(4, width=4), model, Gate(*gate), shift or 0.0)
        elif shift is not None:
            model = ProoD(small(4, width=4), model, shift)
        save(model, path)
        return path

    return make


@pytest.fixture
def make_images(tmp_path) -> Callable:
    def make(count=3, shape=(6, 6), seed=0, name="images.npz") -> str:
        images = np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)
        np.savez(tmp_path / name, images=images)
        return f"npz:{tmp_path / name}"

    return make


@pytest.fixture
def certificate_of() -> Callable:
    """A certificate that states what the caller wants."""

    def make(model: Path, name: str, row: int, image: np.ndarray, bound: float, **facts) -> Certificate:
        bound = float(np.float32(bound))
        classes = facts.get("classes")
        if classes:
            facts.setdefault("confidence", stated(Detector.load(model), bound))
        facts = {"norm": "linf", "eps": 0.05, "method": "crown-ibp", **facts}
        return Certificate(
            ImageReference(name, row, image_sha256(image)),
            ModelReference(str(model), file_sha256(model)),
            bound=bound,
            **facts,
        )

    return make


def total(weights: np.ndarray, inputs: np.ndarray, bias: np.ndarray, order: str) -> np.ndarray:
    """Σ wᵢxᵢ + b in float32, one sum per row, in this order."""
    if order == "fused":
        result = bias.astype(np.float32)
        for w, x in zip(weights.T, inputs.T, strict=True):
            result = (w.astype(np.float64) * x + result).astype(np.float32)
        return result
    terms = np.concatenate([bias[:, None], weights * inputs], 1).astype(np.float32)
    if order == "reversed":
        terms = terms[:, ::-1]
    elif order == "rising":
        terms = np.sort(terms, 1)
    elif order == "magnitude":
        terms = np.take_along_axis(terms, np.argsort(-np.abs(terms), 1), 1)
    elif order == "blocks":
        pad = np.pad(terms, ((0, 0), (0, -terms.shape[1] % 16)))
        terms = np.add.accumulate(pad.reshape(len(pad), -1, 16), 2, dtype=np.float32)[..., -1]
    elif order == "pairwise":
        while terms.shape[1] > 1:
            terms = np.pad(terms, ((0, 0), (0, terms.shape[1] % 2)))
            terms = terms[:, ::2] + terms[:, 1::2]
        return terms[:, 0]
    return np.add.accumulate(terms, 1, dtype=np.float32)[:, -1]


def deployed(model: torch.nn.Module, image: np.ndarray, order: str) -> float:
    """g as a float32 machine may compute it; written against the torch layers, apart from what is tested."""
    x = image.astype(np.float32)
    for layer in [*model.body, *model.tail]:
        kind = type(layer).__name__
        if kind == "Normalise":
            x = (x - layer.mean.numpy()) / layer.std.numpy()
        elif kind == "ReLU":
            x = np.maximum(x, np.float32(0))
        elif kind == "Flatten":
            x = x.ravel()
        elif kind == "AvgPool2d":
            side = layer.kernel_size
            rows, columns = x.shape[1] // side, x.shape[2] // side
            kept = x[:, : side * rows, : side * columns].reshape(-1, rows, side, columns, side)
            squares = kept.transpose(0, 1, 3, 2, 4).reshape(-1, side**2)
            none, one, share = np.zeros(len(squares), np.float32), np.ones_like(squares), np.float32(1 / side**2)
            if order in ("sequential", "rising"):  # a sum, divided
                x = total(one, squares, none, order) / np.float32(side**2)
            elif order == "blocks":  # a sum, times a rounded reciprocal
                x = total(one, squares, none, order) * share
            else:  # of products with a rounded reciprocal
                x = total(share * one, squares, none, order)
            x = x.reshape(len(kept), rows, columns)
        else:
            weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
            if kind == "Conv2d":
                patches = torch.nn.functional.unfold(torch.from_numpy(x)[None], 3, padding=1, stride=layer.stride)[0]
                sums = [
                    total(
                        np.tile(w.ravel(), (patches.shape[1], 1)),
                        patches.T.numpy(),
                        np.full(patches.shape[1], b),
                        order,
                    )
                    for w, b in zip(weight, bias, strict=True)
                ]
                sides = [-(-side // layer.stride[0]) for side in x.shape[1:]]
                x = np.stack(sums).reshape(len(weight), *sides)
            else:
                x = total(weight, np.broadcast_to(x.ravel(), weight.shape), bias, order)
    return float(x[0])


@pytest.fixture
def returned() -> Callable:
    """All values that float32 gives for an image, one per order of summation."""
    return lambda model, image: [deployed(model, image, order) for order in ORDERS]


@pytest.fixture
def summed() -> Callable:
    """The sums of `total` for all orders."""
    return lambda weights, inputs, bias: {order: total(weights, inputs, bias, order) for order in ORDERS}
