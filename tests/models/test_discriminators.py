import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prood import bounds
from prood.bounds import Box, NegativeLinear, Normalise, UnsupportedLayer
from prood.errors import BadValue, UnknownName, Unsupported
from prood.models import Discriminator, discriminator
from prood.models.sizes import SIZES

# The architecture table of the paper's appendix: widths of the convolutions, features before and after the first
# linear layer, and the parameters in millions.
TABLE = {
    "S": ((128, 256, 256), 16384, 128, 2.986),
    "XS": ((64, 128, 128), 8192, 128, 1.272),
    "SR": ((128, 256, 256), 1024, 128, 1.020),
    "SR2": ((128, 256, 256), 4096, 128, 1.413),
    "XL_b": ((128, 128, 256, 256, 256), 65536, 512, 35.18),
    "C1": ((128, 128, 256, 256, 256), 65536, 512, 35.18),
    "C2": ((256, 256, 512, 512, 512), 131072, 1024, 140.7),
    "C3": ((256, 512, 512), 131072, 512, 70.66),
    "C3s": ((256, 512, 512), 32768, 128, 7.742),
    "C4": ((512, 1024, 512), 131072, 128, 26.23),
}


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def tiny(seed: int = 0) -> Discriminator:
    """For images of 8×8."""
    torch.manual_seed(seed)
    layers = [Normalise([0.5], [0.25]), nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()]
    return Discriminator(nn.Sequential(*layers, nn.Linear(64, 16), nn.ReLU(), NegativeLinear(16)))


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), *layers)


def test_the_table_has_every_size() -> None:
    assert set(TABLE) == {size for size in SIZES if not size.startswith(("digits", "photo"))}


@pytest.mark.parametrize("size", TABLE)
def test_sizes_are_those_of_the_paper(size: str) -> None:
    widths, features, hidden, millions = TABLE[size]
    with torch.device("meta"):
        model = discriminator(size)
        assert model(torch.empty(5, 3, 32, 32)).shape == (5,)
    expected = sum(9 * a * b + b for a, b in zip((3, *widths), widths, strict=False))
    expected += features * hidden + hidden + hidden + 1
    assert parameters(model) == expected
    assert float(f"{parameters(model) / 1e6:.4g}") == millions
    convolutions = [layer for layer in model.body if isinstance(layer, nn.Conv2d)]
    assert all(layer.kernel_size == (3, 3) and layer.padding == (1, 1) for layer in convolutions)
    assert sorted(layer.stride[0] for layer in convolutions)[-2:] == [1, 2]


def test_the_paper_s_networks_in_numbers() -> None:
    with torch.device("meta"):
        assert parameters(discriminator("S")) == 2_986_241
        large = discriminator("SR", image=(3, 224, 224))
        assert parameters(large) == 7_311_617
        assert large(torch.empty(1, 3, 224, 224)).shape == (1,)


@pytest.mark.parametrize("image", [(1, 28, 28), (3, 9, 13), (2, 4, 5)])
def test_other_images(image: tuple[int, int, int]) -> None:
    model = discriminator("digits", image=image)
    images = torch.rand(2, *image)
    assert model(images).shape == (2,)
    assert model.upper_bound(images, 0.1).shape == (2,)


@pytest.mark.parametrize(("size", "side"), [("SR", 4), ("S", 1), ("SR2", 4)])
def test_images_that_the_pooling_eats_up_are_refused(size: str, side: int) -> None:
    with pytest.raises(BadValue, match=rf"{side}×{side}.*'{size}'"):
        discriminator(size, image=(3, side, side))


def test_unknown_size() -> None:
    with pytest.raises(UnknownName, match=r"'XXL'.*SR"):
        discriminator("XXL")


def test_initialisation() -> None:
    model = discriminator("XS", image=(3, 8, 8))
    assert model.last.bias.tolist() == [3.0]
    assert model.last.log_weight.abs().max() <= 1 / math.sqrt(128)  # the paper's ±0.088
    assert (model.last.weight < 0).all()
    assert model.ceiling == 3.0


def test_normalisation_is_a_layer() -> None:
    model = discriminator("digits", image=(2, 8, 8), mean=[0.1, 0.2], std=[0.5, 2.0])
    assert model.body[0].mean.flatten().tolist() == pytest.approx([0.1, 0.2])
    assert model.body[0].std.flatten().tolist() == [0.5, 2.0]


