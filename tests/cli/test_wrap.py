"""prood combine with somebody else's classifier, as a user meets it: every other command takes the folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import prood as package
from prood.detector import Detector
from prood.errors import Mismatch, Unsupported
from prood.models import ProoD, WrapOptions, discriminator, save, small
from prood.models.wrapped import read_classes
from prood.training import combine


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A discriminator, a classifier as .pt2, names, and images: bright squares whose place is their class."""
    folder = tmp_path_factory.mktemp("wrap")
    torch.manual_seed(0)
    g, f = discriminator("digits", image=(1, 28, 28)), small(3, width=4).eval()
    with torch.no_grad():
        g.last.log_weight.sub_(3.0)
        f[-1].weight.mul_(30)
    save(g, folder / "disc" / "model.safetensors", eps=0.1)
    save(f, folder / "plain" / "model.safetensors", classes=["top", "middle", "bottom"])
    axes = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(f, (torch.rand(2, 1, 28, 28),), dynamic_shapes=axes), folder / "model.pt2")
    (folder / "names.txt").write_text("top\nmiddle\n\nbottom\n")
    draw = np.random.default_rng(0)
    images = draw.integers(0, 60, (80, 28, 28), dtype=np.uint8)
    labels = np.arange(80) % 3
    for image, label in zip(images, labels, strict=True):
        image[4 + 6 * label : 12 + 6 * label, 8:20] = 250
    with torch.no_grad():  # labels are what the classifier says, so that its accuracy is known
        found = f(torch.from_numpy(images)[:, None] / 255).argmax(1).numpy()
    labels = np.where(np.arange(80) < 60, found, (found + 1) % 3)
    np.savez(folder / "in.npz", images=images, labels=labels)
    np.savez(folder / "out.npz", images=draw.integers(0, 256, (6, 28, 28), dtype=np.uint8))
    return folder


def words(place: Path, run: Path, classifier: object = None, **options: object) -> list[object]:
    given = {"discriminator": place / "disc", "shift": 2, "run": run, "device": "cpu"} | options
    flags = [part for name, value in given.items() for part in (f"--{name}", value)]
    return ["combine", classifier or place / "model.pt2", *flags]


@pytest.mark.slow
def test_the_folder_is_used_like_every_run(prood, place, tmp_path):
    run, inside, outside = tmp_path / "run", f"npz:{place}/in.npz", f"npz:{place}/out.npz"
    code, out, _ = prood(*words(place, run, classes=place / "names.txt", calibrate=inside, accept=0.9))
    assert code == 0, out
    assert "classifier: export, logits for 3 classes; takes 1×28×28, bilinear, pixels in [0, 1]" in out
    assert f"accuracy: 75.0% on {inside}" in out
    assert f"wrote {run}" in out

    detector = Detector.load(run)
    assert detector.classes == ("top", "middle", "bottom")
    assert detector.calibration is not None
    assert f"accepts 90% of {inside} (confidence ≥ {detector.threshold:.6g})" in out
    assert package.load(str(run)).threshold == detector.threshold
    answer = detector.predict(torch.rand(3, 1, 28, 28))
    assert answer.p_value is not None

    certificates = tmp_path / "certificates.jsonl"
    code, out, _ = prood("certify", outside, "--model", run, "--eps", "0.05", "--out", certificates, "--device", "cpu")
    assert code == 0
    assert "rejected" in out
    assert prood("verify", certificates)[0] == 0
    code, out, _ = prood(
        *("evaluate", run, "--in", inside, "--out", outside, "--eps", "0.05", "--limit", 4, "--device", "cpu")
    )
    assert code == 0
    assert "GAUC" in out
    assert prood("export", run, tmp_path / "model.onnx")[0] == 0
    code, out, _ = prood("info", run)
    assert code == 0
    assert "wrapped" in out
    assert "combine" in json.loads((run / "recipe.json").read_text())["method"]


