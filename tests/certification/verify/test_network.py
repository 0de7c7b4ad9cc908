"""A model's file as numbers: the same function as the torch network's, or a reason why not."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from prood.certification.verify.exact import Undecided
from prood.certification.verify.network import SIZES, read_model
from prood.certification.verify.rounding import intervals
from prood.models import ProoD, load, save, small


def change_file(path, tensors=None, architecture=None, **facts):
    """Rewrite a model file with other tensors or another description."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as opened:
        about = json.loads(opened.metadata()["prood"])
    about.update(facts)
    about["architecture"] = architecture or about["architecture"]
    save_file({**load_file(path), **(tensors or {})}, path, metadata={"prood": json.dumps(about)})


@pytest.mark.parametrize("size", ["digits", "XS", "S", "SR", "SR2"])
def test_it_is_the_network_that_is_deployed(make_model, size):
    shape = (3, 17, 16) if size.startswith("SR") else (3, 7, 6)
    path = make_model(size=size, image=shape)
    network, model = read_model(path).network, load(path)[0]
    assert network.shape == shape
    images = torch.rand(3, *shape)
    with torch.no_grad():
        values = model(images).tolist()
    for image, value in zip(images.numpy().astype(np.float64), values, strict=True):
        lower, upper = intervals(network.layers, (image, image))[-1].outside
        assert lower[0] <= value <= upper[0]
        assert upper[0] - lower[0] < 0.3


def test_adjoints_are_adjoint(make_model):
    rng = np.random.default_rng(0)
    for shape in ((3, 7, 6), (3, 8, 5), (3, 9, 9)):
        for layer in read_model(make_model(size="XS", image=shape)).network.layers:
            if hasattr(layer, "map"):
                x, s = rng.normal(size=(2, *layer.inside)), rng.normal(size=(2, *layer.outside))
                left = (layer.map(x) * s).sum()
                assert left == pytest.approx((x * layer.adjoint(s)).sum(), rel=1e-9, abs=1e-9)


def test_a_joint_model_has_a_shift_and_classes(make_model):
    found = read_model(make_model(shift=1.5))
    assert (found.shift, found.classes) == (1.5, 4)
    assert found.network.layers[-1].weight.shape == (1, 64)
    bare = read_model(make_model("bare"))
    assert (bare.shift, bare.classes) == (None, None)
    assert read_model(make_model("bare").parent).sha256 == bare.sha256


def test_half_precision_is_read_as_what_is_loaded(make_model):
    whole = make_model(shift=1.5)
    model = load(whole)[0]
    save(model, whole.with_name("half.safetensors"), half=True)
    network, deployed = (
        read_model(whole.with_name("half.safetensors")).network,
        load(whole.with_name("half.safetensors"))[0],
    )
    weights = [layer.weight for layer in network.layers if hasattr(layer, "weight")]
    expected = [deployed.discriminator.body[place].weight for place in (1, 4)]
    for found, weight in zip(weights[:2], expected, strict=True):
        assert np.array_equal(found, weight.detach().double().numpy())
    assert not np.array_equal(weights[0], model.discriminator.body[1].weight.detach().double().numpy())


def test_other_architectures_are_not_decided(tmp_path, make_model):
    save(small(4, width=4), tmp_path / "f.safetensors")
    with pytest.raises(Undecided, match="no rule for the architecture 'small'"):
        read_model(tmp_path / "f.safetensors")
    path = make_model()
    change_file(path, architecture={"name": "discriminator", "size": "huge"})
    with pytest.raises(Undecided, match="huge"):
        read_model(path)
    change_file(path, architecture={"name": "discriminator", "size": "XS", "image": [1, 6, 6]})
    with pytest.raises(Undecided, match="not those of a discriminator of size 'XS'"):
        read_model(path)
    for image in (5, [1, 28], [1.0, 28.0, 28.0], None):
        change_file(path, architecture={"name": "discriminator", "size": "XS", "image": image})
        with pytest.raises(Undecided, match="three sides"):
            read_model(path)
    change_file(path, architecture={"name": "discriminator", "size": ["S"]})
    with pytest.raises(Undecided, match="unknown discriminator size"):
        read_model(path)
    joint = make_model("joint", shift=1.5)
    change_file(joint, {"shift": np.zeros(3, np.float32)})
    with pytest.raises(Undecided, match="a joint model without a shift"):
        read_model(joint)
    with pytest.raises(Undecided, match="contains a NUL"):
        read_model("a\0b")


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"body.4.bias": np.zeros(64, np.float64)}, "float32"),
        ({"body.4.bias": np.full(64, np.nan, np.float32)}, "not finite"),
        ({"body.4.bias": np.zeros(63, np.float32)}, "shape"),
        ({"body.0.std": np.zeros((1, 1, 1), np.float32)}, "standard deviation"),
        ({"body.9.bias": np.zeros(64, np.float32)}, "body.9.bias"),
        ({"tail.1.log_weight": np.full((1, 64), 100, np.float32)}, "overflows"),
    ],
)
def test_strange_weights_are_not_decided(make_model, tensors, why):
    path = make_model()
    change_file(path, tensors)
    with pytest.raises(Undecided, match=why):
        read_model(path)


def test_files_that_are_no_models_are_not_decided(tmp_path):
    for content in (b"", b"hello", bytes(100)):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(Undecided, match="not written by Prood"):
            read_model(tmp_path / "x")
    with pytest.raises(Undecided, match="--model"):
        read_model(tmp_path / "none")
    save_file({"a": np.zeros(1, np.float32)}, tmp_path / "x")
    with pytest.raises(Undecided, match="not written by Prood"):
        read_model(tmp_path / "x")


def test_the_number_of_classes_may_be_unknown(make_model, tmp_path):
    from prood.models import discriminator

    path = make_model(shift=0.0)
    change_file(path, classes=["a", "b"])  # the architecture says four
    assert read_model(path).classes == -1
    assert set(SIZES) >= {"S", "digits"}
    save(ProoD(small(3, width=4), discriminator("digits", image=(1, 6, 6))), tmp_path / "p", classes=["a", "b", "c"])
    assert read_model(tmp_path / "p").classes == 3
