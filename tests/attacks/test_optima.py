"""Every attack on scores whose maximum in the ball is known: linear ones, small ReLU networks, plateaus.

The goal of a search is the known maximum less the tolerance, so that one that succeeds is also short.
"""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

Layers = list[tuple[Tensor, Tensor]]


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.01, 8 / 255, 0.3])
@pytest.mark.parametrize("shape", [(1, 6, 6), (3, 4, 4)])
def test_the_maximum_of_a_linear_score_is_reached(full, shape, eps, scored, edgy):
    x, w = edgy(3, shape), torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    low, high = (x.double() - eps).clamp_min(0), (x.double() + eps).clamp_max(1)
    optimum = torch.maximum(w * low, w * high).flatten(1).sum(1)
    tolerance = 1e-4 * optimum.abs().clamp_min(1)
    outcome = full(scored(lambda u: (w * u.double()).flatten(1).sum(1)), x, eps, goal=optimum - tolerance)
    assert (outcome.scores >= optimum - tolerance).all()
    assert (outcome.scores <= optimum + 1e-9).all()


# Small ReLU networks. A piecewise linear function on a box is largest at a vertex of one of its linear pieces.

EPS, CELL = 0.01, 0.025
NETS = 10


def value(layers: Layers, x: Tensor) -> Tensor:
    for weight, bias in layers[:-1]:
        x = (x @ weight.T + bias).relu()
    return (x @ layers[-1][0].T + layers[-1][1])[:, 0]


def vertices(layers: Layers, low: Tensor, high: Tensor) -> Tensor:
    """Points of the box, among them every vertex of every linear piece: where d of the planes meet.

    The planes are the faces of the box and, for each way in which the layers before may be active, the places where a
    unit switches. Some of these ways do not occur, and their points are points of the box like any other.
    """
    d = len(low)
    found = []

    def descend(depth: int, weight: Tensor, bias: Tensor, normals: Tensor, offsets: Tensor) -> None:
        weight, bias = layers[depth][0] @ weight, layers[depth][0] @ bias + layers[depth][1]
        if depth == len(layers) - 1:
            chosen = torch.tensor(list(itertools.combinations(range(len(normals)), d)))
            meeting = torch.linalg.det(normals[chosen]).abs() > 1e-9
            found.append(torch.linalg.solve(normals[chosen][meeting], -offsets[chosen][meeting]))
            return
        for active in itertools.product((0.0, 1.0), repeat=len(bias)):
            on = torch.tensor(active, dtype=torch.float64)
            planes = torch.cat([normals, weight]), torch.cat([offsets, bias])
            descend(depth + 1, on[:, None] * weight, on * bias, *planes)
            if depth == len(layers) - 2:
                break  # no unit comes after these: how they are active moves no plane

    eye = torch.eye(d, dtype=torch.float64)
    descend(0, eye, torch.zeros_like(low), torch.cat([eye, eye]), torch.cat([-low, -high]))
    points = torch.cat(found)
    return points[((points > low - 1e-9) & (points < high + 1e-9)).all(1)].clamp(low, high)