def test_a_run_of_ours_keeps_its_names(prood, place, tmp_path):
    """The network itself is in the joint model, unless something is said of it; the command's former name works."""
    code, out, _ = prood("wrap", *words(place, tmp_path / "run", place / "plain")[1:])
    assert code == 0
    assert "images: 1×28×28" in out
    assert prood(*words(place, tmp_path / "other", place / "plain", mean=0.5, std=0.5))[0] == 0
    said = json.loads((tmp_path / "other" / "recipe.json").read_text())
    assert said["options"] == {"mean": [0.5], "std": [0.5]}
    assert Detector.load(tmp_path / "other").model.classifier.facts.kind == "prood"
    detector = Detector.load(tmp_path / "run")
    assert (detector.classes, detector.threshold) == (("top", "middle", "bottom"), None)


def test_what_is_said_of_the_classifier_is_used(prood, place, tmp_path):
    code, out, _ = prood(
        *words(place, tmp_path / "run", image="1x28x28", resize=32, interpolation="bicubic", mean=0.1, std="0.5"),
        "--logits",
    )
    assert code == 0
    assert "takes 1×28×28, cut from 32, bicubic, mean 0.1, std 0.5" in out
    facts = Detector.load(tmp_path / "run").model.classifier.facts
    assert facts.preprocessing.spec() == {
        "image": [1, 28, 28],
        "resize": 32,
        "interpolation": "bicubic",
        "mean": [0.1],
        "std": [0.5],
    }


def test_the_classifier_gets_all_its_pixels(prood, place, tmp_path):
    """A discriminator of 14×14 pixels averages those of the classifier, and its certificates are about 28×28."""
    save(discriminator("digits", image=(1, 14, 14)), tmp_path / "disc" / "model.safetensors", eps=0.1)
    code, out, _ = prood(*words(place, tmp_path / "run", discriminator=tmp_path / "disc"))
    assert code == 0
    assert "images: 1×28×28, of which the discriminator averages 2×2 pixels" in out
    detector = Detector.load(tmp_path / "run")
    assert detector.shape == (1, 28, 28)
    assert detector.discriminator.architecture["size"] == "p2 digits"
    with np.load(place / "in.npz") as file:
        images = torch.from_numpy(file["images"])[:, None] / 255
        right = detector.predict(images).label == file["labels"]
    assert right.mean() == 0.75  # as the labels were made
    certificates = tmp_path / "certificates.jsonl"
    given = ("certify", f"npz:{place}/out.npz", "--model", tmp_path / "run", "--eps", "0.05", "--out", certificates)
    assert prood(*given, "--limit", 2, "--device", "cpu")[0] == 0
    assert "2 confirmed" in prood("verify", certificates)[1]


