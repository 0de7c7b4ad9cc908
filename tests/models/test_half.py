"""Half precision on disk: the file is half as large, and what is certified is what is loaded."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import prood
from prood.errors import Damaged, Unsupported
from prood.models import Discriminator, Metadata, ProoD, build, fingerprint, load, read_metadata, save
from prood.models.files import rounded

FACTS: dict[str, Any] = {"classes": ["a", "b", "c"], "eps": 0.01, "threshold": 0.7, "accept": 0.95}


@pytest.fixture
def model() -> ProoD:
    """Weights that float16 does not hold exactly, and statistics that are not at their initial values."""
    torch.manual_seed(0)
    g = build({"name": "discriminator", "size": "digits", "image": [1, 8, 8], "mean": [0.3], "std": [0.7]})
    f = build({"name": "small", "classes": 3, "width": 4})
    f.train()(torch.rand(8, 1, 8, 8))
    assert isinstance(g, Discriminator)
    with torch.no_grad():
        for parameter in [*f.parameters(), *g.parameters()]:
            parameter += 0.1 * torch.randn_like(parameter)
    return ProoD(f, g, shift=1.7).eval()


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_what_is_rounded_and_what_is_not(model: ProoD, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(model, path, half=True, **FACTS)
    stored = load_file(path)
    kinds = {torch.float16: 0, torch.float32: 0, torch.int64: 0}
    for name, value in model.state_dict().items():
        kinds[stored[name].dtype] += 1
        if not value.is_floating_point():
            assert stored[name].dtype == value.dtype
            assert torch.equal(stored[name], value)
        elif value.ndim >= 2:
            assert torch.equal(stored[name], value.half())
        else:
            assert stored[name].dtype == torch.float32
            assert torch.equal(stored[name], value)
    assert all(kinds.values())
    assert stored["discriminator.tail.1.log_weight"].dtype == torch.float16
    assert stored["shift"].dtype == torch.float32
    save(model, tmp_path / "whole.safetensors", **FACTS)
    assert path.stat().st_size < 0.6 * (tmp_path / "whole.safetensors").stat().st_size


def test_what_is_loaded_is_float32_and_exactly_what_is_stored(model: ProoD, tmp_path: Path) -> None:
    save(model, tmp_path / "model.safetensors", half=True)
    again, stored = load(tmp_path)[0], load_file(tmp_path / "model.safetensors")
    for name, value in again.state_dict().items():
        assert value.dtype == (torch.float32 if value.is_floating_point() else torch.int64)
        assert torch.equal(value.double(), stored[name].double())
    images = torch.rand(4, 1, 8, 8)
    assert not torch.equal(again(images), model(images))  # it did round something
    assert (again.confidence(images) <= again.upper_bound(images, 0.02)).all()  # type: ignore[operator]


def test_saved_again_it_is_the_same_file(model: ProoD, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.safetensors" for number in range(3)]
    save(model, paths[0], half=True, **FACTS)
    save(load(paths[0])[0], paths[1], half=True, **FACTS)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    save(load(paths[0])[0], paths[2], **FACTS)
    assert fingerprint(load(paths[2])[0]) == fingerprint(load(paths[0])[0])


def test_rounded_is_what_will_be_loaded(model: ProoD, tmp_path: Path) -> None:
    before = weights(model)
    model.about = Metadata({}, classes=["a", "b", "c"], threshold=0.7)
    model.train()
    short = rounded(model)
    assert not any(part.training for part in short.modules())
    assert model.training
    save(model, tmp_path / "model.safetensors", half=True)
    again = load(tmp_path)[0]
    assert fingerprint(short) == fingerprint(again) != fingerprint(model)
    images = torch.rand(4, 1, 8, 8)
    assert torch.equal(short(images), again(images))
    assert (short.classes, short.threshold) == (None, None)
    assert fingerprint(rounded(short)) == fingerprint(short)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_rounded_needs_no_registered_architecture() -> None:
    model = nn.Sequential(nn.Linear(3, 2)).double()
    short = rounded(model)
    assert torch.equal(short[0].weight, model[0].weight.half().float())  # type: ignore[index]
    assert torch.equal(short[0].bias, model[0].bias.float())  # type: ignore[index]


@pytest.mark.parametrize(
    ("value", "said"), [(7e4, "70000"), (-65520.0, "-65520"), (float("nan"), "nan"), (float("inf"), "inf")]
)
def test_a_weight_that_float16_cannot_hold(model: ProoD, tmp_path: Path, value: float, said: str) -> None:
    with torch.no_grad():
        model.classifier[1].weight[0, 0, 0, 0] = value  # type: ignore[index]
    for act in (lambda: save(model, tmp_path / "model.safetensors", half=True), lambda: rounded(model)):
        with pytest.raises(Unsupported, match=rf"{said}.*classifier\.1\.weight.*half=False$"):
            act()
    assert not list(tmp_path.iterdir())
    save(model, tmp_path / "model.safetensors")


def test_the_largest_float16_and_large_biases_are_held(model: ProoD, tmp_path: Path) -> None:
    with torch.no_grad():
        model.classifier[1].weight[0, 0, 0, 0] = 65504.0  # type: ignore[index]
        model.classifier[-1].bias[0] = 1e30  # type: ignore[index]
    save(model, tmp_path / "model.safetensors", half=True)
    again = load(tmp_path)[0]
    assert again.classifier[1].weight[0, 0, 0, 0] == 65504.0  # type: ignore[index,union-attr]
    assert again.classifier[-1].bias[0] == torch.tensor(1e30)  # type: ignore[index,union-attr]


def test_types_that_float32_cannot_hold_exactly_are_refused(model: ProoD, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(model, path)
    with safe_open(path, "pt") as opened:
        about = json.loads(opened.metadata()["prood"])
    del about["sha256"]  # else it is refused before anybody looks at the types
    facts = {"prood": json.dumps(about)}
    for dtype in (torch.float64, torch.int64):
        save_file(load_file(path) | {"classifier.1.weight": torch.zeros(4, 1, 5, 5, dtype=dtype)}, path, facts)
        with pytest.raises(Damaged, match=rf"classifier\.1\.weight.*{dtype}.*torch\.float32"):
            load(path)
    model.double()
    save(model, tmp_path / "model.safetensors", half=True)
    assert next(load(tmp_path)[0].parameters()).dtype == torch.float32


# The threshold and the names of the classes


def test_a_loaded_joint_model_has_its_classes_and_threshold(model: ProoD, tmp_path: Path) -> None:
    assert (model.classes, model.threshold) == (None, None)
    written = save(model, tmp_path / "model.safetensors", **FACTS)
    assert (written.threshold, written.accept) == (0.7, 0.95)
    again, about = prood.load(str(tmp_path)), load(tmp_path)[1]
    assert again.about == about
    assert (again.classes, again.threshold, again.shift) == (("a", "b", "c"), 0.7, model.shift)
    assert (about.threshold, about.accept) == (0.7, 0.95)
    assert set(again.state_dict()) == set(model.state_dict())
    assert fingerprint(again) == fingerprint(model)
    assert again.architecture == model.architecture


def test_a_file_without_a_threshold(model: ProoD, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(model, path)
    # As Prood wrote it before there were thresholds.
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].replace(rb"\"threshold\": null, \"accept\": null, ", b"")
    header = re.sub(rb', \\"sha256\\": \\"[0-9a-f]{64}\\"', b"", header)
    assert len(header) < length
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    assert (read_metadata(path).threshold, read_metadata(path).accept) == (None, None)
    again = prood.load(str(path))
    assert (again.classes, again.threshold) == (None, None)


@pytest.mark.parametrize("threshold", [float("nan"), float("inf")])
def test_a_threshold_is_a_finite_number(model: ProoD, tmp_path: Path, threshold: float) -> None:
    with pytest.raises(Unsupported):
        save(model, tmp_path / "model.safetensors", threshold=threshold)
    assert not list(tmp_path.iterdir())
