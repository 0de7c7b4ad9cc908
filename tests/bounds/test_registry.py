from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations

import prood.bounds
from prood.bounds import (
    Affine,
    Box,
    Monotone,
    NotCovered,
    Plane,
    Residual,
    Rule,
    Sums,
    UnsupportedLayer,
    interval,
    register,
    registry,
    relax,
    upper_bound,
)
from prood.bounds.registry import NoLinearRule, Pullback, Slopes
from prood.errors import ProodError


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))


def box() -> Box:
    torch.manual_seed(0)
    return Box.ball(torch.rand(2, 4, dtype=torch.float64), 0.1)


def scalar(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), *layers, nn.Linear(4, 1)).double()


class Unknown(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("layer", [nn.Softplus(), nn.Tanh(), nn.GroupNorm(1, 4), nn.Softmax(1), Unknown()])
@pytest.mark.parametrize("method", ["best", "crown-ibp", "ibp"])
def test_an_unknown_layer_is_named(layer: nn.Module, method: prood.bounds.Method) -> None:
    with pytest.raises(UnsupportedLayer) as caught:
        upper_bound(scalar(nn.ReLU(), layer).float(), torch.rand(2, 4), 0.1, method=method)
    message = str(caught.value)
    assert f"{type(layer).__module__}.{type(layer).__qualname__}" in message
    assert "@prood.bounds.register(" in message
    assert "\n" not in message
    assert isinstance(caught.value, ProodError)


def test_the_example_of_the_docstring(inside: Callable[..., Tensor]) -> None:
    network = scalar(nn.Softplus())
    with pytest.raises(UnsupportedLayer):
        interval(network, box())

    @register(nn.Softplus)
    class SoftplusRule(Monotone):
        pass

    hidden = interval(nn.Softplus(), box())
    torch.testing.assert_close(hidden.upper, F.softplus(box().upper))
    torch.testing.assert_close(hidden.lower, F.softplus(box().lower))

    images = torch.rand(2, 4, dtype=torch.float64)
    ball = Box.ball(images, 0.1)
    bound = upper_bound(network, images, 0.1, arithmetic="plain")  # "best" is content with the intervals
    assert torch.equal(bound, upper_bound(network, images, 0.1, method="ibp", arithmetic="plain"))
    for point in inside(ball):
        assert (network(point)[:, 0] <= bound + 1e-9).all()
    with pytest.raises(NoLinearRule, match="Softplus"):
        upper_bound(network, images, 0.1, method="crown-ibp", arithmetic="plain")
    with pytest.raises(NoLinearRule):
        relax(Residual(nn.Softplus()), ball)


def test_a_pullback_of_ones_own_gives_linear_bounds(inside: Callable[..., Tensor]) -> None:
    @register(nn.Softplus)
    class SoftplusRule(Monotone):
        """softplus is convex: below its chord, above its tangent."""

        def pullback(self, layer: nn.Module, box: Box, slopes: Slopes) -> Pullback:
            low, high = F.softplus(box.lower), F.softplus(box.upper)
            chord = torch.where(box.radius > 0, (high - low) / (2 * box.radius), torch.sigmoid(box.middle))
            tangent = torch.sigmoid(box.middle)

            def pull(plane: Plane) -> Plane:
                up, down = plane.slope.clamp(min=0), plane.slope.clamp(max=0)
                offset = up * (low - chord * box.lower) + down * (F.softplus(box.middle) - tangent * box.middle)
                return Plane(up * chord + down * tangent, plane.offset + offset.flatten(1).sum(1))

            return pull

    network = scalar(nn.Softplus())
    images = torch.rand(2, 4, dtype=torch.float64)
    linear = upper_bound(network, images, 0.1, method="crown-ibp", arithmetic="plain")
    assert (linear < upper_bound(network, images, 0.1, method="ibp", arithmetic="plain")).all()
    for point in inside(Box.ball(images, 0.1)):
        assert (network(point)[:, 0] <= linear + 1e-9).all()


def test_an_affine_layer_of_ones_own() -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x + 1

    @register(Double)
    class DoubleRule(Affine[Double]):
        def apply_absolute(self, layer: Double, radius: Tensor) -> Tensor:
            return 2 * radius

        def adjoint(self, layer: Double, slope: Tensor, like: Tensor) -> Tensor:
            return 2 * slope

        def constant(self, layer: Double, slope: Tensor) -> Tensor:
            return slope.flatten(1).sum(1)

    network, images = scalar(Double()), torch.rand(2, 4, dtype=torch.float64)
    same = scalar(nn.Identity())
    same[2].bias.data += same[2].weight.sum(1)
    same[2].weight.data *= 2
    torch.testing.assert_close(network(images), same(images))
    torch.testing.assert_close(
        upper_bound(network, images, 0.1, arithmetic="plain"), upper_bound(same, images, 0.1, arithmetic="plain")
    )


class Triple(nn.Module):
    """y_i = x_i + x_i + x_i, a sum of three products."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x + x


class TripleRule(Affine[Triple]):
    def apply_absolute(self, layer: Triple, radius: Tensor) -> Tensor:
        return 3 * radius

    def adjoint(self, layer: Triple, slope: Tensor, like: Tensor) -> Tensor:
        return 3 * slope


def test_an_affine_layer_of_ones_own_says_how_it_rounds() -> None:
    """Sound bounds need `sums`: how many products an output adds up, how many outputs an input goes to, how large the
    weights are and, if there is one, the absolute value of the offset."""
    register(Triple)(TripleRule)
    network, images = scalar(Triple()).float(), torch.rand(2, 4)
    for method in ("ibp", "crown-ibp", "best"):
        with pytest.raises(UnsupportedLayer, match="Triple"):
            upper_bound(network, images, 0.1, method=method)
        assert upper_bound(network, images, 0.1, method=method, arithmetic="plain").isfinite().all()

    @register(Triple)
    class Rounded(TripleRule):
        def sums(self, layer: Triple, live: Tensor) -> Sums:
            return Sums(terms=3 * live, fan_out=1, weight=live.new_tensor(3.0))  # none where the input is exactly zero

    for method in ("ibp", "crown-ibp", "best"):
        sound, plain = (
            upper_bound(network, images, 0.1, method=method, arithmetic=arithmetic) for arithmetic in ("sound", "plain")
        )
        torch.testing.assert_close(sound, plain, rtol=1e-5, atol=1e-5)
        assert (sound >= plain - 1e-6).all()


def test_a_monotone_layer_of_ones_own_says_that_it_rounds_nothing() -> None:
    register(nn.Hardtanh)(type("Plain", (Monotone,), {}))
    network, images = scalar(nn.Hardtanh()).float(), torch.rand(2, 4)
    for method in ("ibp", "best"):
        with pytest.raises(UnsupportedLayer, match="Hardtanh"):
            upper_bound(network, images, 0.1, method=method)
        assert upper_bound(network, images, 0.1, method=method, arithmetic="plain").isfinite().all()

    @register(nn.Hardtanh)
    class Clamp(Monotone):
        exact = True

    for method in ("ibp", "best"):
        sound, plain = (
            upper_bound(network, images, 0.1, method=method, arithmetic=arithmetic) for arithmetic in ("sound", "plain")
        )
        torch.testing.assert_close(sound, plain, rtol=1e-5, atol=1e-5)
    with pytest.raises(NoLinearRule):
        upper_bound(network, images, 0.1, method="crown-ibp")


def test_an_unfinished_rule_says_what_it_lacks() -> None:
    @register(nn.Tanh)
    class Nothing(Rule):
        pass

    @register(nn.Sigmoid)
    class Half(Affine):
        pass

    with pytest.raises(UnsupportedLayer, match="Nothing"):
        interval(nn.Tanh(), box())
    with pytest.raises(UnsupportedLayer, match=r"Half.*apply_absolute\(\)"):
        interval(nn.Sigmoid(), box())


def test_a_monotone_layer_that_works_in_place_leaves_the_box_alone() -> None:
    @register(nn.ELU)
    class EluRule(Monotone):
        pass

    mixed = Box.ball(torch.rand(2, 4), 0.1, points=-torch.rand(3, 4))
    before = mixed.centre.clone()
    output = interval(Residual(nn.ELU(inplace=True)), mixed)
    assert torch.equal(mixed.centre, before)
    torch.testing.assert_close(output.points, F.elu(before[:3]) + before[:3])


def test_the_last_registration_wins() -> None:
    @register(nn.ReLU)
    class Wrong(Monotone):
        def interval(self, layer: nn.Module, box: Box) -> Box:
            return Box(box.centre * 0 + 7, box.radius)

    assert (interval(nn.ReLU(), box()).centre == 7).all()


def test_a_subclass_with_the_same_forward_inherits_the_rule() -> None:
    class Named(nn.Linear):
        pass

    class Chain(nn.Sequential):
        pass

    layer = Named(4, 1).double()
    images = torch.rand(2, 4, dtype=torch.float64)
    torch.testing.assert_close(upper_bound(Chain(layer), images, 0.0, arithmetic="plain"), layer(images)[:, 0])


def test_a_subclass_with_another_forward_needs_its_own_rule() -> None:
    class Squared(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) ** 2

    class Reversed(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            for layer in reversed(self):
                x = layer(x)
            return x

    for layer in (Squared(4, 1).double(), Reversed(nn.Linear(4, 4), nn.ReLU()).double()):
        with pytest.raises(UnsupportedLayer, match=type(layer).__name__):
            interval(layer, box())

    @register(Squared)
    class SquaredRule(Rule[Squared]):
        def interval(self, layer: Squared, box: Box) -> Box:
            return Box(box.centre[:, :1], box.radius[:, :1])

    interval(Squared(4, 1).double(), box())


@pytest.mark.parametrize("kind", ["forward", "pre"])
@pytest.mark.parametrize("place", ["layer", "container", "nested"])
def test_hooks_are_refused(kind: str, place: str) -> None:
    inner = nn.Sequential(nn.ReLU())
    network = scalar(Residual(inner)).float()
    layer = {"layer": network[2], "container": network, "nested": inner}[place]
    if kind == "forward":
        handle = layer.register_forward_hook(lambda module, inputs, output: output + 100)
    else:
        handle = layer.register_forward_pre_hook(lambda module, inputs: inputs[0] + 100)
    for method in ("ibp", "crown-ibp", "best"):
        with pytest.raises(UnsupportedLayer):
            upper_bound(network, torch.rand(2, 4), 0.1, method=method)
    handle.remove()
    upper_bound(network, torch.rand(2, 4), 0.1)


def test_a_forward_put_on_the_instance_is_refused() -> None:
    layer = nn.ReLU()
    layer.forward = lambda x: x + 100
    with pytest.raises(UnsupportedLayer, match="ReLU"):
        interval(layer, box())


def test_parametrised_weights_are_refused_until_they_are_fixed() -> None:
    """In float64 they would be computed anew, and round otherwise than those that are deployed."""
    layer = weight_norm(nn.Linear(4, 1))
    with pytest.raises(NotCovered, match="ParametrizedLinear"):
        upper_bound(nn.Sequential(nn.Flatten(), layer), torch.rand(2, 1, 2, 2), 0.1)
    remove_parametrizations(layer, "weight")
    x = torch.rand(2, 1, 2, 2)
    network = nn.Sequential(nn.Flatten(), layer)
    assert (upper_bound(network, x, 0.1) >= network(x)[:, 0]).all()


@pytest.mark.parametrize("method", ["ibp", "best"])
@pytest.mark.parametrize(
    "layer",
    [
        nn.LeakyReLU(1e-40),
        nn.BatchNorm2d(1, eps=1e-44),
        nn.BatchNorm2d(1, eps=0.0),  # with a variance of 1e-40
        nn.BatchNorm2d(1, eps=1e-12),  # with a weight of 1e-39
    ],
)
def test_numbers_that_float32_can_hardly_hold_are_refused(layer: nn.Module, method) -> None:
    if isinstance(layer, nn.BatchNorm2d):
        assert layer.running_var is not None
        layer.running_var.fill_(1e-40)
        nn.init.constant_(layer.weight, 1e-39 if layer.eps == 1e-12 else 1.0)
    network = nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 1)).eval()
    with pytest.raises(UnsupportedLayer, match=r"too small for float32|below 1.2e-38"):
        upper_bound(network, torch.rand(2, 1, 2, 2), 0.1, method=method)
