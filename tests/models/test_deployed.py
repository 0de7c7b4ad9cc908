"""Discriminators of CIFAR size as they are deployed: no evaluation in a certified ball exceeds its bound.

A few hundred evaluations run here; PROOD_EVALUATIONS=1000000 runs more. With -s, the smallest margins are shown.
"""

import copy
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from prood.bounds import BlockedLinear
from prood.models import Discriminator, discriminator

EVALUATIONS = int(os.environ.get("PROOD_EVALUATIONS", "240"))
IMAGES = 6
EPS = torch.tensor([0.0, 0.0, 2.0**-24, 1e-6, 0.01, 0.1])
SHARED = Path(__file__).parents[3] / "shared"
WEIGHTS = SHARED / "models" / "discriminator-S-prototype.safetensors"
PICTURES = SHARED / "data" / "svhn" / "test-00.webp"
NAMES = {"body.1": "conv1", "body.3": "conv2", "body.5": "conv3", "body.9": "hidden", "tail.1": "last"}


def random() -> tuple[Discriminator, Tensor]:
    torch.manual_seed(0)
    g = discriminator("S")
    with torch.no_grad():
        for layer in g.body:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.weight.mul_(6**0.5)  # keeps the variance: units stay alive
        g.last.log_weight.sub_(3)
    return g.eval(), torch.rand(48, 3, 32, 32)


def trained() -> tuple[Discriminator, Tensor]:
    if not (WEIGHTS.exists() and PICTURES.exists()):
        pytest.skip("no trained discriminator or images beside the checkout")
    g = discriminator("S", mean=(0.4914, 0.4822, 0.4465), std=(0.2471, 0.2435, 0.2616))
    weights = load_file(WEIGHTS)
    for name, value in g.state_dict().items():
        layer, _, what = name.rpartition(".")
        if layer in NAMES:
            value.copy_(weights[f"{NAMES[layer]}.{what}"].reshape(value.shape))
    with Image.open(PICTURES) as sheet:
        row = np.asarray(sheet.convert("RGB").crop((0, 0, 32 * 48, 32)))
    images = row.reshape(32, 48, 32, 3).transpose(1, 3, 0, 2).copy()
    return g.eval(), torch.tensor(images).float() / 255


MODELS = {"random": random, "trained": trained}
COST = {("random", 0.0): 0.1, ("random", 0.01): 2.0, ("trained", 0.0): 0.004, ("trained", 0.01): 0.01}


@pytest.fixture(scope="module", params=MODELS)
def deployed(request: pytest.FixtureRequest) -> tuple[str, Discriminator, Tensor]:
    return request.param, *MODELS[request.param]()


