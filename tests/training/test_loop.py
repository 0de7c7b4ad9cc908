import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from prood.data import Augment, ImageSet
from prood.errors import Diverged
from prood.methods import Batch, CertifiedDiscriminator, Logs, Objective, OutlierExposure, Plain, Step
from prood.models import discriminator, load, small
from prood.progress import Lines
from prood.training import Run, TrainOptions, fit, loop
from prood.training.batches import Batches


def image_set(count: int = 24, seed: int = 0) -> ImageSet:
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=random)
    return ImageSet("random", images, torch.arange(count) % 3)


def run_fit(
    folder: Path, objective: Objective, model: nn.Module, *, console: Console | None = None, **options: Any
) -> str | None:
    """Train, and return what the objective has to complain of at the end."""
    settings = TrainOptions(**({"epochs": 2, "batch": 6, "checkpoint_seconds": 1e9} | options))
    batches = Batches(
        image_set(),
        image_set(seed=1),
        settings,
        augment=Augment(),
        noise=objective.needs_noise,
        device=torch.device("cpu"),
    )
    folder.mkdir(exist_ok=True)
    run = Run(folder)
    fit(model, objective, batches, settings, run, console=console or Console(quiet=True), title="test")
    last = run.last_metrics()
    assert last is not None
    return objective.diagnose(last)


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return small(3, width=3)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Run(folder).metrics.read_text().splitlines()]


@dataclass(frozen=True)
class Constant(Objective):
    """A loss of the step's epoch, with a weight in it so that there is something to differentiate."""

    complaints: dict[float, str] = field(default_factory=dict)

    def __call__(self, model: Any, batch_in: Batch, batch_out: Batch | None, step: Step) -> tuple[Tensor, Logs]:
        loss = step.epoch + 0 * sum(parameter.sum() for parameter in model.parameters())
        return loss, {"epoch_seen": step.epoch}

    def diagnose(self, logs: dict[str, float]) -> str | None:
        return self.complaints.get(logs["loss"])


def test_the_log_has_a_line_per_epoch_with_means_rate_and_place(tmp_path: Path) -> None:
    run_fit(tmp_path, Constant(), nn.Linear(2, 2), epochs=3, lr=0.5, decay_from=1)
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [4, 8, 12]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert [line["loss"] for line in lines] == [0.375, 1.375, 2.375]  # means over the four steps of an epoch
    assert [line["epoch_seen"] for line in lines] == [0.375, 1.375, 2.375]
    assert [line["lr"] for line in lines] == pytest.approx([0.5, 0.5 * 1.25 / 2, 0.5 * 0.25 / 2])
    assert all(line["seconds"] >= 0 for line in lines)


def test_long_epochs_are_looked_at_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "REPORT_STEPS", 3)
    run_fit(tmp_path, Constant(), nn.Linear(2, 2), epochs=2.5)
    assert [line["step"] for line in metrics(tmp_path)] == [3, 4, 7, 8, 10]
    assert metrics(tmp_path)[-1]["loss"] == 2.125


def test_the_schedule_reaches_the_optimiser(tmp_path: Path) -> None:
    """SGD on a loss with gradient 1 moves a weight by the sum of the learning rates."""

    @dataclass(frozen=True)
    class Slope(Objective):
        def __call__(self, model: Any, batch_in: Batch, batch_out: Batch | None, step: Step) -> tuple[Tensor, Logs]:
            return model.weight.sum(), {}

    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    options = {"lr": 0.1, "warmup": 1.0, "drops": (1.5,), "decay_from": 1.0}
    run_fit(tmp_path, Slope(), model, optimizer="sgd", momentum=0.0, **options)
    rates = [0.1 * factor for factor in (0, 0.25, 0.5, 0.75, 1, 0.75, 0.05, 0.025)]
    assert model.weight.item() == pytest.approx(-sum(rates), rel=1e-6)


def test_it_learns_and_returns_the_model_in_eval_mode(tmp_path: Path) -> None:
    model = classifier()
    assert run_fit(tmp_path, Plain(), model, epochs=30, lr=0.01) is None
    lines = metrics(tmp_path)
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"]
    assert not any(module.training for module in model.modules())


