from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from prood.data import generator
from prood.data.augment import OPERATIONS, operate
from prood.data.augment.operations import by_rows, for_all, steps
from prood.errors import BadValue

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 13, 20), (1, 20, 13), (3, 2, 5), (1, 1, 1)]


def everywhere(images: Tensor, name: str, value: float) -> Tensor:
    codes = torch.full((len(images),), OPERATIONS[name])
    return operate(images, codes, torch.full((len(images),), value, dtype=torch.float64))


def mixed(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Every operation, with values that it may take."""
    random = generator(seed)
    codes = torch.randint(0, len(OPERATIONS), (count,), generator=random)
    unit = torch.rand(count, generator=random, dtype=torch.float64)
    scale = {"Solarize": 256.0, "Rotate": 360.0, "TranslateX": 30.0, "TranslateY": 30.0}
    values = torch.tensor([scale.get(name, 1.9) for name in OPERATIONS], dtype=torch.float64)[codes] * unit
    return codes, torch.where(codes == OPERATIONS["Posterize"], torch.ceil(unit * 8), values)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_that_of_pillow_byte_for_byte(
    name: str, shape: tuple[int, int, int], pillow: SimpleNamespace
) -> None:
    images = pillow.images(2, *shape)
    for magnitude in range(-9, 10):
        value = pillow.value(name, magnitude, shape[2], shape[1])
        assert torch.equal(everywhere(images, name, value), pillow.operate(images, name, value)), value


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_does_something(name: str, pillow: SimpleNamespace) -> None:
    images = pillow.images(2, 3, 32, 32)[4:6] // 2 + 30  # narrow, so that there is contrast to gain
    changed = not torch.equal(everywhere(images, name, pillow.value(name, 7, 32, 32)), images)
    assert changed == (name != "Identity")


@given(st.sampled_from(["ShearX", "ShearY", "Rotate"]), st.floats(-400, 400), st.sampled_from(SHAPES[:4]))
def test_shear_and_rotation_at_any_value(
    pillow: SimpleNamespace, name: str, value: float, shape: tuple[int, int, int]
) -> None:
    images = pillow.images(1, *shape)[:2]
    value = value if name == "Rotate" else value / 400
    assert torch.equal(everywhere(images, name, value), pillow.operate(images, name, value))


@given(st.sampled_from(["TranslateX", "TranslateY"]), st.integers(-400, 400), st.sampled_from(SHAPES[:4]))
def test_translation_by_tenths_and_halves(
    pillow: SimpleNamespace, name: str, tenths: int, shape: tuple[int, int, int]
) -> None:
    images = pillow.images(1, *shape)[:2]
    assert torch.equal(everywhere(images, name, tenths / 10), pillow.operate(images, name, tenths / 10))


@given(
    st.sampled_from(["Contrast", "Color", "Brightness", "Sharpness"]),
    st.floats(0, 2, width=32),
    st.sampled_from(SHAPES[:4]),
)
def test_blends_at_any_factor(pillow: SimpleNamespace, name: str, factor: float, shape: tuple[int, int, int]) -> None:
    images = pillow.images(1, *shape)
    assert torch.equal(everywhere(images, name, factor), pillow.operate(images, name, factor))


@pytest.mark.parametrize("degrees", [-90, 0, 90, 180, 270, 360])
def test_right_angles(degrees: float, pillow: SimpleNamespace) -> None:
    for shape in SHAPES:
        images = pillow.images(1, *shape)
        assert torch.equal(everywhere(images, "Rotate", degrees), pillow.operate(images, "Rotate", degrees))


@pytest.mark.parametrize("bits", range(1, 9))
def test_posterize_keeps_any_number_of_bits(bits: int, pillow: SimpleNamespace) -> None:
    images = pillow.images(1, 3, 8, 8)
    assert torch.equal(everywhere(images, "Posterize", bits), pillow.operate(images, "Posterize", bits))


@pytest.mark.slow
def test_autocontrast_of_every_range_of_bytes(pillow: SimpleNamespace) -> None:
    """Where the stretched value is a whole number, rounding in float64 decides: all pairs of lowest and highest."""
    pairs = torch.combinations(torch.arange(256), 2)[::7]
    ramp = torch.arange(256) * torch.ones(len(pairs), 1, dtype=torch.int64)
    images = ramp.clamp(pairs[:, :1], pairs[:, 1:]).to(torch.uint8).reshape(-1, 1, 16, 16)
    assert torch.equal(everywhere(images, "AutoContrast", 0), pillow.operate(images, "AutoContrast", 0))


@pytest.mark.parametrize("shape", SHAPES)
def test_both_ways_are_one_and_rows_are_independent(shape: tuple[int, int, int], pillow: SimpleNamespace) -> None:
    images = pillow.images(30, *shape)
    codes, values = mixed(len(images), 4)
    plan = steps(codes, values, *shape[1:])
    result, before = by_rows(images, plan), images.clone()
    assert torch.equal(for_all(images, plan), result)
    assert torch.equal(images, before)
    for i in range(0, len(images), 7):
        assert torch.equal(by_rows(images[i : i + 1], plan[i : i + 1])[0], result[i])
    order = torch.randperm(len(images), generator=generator(1))[:50]
    assert torch.equal(by_rows(images[order], plan[order]), result[order])


def test_what_a_compiler_is_given_to_do_has_the_same_result(
    pillow: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products in two exact parts are rounded like one product."""
    images = pillow.images(60, 3, 16, 16)
    codes, values = mixed(len(images), 5)
    plan = steps(codes, values, 16, 16)
    expected = for_all(images, plan)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(for_all(images, plan), expected)


def test_no_images_and_no_rows_to_change() -> None:
    nothing = torch.zeros(0, 3, 4, 4, dtype=torch.uint8)
    assert operate(nothing, torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)).shape == (
        0,
        3,
        4,
        4,
    )


def test_refuses_a_code_that_there_is_not() -> None:
    image = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    for code in (-1, len(OPERATIONS)):
        with pytest.raises(BadValue, match="OPERATIONS"):
            operate(image, torch.tensor([code]), torch.zeros(1, dtype=torch.float64))
