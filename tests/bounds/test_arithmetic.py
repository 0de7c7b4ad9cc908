"""Where certificates are computed: in float32 as IEEE defines it, whatever the settings around are, in any thread."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from prood.bounds import NegativeLinear, Normalise, NotCovered, arithmetic, strict, upper_bound
from prood.bounds.arithmetic import check_deployed, searching

CPU, GPU = torch.device("cpu"), torch.device("cuda")  # of which only the settings are needed
Other = Callable[[Callable[[], object]], object]


def every_setting() -> dict[str, object]:
    backends = torch.backends
    nnpack = torch._C._get_nnpack_enabled()
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


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    before = every_setting()
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.nnpack.set_flags(before["nnpack"])
    torch.backends.cudnn.enabled = True
    for name, knob in (("cuda", torch.backends.cuda.matmul), ("cudnn.conv", torch.backends.cudnn.conv)):
        knob.fp32_precision = before[name]
    for kind in ("matmul", "conv"):
        if hasattr(torch.backends.mkldnn, kind):
            getattr(torch.backends.mkldnn, kind).fp32_precision = before[kind]


@pytest.fixture
def other_thread() -> Iterator[Other]:
    """Carries out what it is given in another thread, always the same one."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result()


@pytest.mark.parametrize("setting", ["medium", "newer", "newer on a CPU"])
def test_the_first_that_leaves_changes_nothing_for_the_others(setting: str, other_thread: Other) -> None:
    SETTINGS[setting]()
    users = every_setting()
    first, second = strict(CPU), strict(CPU)
    first.__enter__()
    other_thread(second.__enter__)
    inside = every_setting()
    first.__exit__(None, None, None)
    assert every_setting() == inside != users
    other_thread(lambda: second.__exit__(None, None, None))
    assert every_setting() == users


@pytest.mark.slow
def test_many_threads_with_every_setting() -> None:
    """Inside, at any moment, the arithmetic is strict; outside, when all have left, it is the user's."""
    for setting in SETTINGS.values():
        setting()
        users, wrong = every_setting(), []
        start = threading.Barrier(16)

        def work(
            number: int, users: object = users, wrong: list[object] = wrong, start: threading.Barrier = start
        ) -> None:
            start.wait()
            for turn in range(60):
                with strict(GPU if (number + turn) % 3 else CPU, transforms=(number + turn) % 5 == 0):
                    if number % 4 == 0:
                        with strict(CPU):
                            pass
                    if number % 4 == 1:
                        with searching(GPU):
                            pass
                    now = every_setting()
                    settings = {now[name] for name in ("cuda", "cudnn.conv", "matmul", "conv")} <= {"ieee", None}
                    cudnn = now["cudnn"] and (number + turn) % 3 and (number + turn) % 5
                    if (
                        not settings
                        or now["nnpack"]
                        or cudnn
                        or now["older interface"] not in (None, ("highest", False))
                    ):
                        wrong.append(now)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
        assert not wrong
        assert every_setting() == users


def test_cudnn_is_off_as_long_as_one_thread_proves(other_thread: Other) -> None:
    proof, quick = strict(GPU), strict(GPU, transforms=True)
    with quick:
        assert torch.backends.cudnn.enabled
        other_thread(proof.__enter__)
        assert not torch.backends.cudnn.enabled
        with searching(GPU):  # ours, while the other one proves
            assert not torch.backends.cudnn.enabled
        other_thread(lambda: proof.__exit__(None, None, None))
        assert torch.backends.cudnn.enabled
    with strict(GPU), strict(GPU), searching(GPU):
        assert torch.backends.cudnn.enabled


CHANGES = {
    "products": lambda: torch.set_float32_matmul_precision("medium"),
    "nnpack": lambda: torch.backends.nnpack.set_flags(True),
    "newer": lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_setting_that_is_changed_meanwhile_is_an_error_and_stays(change: str, other_thread: Other) -> None:
    torch.backends.nnpack.set_flags(False)
    if change == "newer" and not hasattr(torch.backends.mkldnn, "matmul"):
        pytest.skip("this torch has no such setting")
    others = strict(CPU)
    others.__enter__()
    with pytest.raises(NotCovered, match="another thread"), strict(CPU):  # noqa: PT012 – leaving is what raises
        other_thread(CHANGES[change])
        with strict(CPU):  # strict once more, which hides nothing from the others
            now = every_setting()
            assert (now["nnpack"], now["matmul"]) in ((False, "ieee"), (False, None))
    with pytest.raises(NotCovered, match="another thread"):
        others.__exit__(None, None, None)
    after = every_setting()
    asked = {"products": ("older interface", ("medium", True)), "nnpack": ("nnpack", True), "newer": ("matmul", "bf16")}
    name, value = asked[change]
    assert after[name] == value
    with strict(CPU):
        pass


def test_what_fails_inside_is_what_is_raised() -> None:
    with pytest.raises(KeyError), strict(CPU):  # noqa: PT012
        torch.set_float32_matmul_precision("medium")
        raise KeyError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ONEDNN_DEFAULT_FPMATH_MODE", "BF16"),
        ("DNNL_DEFAULT_FPMATH_MODE", "any"),
        ("ONEDNN_DEFAULT_FPMATH_MODE", "tf32"),
        ("MKL_BLAS_COMPUTE_MODE", "FLOAT_TO_BF16"),
        ("NVIDIA_TF32_OVERRIDE", "1"),
        ("CUBLAS_EMULATE_SINGLE_PRECISION", "1"),
    ],
)
def test_variables_that_take_digits_away_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    net, images = nn.Sequential(nn.Linear(9, 5), nn.ReLU(), NegativeLinear(5)), torch.rand(4, 9)
    monkeypatch.setenv(name, value)
    with pytest.raises(NotCovered, match=f"{name}='{value}'.*unset"):
        upper_bound(net, images, 0.1)
    upper_bound(net, images, 0.1, arithmetic="plain")
    for harmless in ("", *arithmetic.HARMLESS[name]):
        monkeypatch.setenv(name, harmless.upper())
        upper_bound(net, images, 0.1)
    monkeypatch.delenv(name)
    monkeypatch.setitem(arithmetic._AT_START, name, value)  # oneDNN has read it, and keeps it
    with pytest.raises(NotCovered, match=name):
        upper_bound(net, images, 0.1)


@pytest.mark.slow
def test_torch_s_own_variable_is_overruled() -> None:
    code = (
        "import torch; from prood.bounds import strict\n"
        "assert torch.get_float32_matmul_precision() != 'highest'\n"
        "with strict(torch.device('cpu')): assert torch.get_float32_matmul_precision() == 'highest'"
    )
    variables = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=variables)


@pytest.mark.slow
def test_workers_that_drop_subnormal_numbers_are_noticed() -> None:
    """They keep what the thread that started them had set; asking the caller's own thread is not enough."""
    code = (
        "import torch; from torch import nn; from prood.bounds import arithmetic, NotCovered\n"
        "torch.set_num_threads(2); flushes = torch.set_flush_denormal(True)\n"
        "torch.ones(1 << 20) * 3\n"
        "torch.set_flush_denormal(False)\n"
        "assert (torch.full((), 2.0**-140) * 1).view(torch.int32)\n"
        "assert arithmetic._flushes(torch.device('cpu')) or not flushes"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_the_arithmetic_of_this_machine_is_covered() -> None:
    check_deployed(nn.Linear(2, 1), torch.rand(1, 2))