def test_the_same_seed_gives_the_same_weights_and_another_one_others(tmp_path: Path) -> None:
    models = [classifier() for _ in range(3)]
    for index, (model, seed) in enumerate(zip(models, (5, 5, 6), strict=True)):
        torch.rand(index)  # the global generator is nobody's business
        run_fit(tmp_path / str(index), Plain(), model, seed=seed)
    weights = [torch.cat([parameter.flatten() for parameter in model.parameters()]) for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_checkpoints_wait_for_their_time_and_the_last_step_needs_none(tmp_path: Path) -> None:
    run_fit(tmp_path / "never", Plain(), classifier(), checkpoint_seconds=1e9)
    assert not Run(tmp_path / "never").checkpoint.exists()
    model = classifier()
    run_fit(tmp_path / "often", Plain(), model, checkpoint_seconds=0)
    assert Run(tmp_path / "often").load_checkpoint(model, TrainOptions().make_optimizer(model)) == 4


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_run_continues_from_its_checkpoint_bit_by_bit(tmp_path: Path, optimizer: Any) -> None:
    options = {"epochs": 3, "optimizer": optimizer, "lr": 0.01, "checkpoint_seconds": 0}
    straight, stopped, resumed = classifier(), classifier(), classifier()
    run_fit(tmp_path / "straight", OutlierExposure(), straight, **options)
    run_fit(tmp_path / "stopped", OutlierExposure(), stopped, **options)
    # Its last checkpoint is that of step 8; here are also metrics of step 12, which the resumed run writes again.
    shutil.copytree(tmp_path / "stopped", tmp_path / "resumed")
    with torch.no_grad():
        for parameter in resumed.parameters():
            parameter.zero_()
    run_fit(tmp_path / "resumed", OutlierExposure(), resumed, **options)
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in straight.state_dict().items())
    assert [line["step"] for line in metrics(tmp_path / "resumed")] == [4, 8, 12]
    for one, two in zip(metrics(tmp_path / "straight"), metrics(tmp_path / "resumed"), strict=True):
        assert one | {"seconds": 0} == two | {"seconds": 0}


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_loss_that_is_no_number_ends_the_run_with_what_to_change(tmp_path: Path, optimizer: Any) -> None:
    with pytest.raises(Diverged, match=r"1e\+30"):
        run_fit(tmp_path, Plain(), classifier(), lr=1e30, optimizer=optimizer)
    assert not Run(tmp_path).metrics.exists()


# A discriminator that has gone constant


def constant_discriminator() -> nn.Module:
    torch.manual_seed(0)
    g = discriminator("digits", image=(1, 8, 8))
    nn.init.constant_(g.body[-1].bias, -1e3)
    return g


@pytest.mark.parametrize("bound", ["ibp", "crown-ibp"])
def test_a_constant_discriminator_is_noticed_once_and_within_an_epoch(
    tmp_path: Path, bound: Any, console: Console, said: Callable[[], str]
) -> None:
    complaint = run_fit(tmp_path, CertifiedDiscriminator(bound=bound), constant_discriminator(), console=console)
    assert complaint is not None
    assert "has gone constant (live hidden units 0%" in complaint
    assert said().strip() == f"warning: {complaint}"
    assert metrics(tmp_path)[0]["live"] == 0


def test_a_real_collapse_is_noticed(tmp_path: Path) -> None:
    """The paper's bound with a large radius, a large step and no ramp."""
    torch.manual_seed(0)
    g = discriminator("digits", image=(1, 8, 8))
    complaint = run_fit(tmp_path, CertifiedDiscriminator(eps=0.3, bound="ibp"), g, lr=0.03, epochs=6)
    assert complaint is not None
    assert "bound = 'crown-ibp'" in complaint
    assert g(torch.rand(9, 1, 8, 8)).std() < 1e-3


def test_recovery_is_announced_and_a_relapse_is_a_new_warning(
    tmp_path: Path, console: Console, said: Callable[[], str]
) -> None:
    complaints = {0.375: "it broke: fix it", 1.375: "it broke: fix it", 3.375: "it broke again: fix it"}
    last = run_fit(tmp_path, Constant(complaints), nn.Linear(2, 2), console=console, epochs=4)
    assert said().splitlines() == ["warning: it broke: fix it", "step 12: recovered", "warning: it broke again: fix it"]
    assert last == "it broke again: fix it"


def test_a_run_that_recovered_ends_well(tmp_path: Path) -> None:
    assert run_fit(tmp_path, Constant({0.375: "it broke"}), nn.Linear(2, 2)) is None


# Precision, compilation, display


