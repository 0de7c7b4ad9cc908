"""Any classifier in a joint model: it classifies as before, the bound holds, and the folder is all that is needed."""

import copy
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prood.attacks import PGD, Square
from prood.errors import BadValue, Damaged, Mismatch, NoAccess, NotFound, Unsupported
from prood.models import ProoD, WrapOptions, discriminator, fingerprint, load, open_classifier, save, score_of, small
from prood.models.wrapped import Preprocessing, trial_images, trusting_code
from prood.models.wrapped.opening import facts_of
from prood.models.wrapped.programs import Source

IMAGE = (1, 24, 24)
KINDS = ("trace", "script", "export", "export-1", "onnx", "run")
DIFFERENTIABLE = tuple(kind for kind in KINDS if kind != "onnx")


class Scriptable(nn.Module):
    """A classifier for 3×28×28 that TorchScript can compile, with sizes of answers that tell images apart."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 5, stride=3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(4 * 64, classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(images)))
        return 20 * self.last(self.drop(hidden.flatten(1)))


def export(network: nn.Module, kind: str, folder: Path) -> Path:
    """The network as a file of this kind."""
    images = torch.rand(2, 3, 28, 28)
    axes = ({0: torch.export.Dim.DYNAMIC},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own about its exporters
        if kind in ("trace", "script"):
            path = folder / "model.pt"
            program = torch.jit.trace(network, images) if kind == "trace" else torch.jit.script(network)
            program.save(path)
        elif kind == "export":
            path = folder / "model.pt2"
            torch.export.save(torch.export.export(network, (images,), dynamic_shapes=axes), path)
        elif kind == "export-1":
            path = folder / "model.pt2"
            torch.export.save(torch.export.export(network, (images[:1],)), path)
        elif kind == "onnx":
            path = folder / "model.onnx"
            torch.onnx.export(network, (images,), path, dynamic_shapes=axes, external_data=True, verbose=False)
            assert path.with_name("model.onnx.data").is_file()
        else:
            path = folder / "run"
            save(network, path / "model.safetensors")
    return path


@pytest.fixture(autouse=True)
def trusted() -> Iterator[None]:
    with trusting_code():
        yield


@pytest.fixture(scope="module")
def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    ours = small(5, width=4, mean=(0.5,) * 3, std=(0.25,) * 3).eval()
    with torch.no_grad():
        ours[-1].weight.mul_(60)
    theirs = Scriptable().eval()
    return {kind: ours if kind == "run" else theirs for kind in KINDS}


@pytest.fixture(scope="module")
def files(networks, tmp_path_factory) -> dict[str, Path]:
    return {kind: export(networks[kind], kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture(scope="module")
def g():
    torch.manual_seed(1)
    made = discriminator("digits", image=IMAGE).eval()
    with torch.no_grad():
        made.last.log_weight.sub_(2.0)
    return made


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Noise of many grains, so that the classifiers do not see the same in all of them."""
    draw = torch.Generator().manual_seed(2)
    grains = [torch.rand(1, 1, side, side, generator=draw) for side in (2, 2, 3, 3, 4, 6, 24)]
    return torch.cat([F.interpolate(grain, IMAGE[1:], mode="nearest") for grain in grains])


# ImageNet's numbers for grey pixels: what is given is used. The run of ours normalises by itself.
OPTIONS = WrapOptions(image=(3, 28, 28), mean=(0.4,), std=(0.2,))


def prepared(images: Tensor) -> Tensor:
    """What OPTIONS say, written out."""
    bigger = F.interpolate(images, (28, 28), mode="bilinear", antialias=True).clamp(0, 1)
    return (bigger.repeat(1, 3, 1, 1) - torch.tensor(0.4)) / torch.tensor(0.2)


