"""Images are bounded a few at a time: nobody sees it, except by the memory that is used."""

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import BlockedLinear, Budget, NegativeLinear, Normalise, upper_bound
from prood.bounds.memory import HELD, parts, values
from prood.errors import BadValue


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [Normalise([0.5], [0.25]), nn.AvgPool2d(2), nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), BlockedLinear(27, 5), nn.ReLU(), NegativeLinear(5)).eval()


VALUES = 144 + 144 + 36 + 3 * (3 * 9) + 2 * 5 + 1  # the image and what each layer makes of it


def test_what_the_layers_give_is_counted_and_leaves_no_trace() -> None:
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert values(net, torch.rand(1, 1, 12, 12)) == VALUES
    assert not any(layer._forward_hooks for layer in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_layer_that_looks_at_numbers_is_no_obstacle() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * float(x.max())

    assert values(Own(), torch.rand(1, 2, 3)) == 6


@pytest.mark.parametrize(("held", "sizes"), [(1, [1] * 7), (3, [3, 3, 1]), (7, [7]), (100, [7])])
def test_as_many_at_once_as_the_budget_allows(held: int, sizes: list[int]) -> None:
    images, budget = torch.rand(7, 1, 12, 12), Budget(values=HELD * VALUES * held)
    found = parts(network(), images, budget)
    assert [len(rows) for rows in found] == sizes
    assert torch.cat(found).tolist() == list(range(7))


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "best", "auto"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_each_image_keeps_its_radius_and_its_threshold(method: str, norm: str) -> None:
    net, images = network(), torch.rand(7, 1, 12, 12)
    radii, targets = torch.linspace(0, 0.3, 7, dtype=torch.float64), torch.linspace(-1, 4, 7)
    few, all_at_once = Budget(values=HELD * VALUES * 2, steps=3), Budget(values=1 << 40, steps=3)
    for eps in (radii, radii.tolist(), radii[:, None], 0.1, torch.tensor(0.1)):
        given = {"method": method, "norm": norm}
        one, other = (upper_bound(net, images, eps, threshold=targets, budget=b, **given) for b in (few, all_at_once))
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_as_many_radii_as_a_part_has_are_refused() -> None:
    with pytest.raises(BadValue, match="got 2 for 7 images"):
        upper_bound(network(), torch.rand(7, 1, 12, 12), torch.rand(2), budget=Budget(values=HELD * VALUES * 2))