def test_images_that_the_discriminator_does_not_fit(prood, place, tmp_path):
    save(discriminator("digits", image=(1, 20, 20)), tmp_path / "disc" / "model.safetensors", eps=0.1)
    code, _, err = prood(*words(place, tmp_path / "run", discriminator=tmp_path / "disc"))
    assert (code, err.count("\n")) == (2, 1)
    assert "1×20×20 and 1×40×40" in err
    given = {"discriminator": tmp_path / "disc", "joint-image": "1x40x40"}
    assert prood(*words(place, tmp_path / "run", **given))[0] == 0
    assert Detector.load(tmp_path / "run").shape == (1, 40, 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image": "wide"}, "'wide' is not a size"),
        ({"image": "3x4"}, "not a size"),
        ({"resize": "1x2x3"}, "not a size"),
        ({"mean": "a,b"}, "not a list of numbers"),
        ({"std": "0"}, "every std is positive"),
        ({"interpolation": "lanczos"}, "unknown interpolation"),
        ({"image": "3x28x28"}, "does not take images as 3×28×28"),
        ({"image": "1x20x20"}, "does not take images as 1×20×20"),
        ({"classes": "nowhere.txt"}, "cannot read the names"),
        ({"output": "logits"}, "returns one tensor"),
        ({"discriminator": "nowhere"}, "there is no model at nowhere"),
        ({"calibrate": "nothing"}, "no image set 'nothing'"),
        ({"calibrate": "smooth", "accept": 1.5}, "accept is a share"),
        ({"calibrate": "smooth", "tpr": 1.5}, "accept is a share"),
        ({"calibrate": "smooth", "provable": "dear"}, "unknown point 'dear'"),
        ({"calibrate": "smooth", "provable": "default"}, "name some with --outside"),
        ({"calibrate": "smooth", "provable": "default", "outside": "nothing"}, "no image set 'nothing'"),
        ({"calibrate": "smooth", "accept": 0.999}, "images are too few"),
        ({"weights": "w.safetensors"}, "--weights belongs to"),
        ({"tpr": 0.9}, "--accept needs a calibration"),
        ({"provable": 0.2}, "--provable needs a calibration"),
    ],
)
def test_wrong_words_are_one_line(prood, place, tmp_path, options, said):
    code, _, err = prood(*words(place, tmp_path / "run", **options))
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_missing_package_is_one_line(place, tmp_path):
    """In a process of its own, where the package is really not there."""
    hidden = (
        "import sys; sys.modules['timm'] = None; from prood.cli import main; "
        f"sys.argv = {[str(word) for word in words(place, tmp_path / 'run', 'timm:resnet18')]!r}; "
        "sys.argv.insert(0, 'prood'); main()"
    )
    ended = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "this classifier needs timm" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_nothing_is_written_over(prood, place, tmp_path):
    assert prood(*words(place, tmp_path / "run"))[0] == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    code, _, err = prood(*words(place, tmp_path / "run", shift=3))
    assert code == 2
    assert "holds a run already" in err
    assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before


def test_a_classifier_is_no_discriminator(prood, place, tmp_path):
    code, _, err = prood(*words(place, tmp_path / "run", discriminator=place / "plain"))
    assert code == 2
    assert "holds no discriminator" in err


def test_a_run_of_which_the_network_changes_is_taken_back(place, tmp_path, monkeypatch):
    """As of a package that builds another network than the one it gave."""
    from prood.training import joint

    real = joint.load

    def other(path, **options):
        found, about = real(path, **options)
        if isinstance(found, ProoD):
            with torch.no_grad():
                found.classifier.network[-1].bias.add_(1)
        return found, about

    monkeypatch.setattr(joint, "load", other)
    with pytest.raises(Mismatch):
        combine(place / "plain", place / "disc", tmp_path / "run", shift=1.0, options=WrapOptions())
    monkeypatch.undo()
    combine(place / "plain", place / "disc", tmp_path / "run", shift=1.0, options=WrapOptions())


def test_names_from_files(tmp_path):
    file = tmp_path / "names"
    file.write_text(' ["a", "b c"]')
    assert read_classes(file) == ("a", "b c")
    file.write_text("a\nb c\n", encoding="utf-8-sig")  # as Windows writes it
    assert read_classes(file) == ("a", "b c")
    for wrong in ("[1, 2]", "a", "", "[", '["a"]', "a\nb\na"):
        file.write_text(wrong)
        with pytest.raises(package.ProodError):
            read_classes(file)


@pytest.mark.slow
def test_a_share_below_one_is_not_rounded_to_all(prood, place, tmp_path):
    options = {
        "calibrate": f"npz:{place}/in.npz",
        "tpr": 0.996,
        "confidence": 0.1,
    }  # as these options were called before
    code, out, err = prood(*words(place, tmp_path / "run", **options))
    assert code == 0, err
    assert "accepts 99.6% of" in out
    assert "99.6% of in-distribution images are not" in prood("info", tmp_path / "run")[1]


def test_names_of_classes_come_from_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(Unsupported, match="regular file"):
            read_classes(tmp_path / name)
    (tmp_path / "many").write_text("\n".join(map(str, range(200_000))))  # looking each up among the others took hours
    assert len(read_classes(tmp_path / "many")) == 200_000
