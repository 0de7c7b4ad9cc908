"""Classifiers that packages build. Where one cannot be imported, the error is tested instead."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from prood.errors import Damaged, MissingPackage, ProodError
from prood.models import ProoD, WrapOptions, discriminator, load, open_classifier, save

IMAGE = (3, 40, 40)
NAMES = {"torchvision": "torchvision:resnet18", "timm": "timm:resnet10t", "transformers": "hf:somewhere"}


def package(name: str):
    """The package, or a skip that says why not."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision beside a torch of another build
        pytest.skip(f"{name} cannot be imported: {error}")


def importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except (ImportError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("error", [ImportError("No module of that name"), RuntimeError("operator x\ndoes not exist")])
def test_a_package_that_cannot_be_imported_is_one_line(name, error, monkeypatch):
    real = importlib.import_module

    def fail(wanted: str, *rest: str):
        if wanted.partition(".")[0] == name:
            raise error
        return real(wanted, *rest)

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(MissingPackage, match=rf"{name}.*constraints\.txt.*{name}") as caught:
        open_classifier(NAMES[name], IMAGE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        {"name": "resnet10t", "num_classes": 3, "checkpoint_path": "evil.pth"},
        {"name": "resnet10t", "pretrained_cfg": {"file": "evil.pth"}},
        {"name": "hf-hub:somebody/else", "num_classes": 3},
        {"name": "local-dir:/tmp", "num_classes": 3},
    ],
)
def test_a_run_does_not_say_what_else_a_package_opens(model):
    from prood.models import build

    spec = {"name": "wrapped", "kind": "timm", "classes": 3, "preprocessing": {"image": [3, 8, 8]}}
    with pytest.raises(Damaged, match="timm networks by name, num_classes"):
        build(spec | {"model": model})


def test_loading_needs_the_package_too(tmp_path):
    from prood.models import build

    spec = {"name": "wrapped", "kind": "timm", "classes": 3, "preprocessing": {"image": [3, 8, 8]}}
    if not importable("timm"):
        with pytest.raises(MissingPackage):
            build(spec | {"model": {"name": "resnet10t", "num_classes": 3}})
    with pytest.raises(Damaged):
        build(spec)


def weights(network: nn.Module, path: Path) -> Path:
    save_file({name: value.clone().contiguous() for name, value in network.state_dict().items()}, path)
    return path


def kept(classifier: nn.Module, folder: Path, images: torch.Tensor) -> None:
    """Saved and loaded, it gives the same bits."""
    g = discriminator("digits", image=IMAGE)
    save(ProoD(classifier, g, 1.0), folder / "model.safetensors")
    with torch.no_grad():
        assert torch.equal(load(folder)[0].logits(images), classifier(images))


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "mobilenet_v3_small"])
def test_torchvision_by_its_own_transforms(name, tmp_path):
    models = package("torchvision").models
    torch.manual_seed(0)
    network = models.get_model(name, weights=None, num_classes=7).eval()
    options = WrapOptions(weights=weights(network, tmp_path / "w.safetensors"))
    classifier, names = open_classifier(f"torchvision:{name}", IMAGE, options=options)
    images = torch.rand(2, *IMAGE)
    with torch.no_grad():
        expected = network(models.get_model_weights(name).DEFAULT.transforms()(images))
        assert torch.allclose(classifier(images), expected, atol=1e-5)
    assert (names, classifier.facts.classes) == (None, 7)
    kept(classifier, tmp_path / "run", images)


def test_timm_by_its_own_transforms(tmp_path):
    package("torchvision")
    timm = package("timm")
    from PIL import Image

    torch.manual_seed(0)
    network = timm.create_model("resnet10t", num_classes=7).eval()
    options = WrapOptions(weights=weights(network, tmp_path / "w.safetensors"))
    classifier, _ = open_classifier("timm:resnet10t", IMAGE, options=options)
    pixels = (torch.rand(2, *IMAGE) * 255).round().byte()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)
    pictures = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in pixels]
    with torch.no_grad():
        expected = network(torch.stack([transform(picture) for picture in pictures]))
        # Pillow rounds what it resizes to bytes.
        assert torch.allclose(classifier(pixels / 255), expected, atol=0.02 * expected.abs().max().item())
    kept(classifier, tmp_path / "run", pixels / 255)


def test_weights_that_do_not_fit(tmp_path):
    models = package("torchvision").models
    path = weights(models.get_model("resnet18", num_classes=7), tmp_path / "w.safetensors")
    with pytest.raises(ProodError, match="does not hold weights of this network") as caught:
        open_classifier("torchvision:resnet34", IMAGE, options=WrapOptions(weights=path))
    assert "\n" not in str(caught.value)
    with pytest.raises(ProodError, match="they belong to another network"):
        open_classifier("torchvision:vgg11", IMAGE, options=WrapOptions(weights=path))
    with pytest.raises(ProodError, match="Prood loads no pickle"):
        open_classifier("torchvision:resnet18", IMAGE, options=WrapOptions(weights=tmp_path / "w.pth"))
    with pytest.raises(ProodError, match="cannot give the classifier 'resnet1001'"):
        open_classifier("torchvision:resnet1001", IMAGE)


@pytest.fixture
def vit(tmp_path) -> Path:
    """A tiny ViT with names, as save_pretrained leaves it; nothing is downloaded."""
    transformers = package("transformers")
    torch.manual_seed(0)
    labels = {number: f"thing {number}" for number in range(11)}
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        id2label=labels,
        label2id={label: number for number, label in labels.items()},
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    facts = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(facts))
    return tmp_path / "vit"


def test_hugging_face_from_a_folder(vit, tmp_path):
    transformers = package("transformers")
    classifier, names = open_classifier(f"hf:{vit}", IMAGE)
    assert names == tuple(f"thing {number}" for number in range(11))
    network = transformers.AutoModelForImageClassification.from_pretrained(vit).eval()
    images = torch.rand(3, *IMAGE)
    shown = nn.functional.interpolate(images, (32, 32), mode="bilinear", antialias=True)
    with torch.no_grad():
        assert torch.allclose(classifier(images), network((shown - 0.5) / 0.5).logits, atol=1e-5)
    kept(classifier, tmp_path / "run", images)
    pixels = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(classifier(pixels).sum(), pixels)
    assert gradient.abs().max() > 0


def test_hugging_face_folders_that_cannot_be_used(vit):
    config = json.loads((vit / "config.json").read_text())
    (vit / "config.json").write_text(json.dumps(config | {"problem_type": "multi_label_classification"}))
    with pytest.raises(ProodError, match="a multi-label classifier"):
        open_classifier(f"hf:{vit}", IMAGE)
    (vit / "config.json").write_text(json.dumps(config))
    (vit / "preprocessor_config.json").unlink()
    with pytest.raises(ProodError, match="hf cannot give the classifier") as caught:
        open_classifier(f"hf:{vit}", IMAGE)
    assert "\n" not in str(caught.value)
    with pytest.raises(ProodError, match="has its own"):
        open_classifier(f"hf:{vit}", IMAGE, options=WrapOptions(weights=vit / "w.safetensors"))