def networks(d: int, hidden: tuple[int, ...], seed: int) -> tuple[list[Layers], Tensor]:
    """Random networks that switch inside the ball of radius EPS around a random point each."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    centres = torch.rand(NETS, d, generator=generator)
    centres[: NETS // 2, 0] = centres[: NETS // 2, 0].round()  # a pixel at 0 or 1
    nets = []
    for centre in centres.double():
        sizes = [d, *hidden, 1]
        layers = [(normal(n, m) / m**0.5, 0.5 * normal(n)) for m, n in itertools.pairwise(sizes)]
        weight, bias = layers[0][0] / EPS, layers[0][1]
        nets.append([(weight, bias - weight @ centre), *layers[1:]])
    return nets, centres


@pytest.fixture(scope="module")
def nets(scored):
    """(score, images, maxima): one image for each of 40 networks, whose last pixel says which one it is."""
    made, images, maxima = [], [], []
    for sizes in ((2, (5,)), (3, (6,)), (2, (4, 4)), (3, (4, 3))):
        for layers, centre in zip(*networks(*sizes, seed=0), strict=True):
            low, high = (centre.double() - EPS).clamp_min(0), (centre.double() + EPS).clamp_max(1)
            maxima.append(value(layers, vertices(layers, low, high)).max())
            places = torch.rand(20_000, len(low), generator=torch.Generator().manual_seed(1)).double()
            sampled = value(layers, low + (high - low) * places).max()
            assert maxima[-1] + 1e-9 >= sampled, "the brute force has missed a vertex"
            images.append(F.pad(centre, (0, 3 - len(centre)), value=0.5))
            made.append(padded(layers))
    number = (torch.arange(len(made)) + 0.5) * CELL  # moved by EPS, it is still in its cell
    x = torch.cat([torch.stack(images), number[:, None]], 1)[:, None, None]
    weights, biases = ([torch.stack(parts) for parts in zip(*kind, strict=True)] for kind in zip(*made, strict=True))

    def function(u: Tensor) -> Tensor:
        pixels = u.double().flatten(1)
        which, z = (pixels[:, -1] / CELL).long(), pixels[:, :-1, None]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            z = (weight[which] @ z + bias[which, :, None]).relu()
        return (weights[-1][which] @ z)[:, 0, 0] + biases[-1][which, 0]

    return scored(function), x, torch.stack(maxima)


def padded(layers: Layers) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and biases of the same network with 3 inputs and two hidden layers of 6 units."""
    if len(layers) == 2:
        hidden = len(layers[0][1])
        layers = [layers[0], (torch.eye(hidden).double(), torch.zeros(hidden).double()), layers[1]]
    sizes = [3, 6, 6, 1]
    pairs = zip(layers, itertools.pairwise(sizes), strict=True)
    weights = [F.pad(w, (0, m - w.shape[1], 0, n - w.shape[0])) for (w, _), (m, n) in pairs]
    return weights, [F.pad(b, (0, n - len(b))) for (_, b), n in zip(layers, sizes[1:], strict=True)]


# On so many of the 40 networks the maximum is reached to 1e-3, and on all of them to the second number, where the score
# varies by about 1 in the ball. What is missing are ridges, and maxima that are but a little lower than the highest.
# APGD on its own cannot do better: it climbs once in each restart, and its last steps are still 2ε/2⁸ long. Nor can
# Square: it is one climb, by chance. `strong` takes long where it fails; it is made of the same parts.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("full", "reached", "rest"),
    [("pgd", 36, 0.01), ("apgd", 28, 0.2), ("square", 36, 0.05), ("fast", 36, 0.01), ("paper", 39, 0.005)],
    indirect=["full"],
)
def test_the_maximum_of_small_relu_networks_is_reached(full, nets, reached, rest):
    score, x, maximum = nets
    outcome = full(score, x, EPS, goal=maximum - 1e-3)
    gap = maximum - outcome.scores
    assert (gap >= -1e-9).all()
    assert (gap <= 1e-3).sum() >= reached
    assert gap.max() <= rest


# Plateaus: nothing to be seen at the image, nor near it.


def hidden_bump(x: Tensor) -> Tensor:
    """Only an image that has become brighter by ε/2 on the whole scores at all."""
    return (x.double().flatten(1).mean(1) - 0.5).sub(0.05).relu() * 20


def coarse_pattern(x: Tensor) -> Tensor:
    """Pixel noise scores nothing: left and right must differ."""
    move = (x.double() - 0.5).flatten(1, 2)
    return ((move[..., :4] - move[..., 4:]).mean((1, 2)).sub(0.1)).relu() * 10


def remote_corner(x: Tensor) -> Tensor:
    """Three neighbouring pixels must all have moved the right way, and by ε/2."""
    move = (x.double() - 0.5)[:, 0, 2, 3:6] * torch.tensor([1, -1, 1])
    return move.amin(1).sub(0.05).relu() * 20


@pytest.mark.parametrize("function", [hidden_bump, coarse_pattern, remote_corner])
def test_what_lies_behind_a_plateau_is_found(full, function, scored):
    x = torch.full((3, 1, 8, 8), 0.5)
    assert (function(x) == 0).all()
    outcome = full(scored(function), x, 0.1, goal=1 - 1e-3)
    assert (outcome.scores >= 1 - 1e-3).all()


@pytest.mark.parametrize("graph", [True, False])
def test_a_score_without_any_gradient(full, graph, scored):
    def stairs(x: Tensor) -> Tensor:
        levels = (x.detach() * 50).floor().double().flatten(1).mean(1)
        return levels + 0 * x.double().sum((1, 2, 3)) if graph else levels

    x = torch.full((2, 1, 4, 4), 0.51)
    outcome = full(scored(stairs), x, 0.1, goal=30)
    assert (outcome.scores > outcome.clean).all()
    if "square" in full.names:
        assert (outcome.scores >= 29).all()  # 30 is the top of the stairs