@settings(max_examples=30)
@given(st.integers(0, 2**20), st.sampled_from([0.0, 1.0, 1e3, 1e6, -1e6]))
def test_nothing_exceeds_the_ceiling(seed: int, scale: float) -> None:
    """In float32 as deployed: the sum only ever adds non-positive numbers to the bias."""
    model = tiny(seed)
    with torch.no_grad():
        model.last.bias.normal_(std=5)
        g = model(torch.randn(64, 1, 8, 8) * scale)
    assert g.isfinite().all()
    assert (g <= model.last.bias).all()
    assert model.ceiling == model.last.bias.item()


def test_g_falls_without_limit_far_away() -> None:
    model = tiny()
    with torch.no_grad():
        directions = torch.rand(50, 1, 8, 8)
        values = torch.stack([model(directions * scale) for scale in (1e3, 1e4, 1e5, 1e6)])
    assert (values[0] < -10).all()
    assert (values[1:] < 5 * values[:-1]).all()


@pytest.mark.parametrize("last", [nn.LeakyReLU(0.1), nn.LeakyReLU(0.0), nn.Softplus(), nn.Identity(), nn.Linear(3, 3)])
def test_another_last_activation_is_refused(last: nn.Module) -> None:
    with pytest.raises(Unsupported, match=rf"nn.ReLU.*{type(last).__name__}"):
        Discriminator(chain(last, NegativeLinear(3)))


def test_a_subclass_of_relu_is_not_a_plain_one() -> None:
    class Shifted(nn.ReLU):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) - 1

    with pytest.raises(Unsupported, match="Shifted"):
        Discriminator(chain(Shifted(), NegativeLinear(3)))


@pytest.mark.parametrize(
    "network",
    [
        chain(nn.ReLU(), nn.Linear(3, 1)),
        chain(nn.ReLU(), NegativeLinear(3, 2)),
        chain(nn.ReLU(), NegativeLinear(3), nn.Identity()),
        chain(nn.ReLU()),
        nn.Sequential(nn.ReLU(), NegativeLinear(3)),
        nn.Sequential(),
    ],
)
def test_another_end_is_refused(network: nn.Sequential) -> None:
    with pytest.raises(Unsupported, match=r"NegativeLinear\(n"):
        Discriminator(network)


def test_only_a_plain_sequence_is_accepted() -> None:
    class Doubled(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    for network in (nn.Linear(3, 1), Doubled(*chain(nn.ReLU(), NegativeLinear(3)))):
        with pytest.raises(Unsupported, match=rf"nn.Sequential.*{type(network).__name__}"):
            Discriminator(network)  # type: ignore[arg-type]


def test_a_network_of_ones_own() -> None:
    torch.manual_seed(0)
    network = chain(nn.ReLU(inplace=True), NegativeLinear(3, bias=-1.0))
    model = Discriminator(network)
    images = torch.rand(6, 1, 2, 2)
    torch.testing.assert_close(model(images), network(images)[:, 0])
    torch.testing.assert_close(model.network(images), network(images))
    assert (model(images) <= -1).all()


@settings(max_examples=20)
@given(st.integers(0, 2**20), st.floats(0, 0.5), st.sampled_from(["ibp", "crown-ibp", "best"]))
def test_upper_bound(seed: int, eps: float, method: bounds.Method) -> None:
    model = tiny(seed).double()
    images = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    bound = model.upper_bound(images, eps, method=method, arithmetic="plain")
    assert bound.shape == (3,)
    assert (bound <= model.ceiling + 1e-9).all() or method == "crown-ibp"
    box = Box.ball(images, eps)
    for _ in range(3):
        place = (torch.rand_like(images) * 2 - 1).requires_grad_()
        for _ in range(4):
            g = model(box.middle + box.radius * place)
            assert (g <= bound + 1e-9).all()
            (gradient,) = torch.autograd.grad(g.sum(), place)
            place = gradient.sign().requires_grad_()
    torch.testing.assert_close(model.upper_bound(images, 0.0, method=method, arithmetic="plain"), model(images))


def test_bounds_of_a_discriminator_see_what_forward_sees() -> None:
    """A hook, or a subclass with its own forward, changes g but not the layers: both must be refused."""
    images = torch.rand(2, 1, 8, 8)
    for place in ("body", "tail", None):
        model = tiny()
        hooked = getattr(model, place) if place else model
        hooked.register_forward_hook(lambda module, inputs, output: output + 100)
        with pytest.raises(UnsupportedLayer):
            model.upper_bound(images, 0.1)

    class Louder(Discriminator):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) + 100

    with pytest.raises(UnsupportedLayer, match="Louder"):
        Louder(nn.Sequential(*tiny().body, *tiny().tail)).upper_bound(images, 0.1)


def test_the_bounds_room_takes_a_discriminator_as_it_is() -> None:
    model, images = tiny(), torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(bounds.upper_bound(model, images, 0.1), model.upper_bound(images, 0.1))
