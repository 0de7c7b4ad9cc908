"""Requests that cannot be met are one line, and leave no file."""

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from prood.detector import Detector
from prood.errors import MissingPackage, ProodError, Refuted, Unsupported
from prood.export import check, export, write
from prood.export.write import classifier_model
from prood.models import ProoD, open_classifier
from prood.models.classifiers import compact
from prood.models.wrapped import trusting_code

from .conftest import digits_model


class Length(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1)[:, :3]


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3] if x.sum() > 0 else x.flatten(1)[:, 1:4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classifier", "said"),
    [
        (Length(), "fixed the number of images: write x"),
        (Branching(), "torch cannot export the classifier to ONNX: .*"),
    ],
)
def test_a_classifier_that_cannot_be_exported(classifier: nn.Module, said: str) -> None:
    with pytest.raises(Unsupported, match=said) as caught:
        classifier_model(classifier, torch.zeros(2, 1, 4, 4), 20)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("scripted", None),
        ("traced", r"torch cannot export .*aten\._convolution.*; wrap the same network as a \.pt2 of torch\.export"),
        ("open", None),
        ("fixed", r"takes batches of 2 only, .*Dim\.DYNAMIC"),
        (
            "onnx",
            r"a wrapped ONNX classifier cannot be exported, .*: wrap the same network as a \.pt2 of torch\.export",
        ),
    ],
)
def test_wrapped_classifiers(kind: str, said: str | None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    wrapped, _ = open_classifier(program(kind, tmp_path), (1, 28, 28))
    joint = ProoD(wrapped, digits_model().discriminator, 1.5).eval()
    if said is None:
        assert export(joint, tmp_path / "joint.onnx").images == 5
    else:
        with pytest.raises(Unsupported, match=said) as caught:
            export(joint, tmp_path / "joint.onnx")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "joint.onnx").exists()


@pytest.fixture(autouse=True)
def trusted() -> Iterator[None]:
    with trusting_code():
        yield


def program(kind: str, folder: Path) -> Path:
    """A small classifier as a file of somebody else's."""
    network = nn.Sequential(nn.Conv2d(1, 2, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)).eval()
    images = torch.rand(2, 1, 28, 28)
    axes = None if kind == "fixed" else ({0: torch.export.Dim.DYNAMIC},)
    path = folder / {"scripted": "model.pt", "traced": "model.pt", "onnx": "model.onnx"}.get(kind, "model.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own about its exporters
        if kind in ("scripted", "traced"):
            (torch.jit.script(network) if kind == "scripted" else torch.jit.trace(network, images)).save(path)
        elif kind == "onnx":
            torch.onnx.export(network, (images,), path, dynamic_shapes=axes, verbose=False)
        else:
            torch.export.save(torch.export.export(network, (images,), dynamic_shapes=axes), path)
    return path


@pytest.mark.slow
def test_a_residual_network(capfd) -> None:
    import onnxruntime

    torch.manual_seed(0)
    classifier = compact(4).eval()
    model = classifier_model(classifier, torch.zeros(2, 3, 32, 32), 20)
    assert capfd.readouterr() == ("", "")  # the exporter has nothing to tell the user
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = torch.rand(3, 3, 32, 32)
    (got,) = session.run(["logits"], {"images": x.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(got, classifier(x).numpy(), rtol=1e-4, atol=1e-4)
    assert all(entry.name.startswith("classifier/") for entry in model.graph.initializer)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("model.pt", {}, "must be called something.onnx, not model.pt"),
        ("model.onnx", {"opset": 17}, "must be one of 18 to 21, not 17"),
        ("there.onnx", {}, "there.onnx already exists"),
        ("folder.onnx", {"overwrite": True}, "folder.onnx already exists"),
    ],
)
def test_wrong_requests(name: str, options: dict, said: str, tmp_path: Path) -> None:
    (tmp_path / "there.onnx").write_text("mine")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ProodError, match=said):
        export(digits_model(), tmp_path / name, **options)
    assert (tmp_path / "there.onnx").read_text() == "mine"
    assert {entry.name for entry in tmp_path.iterdir()} == {"there.onnx", "folder.onnx"}


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_PACKAGES", ("onnx", "no_such_package"))
    with pytest.raises(MissingPackage, match=r"no_such_package.*'\.\[export\]'"):
        export(digits_model(), tmp_path / "model.onnx")


@pytest.mark.slow
def test_a_file_that_fails_its_check_gets_no_name(
    detector: Detector, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of what is built goes a file of other weights."""
    import onnx

    monkeypatch.setattr(write, "build", lambda *_: onnx.load(file))
    other = Detector(digits_model(seed=1))
    with pytest.raises(Refuted, match="ONNX"):
        export(other, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
    assert export(detector, tmp_path / "model.onnx").images == 5
    assert (tmp_path / "model.onnx").exists()
    export(detector, tmp_path / "model.onnx", overwrite=True)


@pytest.mark.slow
def test_the_check_finds_a_bound_that_is_too_low(detector: Detector, file: Path) -> None:
    sure = copy.deepcopy(detector.model).requires_grad_(False)
    sure.classifier[-1].weight.mul_(1000)
    sure.classifier[-1].bias.mul_(1000)
    higher = Detector(ProoD(sure.classifier, sure.discriminator, shift=9.0))
    images = torch.rand(3, 1, 28, 28)
    assert check(file, detector, images).upper_bound < 1e-6
    with pytest.raises(Refuted):
        check(file, higher, images)


@pytest.mark.slow
def test_the_check_finds_another_class(detector: Detector, file: Path) -> None:
    model = detector.model
    torch.manual_seed(0)
    head = nn.Sequential(*model.classifier, nn.Linear(8, 8, bias=False)).requires_grad_(False)
    head[-1].weight.copy_(torch.eye(8).roll(1, 0))
    with pytest.raises(Refuted):
        check(file, Detector(ProoD(head, model.discriminator, shift=1.5)), torch.rand(20, 1, 28, 28))


@pytest.mark.slow
def test_the_check_finds_values_that_are_off(detector: Detector, file: Path) -> None:
    model = detector.model
    lower = Detector(ProoD(model.classifier, model.discriminator, shift=1.0))
    with pytest.raises(Refuted, match=r"p_in.*upper_bound"):
        check(file, lower, torch.rand(3, 1, 28, 28))


def test_a_file_that_is_none(tmp_path: Path, detector: Detector) -> None:
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(Unsupported, match=r"ONNX.*model\.onnx"):
        check(tmp_path / "model.onnx", detector)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a detector that is elsewhere needs a GPU")
def test_a_detector_on_a_gpu_is_exported_and_stays_there(tmp_path: Path) -> None:
    detector = Detector(digits_model(), device="cuda")
    export(detector, tmp_path / "model.onnx")
    assert detector.device.type == "cuda"
    assert len(detector.predict(torch.rand(2, 1, 28, 28))) == 2