@torch.no_grad()
def shuffled(g: Discriminator) -> tuple[Discriminator, Tensor]:
    """The same function with its sums in another order, and the order of the image's channels that it wants.

    Channels are permuted together with the weights that meet them: below the blocked sum, so that its blocks remain.
    """
    g = copy.deepcopy(g)
    convolutions = [layer for layer in g.body if isinstance(layer, nn.Conv2d)]
    (hidden,) = (layer for layer in g.body if isinstance(layer, BlockedLinear))
    spread = hidden.in_features // convolutions[-1].out_channels  # inputs for each channel
    assert hidden.block % spread == 0
    first = order = torch.randperm(3)
    g.body[0].mean, g.body[0].std = g.body[0].mean[order], g.body[0].std[order]
    for layer in (*convolutions, hidden):
        if layer is hidden:
            order = (order[:, None] * spread + torch.arange(spread)).flatten()
        after = permutation(len(layer.weight), hidden.block // spread if layer is convolutions[-1] else 1)
        layer.weight.copy_(layer.weight[after][:, order])
        layer.bias.copy_(layer.bias[after])
        order = after
    g.last.log_weight.copy_(g.last.log_weight[:, order])
    return g, first


def permutation(count: int, group: int) -> Tensor:
    """Of groups of neighbours, and of the neighbours in each group."""
    groups = torch.arange(count).reshape(-1, group)[torch.randperm(count // group)]
    return torch.stack([row[torch.randperm(group)] for row in groups]).flatten()


def points_of(g: Discriminator, images: Tensor, eps: Tensor) -> Iterator[Tensor]:
    """Points of the balls: the images, and by turns corners, random points and what the gradient leads to."""
    yield images
    eps = eps.reshape(-1, 1, 1, 1)
    low, high = (images - eps).clamp(0, 1), (images + eps).clamp(0, 1)
    point = images
    for turn in range(1_000_000_000):
        if turn % 4 == 0:
            yield torch.where(torch.rand_like(images) < torch.rand_like(images[:, :1, :1, :1]), low, high)
        elif turn % 4 == 1:
            yield torch.clamp(torch.lerp(low, high, torch.rand_like(images)), low, high)
        else:
            point = point.detach().requires_grad_()
            (slope,) = torch.autograd.grad(g(point).sum(), point)
            step = torch.where(slope > 0, high, torch.where(slope < 0, low, point.detach()))
            point = step if turn % 4 == 2 else torch.clamp(torch.lerp(point.detach(), step, 0.5), low, high)
            yield point.detach()


def smallest_margin(g: Discriminator, images: Tensor, eps: Tensor, count: int) -> Tensor:
    """Bound minus value, for each image the smallest of `count` evaluations in total, however g is run."""
    bound = torch.stack([g.upper_bound(images, eps, method=method) for method in ("ibp", "best")]).amin(0)
    margin, done, turn = torch.full_like(bound, torch.inf), 0, 0
    threads, points, variant = torch.get_num_threads(), points_of(g, images, eps), (g, torch.arange(3))
    try:
        while done < count:
            if turn % 3 == 2:
                variant = shuffled(g)
            model, channels = variant
            batch = (next(points) if turn % 7 else images)[:, channels]
            size = (1, 2, len(images), 5)[turn % 4]
            torch.set_num_threads(1 + turn // 2 % 2)
            layout = torch.channels_last if turn % 5 > 2 else torch.contiguous_format
            with torch.no_grad():
                parts = [model.covered(part.contiguous(memory_format=layout)) for part in batch.split(size)]
            margin = torch.minimum(margin, bound - torch.cat(parts))
            done, turn = done + len(images), turn + 1
    finally:
        torch.set_num_threads(threads)
    return margin


def test_shuffled_is_the_same_function(deployed: tuple[str, Discriminator, Tensor]) -> None:
    _, g, images = deployed
    other, channels = shuffled(g)
    with torch.no_grad():
        one, another = g(images[:4]), other(images[:4, channels])
    torch.testing.assert_close(one, another, rtol=0, atol=1e-4)
    assert not torch.equal(one, another)  # the sums did change


@pytest.mark.slow
def test_no_evaluation_exceeds_the_bound(deployed: tuple[str, Discriminator, Tensor]) -> None:
    name, g, images = deployed
    torch.manual_seed(0)
    done, smallest = 0, torch.full_like(EPS, torch.inf)
    for batch in images.split(IMAGES):
        count = min(EVALUATIONS - done, max(240, EVALUATIONS * IMAGES // len(images)))
        if count <= 0:
            break
        margin = smallest_margin(g, batch, EPS[: len(batch)], count)
        assert (margin >= 0).all(), f"a value is {-margin.min().item()} above its bound"
        done, smallest = done + count, torch.minimum(smallest, margin)
    shown = ", ".join(
        f"{value:.2g} (ε = {eps:.2g})" for value, eps in zip(smallest.tolist(), EPS.tolist(), strict=True)
    )
    print(f"{name}: {done} evaluations; the smallest margins are {shown}")


@pytest.mark.slow
def test_no_evaluation_exceeds_the_bound_beside_other_threads() -> None:
    """Without oneDNN torch takes NNPACK, which transforms: where one thread leaves, the others must go on without."""
    g, images = random()
    torch.backends.mkldnn.enabled = False
    torch.backends.nnpack.set_flags(True)
    torch.set_float32_matmul_precision("medium")
    torch.manual_seed(0)
    try:
        with ThreadPoolExecutor(4) as pool:
            margins = list(pool.map(lambda _: smallest_margin(g, images[:IMAGES], EPS, 120), range(4)))
        assert torch.backends.nnpack.set_flags(True)[0]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.backends.mkldnn.enabled = True
        torch.set_float32_matmul_precision("highest")
    assert (torch.stack(margins) >= 0).all()


@pytest.mark.slow
@torch.no_grad()
def test_sound_bounds_are_tight(deployed: tuple[str, Discriminator, Tensor]) -> None:
    """What covering all roundings may cost: if a change makes bounds loose, it shows here."""
    name, g, images = deployed
    images = images[:8]
    for eps in (0.0, 0.01):
        sound, plain = (
            g.upper_bound(images, eps, method="crown-ibp", arithmetic=arithmetic) for arithmetic in ("sound", "plain")
        )
        print(f"{name}, ε = {eps}: sound − plain is at most {(sound - plain).max().item():.2g}")
        assert (sound >= plain - 1e-4).all()
        assert (sound - plain).max() < COST[name, eps]
