import pytest
import torch
from torch import nn

from prood.errors import BadValue, ProodError, UnknownName, Unsupported
from prood.models import Discriminator, ProoD, architecture, architectures, build, discriminator, small, spec_of

SMALL = {"name": "small", "classes": 3, "width": 2}
TINY = {"name": "discriminator", "size": "digits", "image": [1, 8, 8]}


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "_BUILDERS", dict(architectures._BUILDERS))


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "resnet18", "classes": 7},
        {"name": "resnet50", "classes": 7},
        SMALL,
        TINY,
        {"name": "prood", "classifier": SMALL, "discriminator": TINY},
    ],
)
def test_build_and_describe(spec: dict) -> None:
    with torch.device("meta"):
        model = build(spec)
    assert spec_of(model) == spec
    assert build({"name": "small"}) is not build({"name": "small"})


def test_what_build_makes_is_what_the_function_makes() -> None:
    torch.manual_seed(0)
    by_name = build(SMALL)
    torch.manual_seed(0)
    by_hand = small(3, width=2)
    for one, other in zip(by_name.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(one, other)
    assert isinstance(build(TINY), Discriminator)


def test_a_joint_model_is_described_by_its_parts() -> None:
    """Also one that was put together by hand from built parts."""
    model = ProoD(build(SMALL), build(TINY), shift=2.0)
    assert spec_of(model) == {"name": "prood", "classifier": SMALL, "discriminator": TINY}


def test_the_spec_is_a_copy() -> None:
    spec = dict(SMALL)
    model = build(spec)
    spec["width"] = 99
    assert spec_of(model)["width"] == 2


def test_a_network_of_ones_own() -> None:
    @architecture("mine")
    def mine(features: int, classes: int = 2) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(features, classes))

    model = build({"name": "mine", "features": 6})
    assert model(torch.rand(4, 1, 2, 3)).shape == (4, 2)
    assert spec_of(model) == {"name": "mine", "features": 6}
    assert mine(6)[1].in_features == 6  # the decorator gives the function back


@pytest.mark.parametrize("spec", [{"name": "resnet1001"}, {}, {"name": None}, {"name": ["small"]}])
def test_an_unknown_name_lists_the_known_ones(spec: dict) -> None:
    with pytest.raises(UnknownName, match=r"resnet18.*@prood\.models\.architecture"):
        build(spec)


@pytest.mark.parametrize("spec", ["small", None, ["small"], 3])
def test_what_is_no_spec_is_refused(spec: object) -> None:
    with pytest.raises(BadValue):
        build(spec)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "small", "depth": 3},
        {"name": "small", "classes": "ten"},
        {"name": "small", "classes": -1},
        {"name": "discriminator", "size": "S", "image": 32},
        {"name": "prood", "classifier": SMALL},
    ],
)
def test_arguments_that_do_not_fit(spec: dict) -> None:
    with pytest.raises(BadValue, match=f"'{spec['name']}'") as caught:
        build(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [{"discriminator": SMALL}, {"classifier": "small"}, {"discriminator": {"name": "x"}}])
def test_parts_that_do_not_fit(part: dict) -> None:
    with pytest.raises(ProodError):
        build({"name": "prood", "classifier": SMALL, "discriminator": TINY} | part)


def test_the_functions_themselves_make_what_can_be_described() -> None:
    model = ProoD(small(3, width=2), discriminator("digits", image=[1, 8, 8]))
    assert spec_of(model) == {"name": "prood", "classifier": SMALL, "discriminator": TINY}


@pytest.mark.parametrize("model", [nn.Linear(2, 2), ProoD(nn.Linear(2, 2), discriminator("digits", image=(1, 8, 8)))])
def test_a_model_that_no_registered_architecture_built(model: nn.Module) -> None:
    with pytest.raises(Unsupported, match=r"Linear.*@prood\.models\.architecture"):
        spec_of(model)