def joint(path: Path, g) -> ProoD:
    classifier, _ = open_classifier(path, IMAGE, options=OPTIONS)
    return ProoD(classifier, g, 1.0).eval()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_classifies_as_the_bare_classifier(kind, files, networks, g, images):
    model = joint(files[kind], g)
    with torch.no_grad():
        bare = networks[kind](prepared(images))
        assert torch.allclose(model.logits(images), bare, atol=1e-4)
        joint_logits = model(images)
    assert len(set(bare.argmax(1).tolist())) > 1
    assert torch.equal(model.predict(images), bare.argmax(1))
    certain = joint_logits.max(1).values > joint_logits.min(1).values
    assert certain.any()
    assert torch.equal(joint_logits.argmax(1)[certain], bare.argmax(1)[certain])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_attack_exceeds_the_bound(kind, files, g, images):
    score = score_of(joint(files[kind], g))
    bound = score.upper_bound(images, 0.1)
    attacks = [Square(queries=60)] + ([PGD(steps=6, uniform=1, gaussian=0)] if kind in DIFFERENTIABLE else [])
    for attack in attacks:
        found = attack(score, images, 0.1, goal=float("inf"))
        assert (found.scores > found.clean).any()
        assert (found.scores <= bound).all()
    confidence = score.model.upper_bound(images, 0.1)
    assert (confidence < 1).any()
    assert (score.model.confidence(found.images) <= confidence).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_is_all_that_is_needed(kind, files, g, images, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(files[kind].parent, source)
    model = joint(source / files[kind].name, g)
    before = model.logits(images)
    save(model, tmp_path / "run" / "model.safetensors", classes=list("abcde"))
    assert torch.equal(model.logits(images), before)
    shutil.rmtree(source)
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    again, _ = load(tmp_path / "elsewhere")
    assert torch.equal(again.logits(images), before)
    assert torch.equal(again(images), model(images))
    assert fingerprint(again) == fingerprint(model)
    # And from there to the next folder, as Detector.save does.
    save(again, tmp_path / "third" / "model.safetensors")
    assert torch.equal(load(tmp_path / "third")[0].logits(images), before)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "run"])
def test_a_changed_file_is_refused(kind, files, g, images, tmp_path):
    save(joint(files[kind], g), tmp_path / "model.safetensors")
    (file,) = tmp_path.glob("classifier-*")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(Mismatch):
        load(tmp_path)
    file.unlink()
    with pytest.raises(NoAccess):
        load(tmp_path)


def test_a_file_that_changes_before_it_is_saved_again_is_refused(files, g, tmp_path):
    save(joint(files["trace"], g), tmp_path / "first" / "model.safetensors")
    model, _ = load(tmp_path / "first")
    (file,) = (tmp_path / "first").glob("classifier-*")
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(Mismatch):
        save(model, tmp_path / "second" / "model.safetensors")
    file.unlink()
    with pytest.raises(NotFound):
        save(model, tmp_path / "second" / "model.safetensors")
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("kind", DIFFERENTIABLE)
def test_gradients_go_through_resizing_and_the_classifier(kind, files, networks, images):
    classifier, _ = open_classifier(files[kind], IMAGE, options=OPTIONS)
    pixels, same = images.clone().requires_grad_(), images.clone().requires_grad_()
    (ours,) = torch.autograd.grad(classifier(pixels).logsumexp(1).sum(), pixels)
    (bare,) = torch.autograd.grad(networks[kind](prepared(same)).logsumexp(1).sum(), same)
    assert bare.abs().max() > 1e-3
    assert torch.allclose(ours, bare, rtol=1e-3, atol=1e-4)


def test_onnx_says_that_it_has_no_gradients(files, g, images):
    score = score_of(joint(files["onnx"], g))
    with pytest.raises(Unsupported, match="--attacks"):
        PGD(steps=2)(score, images, 0.1, goal=float("inf"))
    with torch.no_grad():
        score(images.clone().requires_grad_())  # nobody asks for one


def test_the_fingerprint_tells_classifiers_and_preprocessings_apart(files, g):
    first = joint(files["trace"], g)
    other, _ = open_classifier(files["trace"], IMAGE, options=WrapOptions(image=(3, 28, 28), mean=(0.41,), std=(0.2,)))
    prints = {fingerprint(first), fingerprint(ProoD(other, g, 1.0)), fingerprint(joint(files["script"], g))}
    assert len(prints) == 3
    assert fingerprint(first) == fingerprint(joint(files["trace"], g))


def test_weights_of_a_program_are_not_saved_twice(files, g):
    assert [name for name in joint(files["script"], g).state_dict() if name.startswith("classifier")] == [
        "classifier.digest"
    ]


def test_a_program_moves_with_the_model(files, g, images):
    model = joint(files["script"], copy.deepcopy(g)).double()
    assert model.classifier(images.double()).dtype == torch.float64


