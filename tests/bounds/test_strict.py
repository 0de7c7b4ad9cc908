"""Where certificates are computed: in float32 as IEEE defines it, whatever the settings around are."""

import pytest
import torch
from torch import nn

from prood.bounds import NegativeLinear, Normalise, NotCovered, strict, upper_bound
from prood.bounds.rounding import check_deployed

CPU = torch.device("cpu")


def every_setting() -> dict[str, object]:
    backends = torch.backends
    nnpack = backends.nnpack.set_flags(True)[0]
    backends.nnpack.set_flags(nnpack)
    values = {"nnpack": nnpack, "autocast": torch.is_autocast_enabled("cpu"), "cudnn": backends.cudnn.enabled}
    knobs = {"cuda": backends.cuda.matmul, "cudnn.conv": getattr(backends.cudnn, "conv", None)}
    knobs |= {kind: getattr(backends.mkldnn, kind, None) for kind in ("matmul", "conv")}
    for name, knob in knobs.items():
        values[name] = getattr(knob, "fp32_precision", None)
    try:
        values["older interface"] = torch.get_float32_matmul_precision(), backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the newer one was used
        values["older interface"] = None
    try:
        values["cudnn.allow_tf32"] = backends.cudnn.allow_tf32
    except RuntimeError:
        values["cudnn.allow_tf32"] = None
    return values


SETTINGS = {
    "default": lambda: None,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "tf32": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "older convolutions": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "newer convolutions": lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),
    "newer": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "newer on a CPU": lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("fails", [False, True])
def test_strict_restores_the_settings(setting: str, fails: bool) -> None:
    if setting.startswith("newer") and not hasattr(torch.backends.mkldnn, "matmul"):
        pytest.skip("this torch has no such setting")
    default = every_setting()
    SETTINGS[setting]()
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            before = every_setting()
            for _ in range(2):
                try:
                    with strict(CPU):
                        inside = every_setting()
                        assert not inside["nnpack"]
                        assert not inside["autocast"]
                        assert not inside["cudnn.allow_tf32"]
                        assert {inside[name] for name in ("cuda", "cudnn.conv", "matmul", "conv")} <= {"ieee", None}
                        assert inside["older interface"] in (None, ("highest", False))
                        assert nn.Linear(2, 2)(torch.rand(1, 2)).dtype == torch.float32
                        if fails:
                            raise KeyError
                except KeyError:
                    assert fails
                assert every_setting() == before
                assert nn.Linear(2, 2)(torch.rand(1, 2)).dtype == torch.bfloat16
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True
        for name, knob in (
            ("cuda", torch.backends.cuda.matmul),
            ("matmul", getattr(torch.backends.mkldnn, "matmul", None)),
        ):
            if hasattr(knob, "fp32_precision"):
                knob.fp32_precision = default[name]
    assert every_setting() == default


def test_a_bound_is_the_same_under_autocast() -> None:
    torch.manual_seed(0)
    net, images = nn.Sequential(nn.Linear(9, 5), nn.ReLU(), NegativeLinear(5)), torch.rand(4, 9)
    outside = upper_bound(net, images, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(upper_bound(net, images, 0.1), outside)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_are_refused(dtype: torch.dtype) -> None:
    net, images = nn.Sequential(Normalise([0.5], [0.5]), nn.Flatten(), nn.Linear(4, 1)), torch.rand(2, 1, 2, 2)
    check_deployed(net, images)
    with pytest.raises(NotCovered, match=rf"float32.*{dtype}"):
        check_deployed(net, images.to(dtype))
    net[0].to(dtype)  # a buffer only
    with pytest.raises(NotCovered):
        upper_bound(net, images, 0.1)


def test_bounds_are_not_computed_where_subnormal_numbers_are_dropped() -> None:
    net, images = nn.Linear(2, 1), torch.rand(1, 2)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        with pytest.raises(NotCovered, match="set_flush_denormal"):
            upper_bound(net, images, 0.1)
    finally:
        torch.set_flush_denormal(False)
    upper_bound(net, images, 0.1)