# In a process of its own, with the instruction set limited: some virtual machines announce AMX, which oneDNN then
# uses for bfloat16, and die of an illegal instruction. Compilation stops short of generating machine code, which takes
# a minute or two on a CPU; what can go wrong on our side, tracing and differentiating the objective, happens before.
MODES = """
import functools, sys, torch
from prood.training import load_recipe, train
if sys.argv[3] != "inductor":
    torch.compile = functools.partial(torch.compile, backend=sys.argv[3])
recipe, folder = load_recipe(sys.argv[1]), sys.argv[2]
modes = {"float32": [], "bfloat16": ["train.precision=bfloat16"], "compiled": ["train.compile=true"]}
modes["untrained"] = ["train.lr=1e-30"]
for method in ("plain", "oe", "discriminator", "prood"):
    g = {"discriminator": f"{folder}/discriminator-float32"} if method == "prood" else {}
    for mode, settings in modes.items():
        changed = recipe.with_settings(method, [*settings, "train.epochs=0.5", "augment.degrees=0"])  # two steps
        train(method, changed, f"{folder}/{method}-{mode}", device="cpu", **g)
"""


def run_modes(toml: Path, folder: Path, backend: str) -> Path:
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MODES, str(toml), str(folder), backend]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def close(one: Path, two: Path, *, loss: float, rtol: float, atol: float) -> None:
    """The losses of the two runs, and all the weights of their models."""
    a, b = Run(one).last_metrics(), Run(two).last_metrics()
    assert a is not None
    assert b is not None
    assert b["loss"] == pytest.approx(a["loss"], rel=loss)
    expected = load(one)[0].state_dict()
    for name, value in load(two)[0].state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=rtol, atol=atol, msg=lambda text, name=name: name + text)


@pytest.fixture(scope="module")
def modes(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_modes(toml, tmp_path_factory.mktemp("modes"), "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["plain", "oe", "discriminator", "prood"])
def test_bfloat16_trains_weights_that_stay_in_float32(method: str, modes: Path) -> None:
    exact, half = modes / f"{method}-float32", modes / f"{method}-bfloat16"
    close(exact, half, loss=0.05, rtol=0.2, atol=0.05)
    assert Run(half).last_metrics()["loss"] != Run(exact).last_metrics()["loss"]  # type: ignore[index]
    untrained, _ = load(modes / f"{method}-untrained")
    for name, parameter in load(half)[0].named_parameters():
        assert parameter.dtype == torch.float32
        moved = not torch.equal(parameter, untrained.get_parameter(name))
        assert moved != name.startswith("discriminator."), name


@pytest.mark.slow
@pytest.mark.parametrize("method", ["plain", "oe", "discriminator", "prood"])
def test_a_compiled_step_is_the_same_step(method: str, modes: Path) -> None:
    close(modes / f"{method}-float32", modes / f"{method}-compiled", loss=1e-5, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compile", [True, False])
def test_the_objective_is_compiled_if_asked_for(compile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda objective: compiled.append(objective) or objective)
    run_fit(tmp_path, Plain(), classifier(), compile=compile)
    assert compiled == ([Plain()] if compile else [])


@pytest.mark.skipif("PROOD_TEST_COMPILE" not in os.environ, reason="takes minutes on a CPU: set PROOD_TEST_COMPILE=1")
def test_a_step_in_compiled_machine_code_is_the_same_step(toml: Path, tmp_path: Path) -> None:
    run_modes(toml, tmp_path, "inductor")
    for method in ("plain", "oe", "discriminator", "prood"):
        close(tmp_path / f"{method}-float32", tmp_path / f"{method}-compiled", loss=1e-4, rtol=1e-3, atol=1e-4)


def test_a_terminal_gets_a_bar_with_steps_and_loss(tmp_path: Path) -> None:
    screen = StringIO()
    run_fit(
        tmp_path, Constant(), nn.Linear(2, 2), console=Console(file=screen, force_terminal=True, width=120), epochs=2
    )
    assert "8/8 steps" in screen.getvalue()
    assert "loss 1.3750" in screen.getvalue()


def test_a_file_gets_a_line_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Lines", partial(Lines, every=0.0))
    file = StringIO()
    run_fit(tmp_path, Constant(), nn.Linear(2, 2), console=Console(file=file), epochs=2)
    lines = file.getvalue().splitlines()
    assert len(lines) == 8
    assert lines[3].startswith("test: 4/8 steps, loss ")
    assert lines[7].startswith("test: 8/8 steps, loss 0.3750, ")  # of the last look, after the first epoch
    file = StringIO()
    monkeypatch.undo()
    run_fit(tmp_path / "again", Constant(), nn.Linear(2, 2), console=Console(file=file), epochs=2)
    assert file.getvalue() == ""  # that was over in no time