def test_other_options_under_the_same_weights_are_refused(files, g, tmp_path):
    """The description is text in the file; a change of it must not pass for what was calibrated."""
    from prood.models import files as disk

    save(joint(files["trace"], g), tmp_path / "model.safetensors")
    model, _ = load(tmp_path)
    model.classifier.digest[0] ^= 1
    with pytest.raises(Mismatch):
        model.classifier.attach(tmp_path)
    spec = model.classifier.architecture | {"file": "../model.pt"}
    with pytest.raises(Damaged):
        disk.build(spec)
    for change in ({"kind": "pickle"}, {"classes": 1}, {"layout": "CHWN"}, {"preprocessing": 3}, {"sha256": None}):
        with pytest.raises(Damaged):
            disk.build(model.classifier.architecture | change)


def test_a_description_alone_does_not_answer(files, images):
    from prood.models import build

    classifier, _ = open_classifier(files["trace"], IMAGE, options=OPTIONS)
    with pytest.raises(Unsupported):
        build(classifier.architecture)(images)


def test_one_exported_in_training_mode_is_refused(tmp_path):
    torch.manual_seed(0)
    network = Scriptable().train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(network, torch.rand(2, 3, 28, 28), check_trace=False).save(tmp_path / "dropout.pt")
    with pytest.raises(Unsupported):
        open_classifier(tmp_path / "dropout.pt", IMAGE, options=OPTIONS)


def test_a_script_that_can_leave_training_mode_does(tmp_path, images):
    torch.manual_seed(0)
    network = Scriptable().train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(network).save(tmp_path / "model.pt")
    classifier, _ = open_classifier(tmp_path / "model.pt", IMAGE, options=OPTIONS)
    assert torch.allclose(classifier(images), network.eval()(prepared(images)), atol=1e-5)


def test_a_size_that_is_given_is_that_of_the_whole_image(networks):
    """What a package cuts away by default is not cut from an image whose size the user names."""
    own = Preprocessing((3, 28, 28), 32, "bicubic", (0.5,), (0.2,))
    source = Source("prood", networks["run"], networks["run"].architecture, preprocessing=own)
    assert facts_of(source, WrapOptions(), IMAGE).preprocessing == own
    given = facts_of(source, WrapOptions(image=(3, 20, 24), mean=(0.4,)), IMAGE).preprocessing
    assert given == Preprocessing((3, 20, 24), (20, 24), "bicubic", (0.4,), (0.2,))
    both = facts_of(source, WrapOptions(image=(3, 20, 24), resize=30), IMAGE).preprocessing
    assert both.resize == 30


def test_a_size_that_it_does_not_take_is_one_line(files):
    with pytest.raises(Mismatch, match=r"3×40×40.*--image.*3x224x224") as caught:
        open_classifier(files["trace"], IMAGE, options=WrapOptions(image=(3, 40, 40)))
    assert "\n" not in str(caught.value)


def test_channels_are_seen_in_the_weights(files):
    classifier, _ = open_classifier(files["run"], (1, 28, 28))
    assert classifier.facts.preprocessing.image == (3, 28, 28)


def test_the_trial_images_are_images():
    images = trial_images((3, 5, 7))
    assert images.shape == (4, 3, 5, 7)
    assert ((images >= 0) & (images <= 1)).all()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.onnx", "there is no file"),
        ("nowhere.pt2", "there is no file"),
        ("nowhere", "there is no model"),
        ("timm", "there is no model"),
    ],
)
def test_what_is_not_there(name, said):
    with pytest.raises(NotFound, match=said):
        open_classifier(name, IMAGE)


def test_what_is_no_classifier(g, files, tmp_path):
    save(g, tmp_path / "g.safetensors")
    with pytest.raises(BadValue, match="Discriminator"):
        open_classifier(tmp_path / "g.safetensors", IMAGE)
    torch.save({"weight": torch.rand(3)}, tmp_path / "weights.pt")
    with pytest.raises(Unsupported):
        open_classifier(tmp_path / "weights.pt", IMAGE)
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(Unsupported, match="ONNX"):
        open_classifier(tmp_path / "text.pt", IMAGE)
    with pytest.raises(Mismatch):
        open_classifier(files["trace"], IMAGE, options=replace(OPTIONS, classes=("a", "b")))
    with pytest.raises(BadValue, match="--weights"):
        open_classifier(files["trace"], IMAGE, options=WrapOptions(weights=Path("w.safetensors")))
