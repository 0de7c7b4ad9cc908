"""Models on disk: what was saved comes back, and what is no model is refused with one line."""

import json
import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import prood
from prood.errors import Damaged, NoAccess, NotFound, ProodError, UnknownName, Unsupported
from prood.models import (
    MODEL_FILE,
    Discriminator,
    Metadata,
    ProoD,
    architecture,
    architectures,
    build,
    files,
    load,
    model_path,
    read_metadata,
    save,
)

SMALL = {"name": "small", "classes": 3, "width": 2}
TINY = {"name": "discriminator", "size": "digits", "image": [1, 8, 8]}


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "_BUILDERS", dict(architectures._BUILDERS))


def used(spec: dict[str, Any], seed: int = 0) -> nn.Module:
    """A model whose buffers and biases are not at their initial values."""
    torch.manual_seed(seed)
    model = build(spec)
    model.train()(torch.rand(8, 1, 8, 8))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def joint() -> ProoD:
    discriminator = used(TINY)
    assert isinstance(discriminator, Discriminator)
    return ProoD(used(SMALL), discriminator, shift=1.7).eval()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "a.safetensors"
    save(used(SMALL), path)
    return path


def refused(path: Path, match: str = "") -> str:
    """The one line with which this file is refused."""
    with pytest.raises(ProodError, match=match) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def rewrite(path: Path, tensors: dict[str, Tensor] | None = None, **facts: Any) -> Path:
    """The same file with other tensors, or other facts in its description."""
    metadata = json.loads(json.dumps(files.asdict(read_metadata(path)))) | facts
    save_file(tensors or load_file(path), path, metadata={files.KEY: json.dumps(metadata)})
    return path


# What comes back


@pytest.mark.parametrize("make", [lambda: used(SMALL), lambda: used(TINY), joint])
@pytest.mark.parametrize("folder", [False, True])
def test_round_trip(tmp_path: Path, make: Callable[[], nn.Module], folder: bool) -> None:
    model = make()
    place = tmp_path / "runs" / "new" if folder else tmp_path / "some.safetensors"
    save(model, place / MODEL_FILE if folder else place)
    again, _ = load(place)
    assert type(again) is type(model)
    assert not any(part.training for part in again.modules())
    images = torch.rand(6, 1, 8, 8)
    assert torch.equal(model(images), again(images))
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    if isinstance(model, ProoD | Discriminator):
        assert torch.equal(model.upper_bound(images, 0.1), again.upper_bound(images, 0.1))
    if isinstance(model, ProoD):
        assert again.shift.item() == pytest.approx(1.7)
    assert torch.equal(prood.load(str(place))(images), model(images))


def test_a_model_that_was_loaded_can_be_saved_again(tmp_path: Path) -> None:
    first, second = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    save(joint(), first, eps=0.01, classes=["a", "b", "c"])
    model, metadata = load(first)
    save(model, second, eps=metadata.eps, classes=metadata.classes)
    assert first.read_bytes() == second.read_bytes()


def test_metadata(tmp_path: Path) -> None:
    facts: dict[str, Any] = {
        "classes": ["null", "eins", "zwölf"],
        "eps": 0.01,
        "recipe": {"epochs": 3, "optimiser": {"name": "adam"}, "ε": [1, 2.5]},
        "seed": 7,
        "data": {"digits/train": "sha256:0123"},
    }
    path = tmp_path / "model.safetensors"
    written = save(joint(), path, **facts)
    expected = Metadata(
        architecture={"name": "prood", "classifier": SMALL, "discriminator": TINY},
        shift=pytest.approx(1.7),  # type: ignore[arg-type]
        version=prood.__version__,
        format=1,
        **facts,
    )
    assert written == expected
    assert read_metadata(path) == expected
    assert read_metadata(tmp_path) == expected
    assert load(path)[1] == expected


def test_a_plain_model_has_no_shift(saved: Path) -> None:
    assert read_metadata(saved).shift is None
    assert read_metadata(saved).data == {}


def test_facts_of_later_versions_in_the_same_format_are_ignored(saved: Path) -> None:
    rewrite(saved, colour="blue", version="99.0")
    assert load(saved)[1].version == "99.0"


def test_no_pickle(saved: Path) -> None:
    """The file begins with the length of a JSON header, and holds nothing that could be executed."""
    raw = saved.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert json.loads(header["__metadata__"]["prood"])["architecture"] == SMALL


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    @architecture("mine")
    def mine(features: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(features, 2))

    path = tmp_path / "mine.safetensors"
    model = build({"name": "mine", "features": 64})
    save(model, path)
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(load(path)[0](images), model(images))

    del architectures._BUILDERS["mine"]  # the program that reads it does not know the network
    with pytest.raises(UnknownName, match=r"'mine'.*@prood\.models\.architecture"):
        load(path)
    assert read_metadata(path).architecture == {"name": "mine", "features": 64}


def test_shared_and_strided_weights(tmp_path: Path) -> None:
    @architecture("shared")
    def shared() -> nn.Module:
        layer = nn.Linear(4, 4)
        return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)

    model = build({"name": "shared"})
    model[1].weight.data = torch.randn(4, 4).T
    save(model, tmp_path / "shared.safetensors")
    again, _ = load(tmp_path / "shared.safetensors")
    assert again[1] is again[3]
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_loading_to_a_device(saved: Path) -> None:
    assert next(load(saved, device="meta")[0].parameters()).device.type == "meta"


def test_model_path(tmp_path: Path) -> None:
    assert model_path(tmp_path) == tmp_path / MODEL_FILE
    assert model_path(str(tmp_path / "x.safetensors")) == tmp_path / "x.safetensors"


# What is refused


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_that_may_not_be_read_is_not_called_damaged() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        file = Path(folder) / MODEL_FILE
        save(used(SMALL), file)
        Path(folder).chmod(0o755)
        file.chmod(0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(NoAccess, match=r"model\.safetensors.*Permission"):
                load(file)
        finally:
            os.seteuid(0)


def test_a_file_cut_short_at_any_length(saved: Path) -> None:
    raw = saved.read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little")
    lengths = {*range(12), *range(12, header, 97), header - 1, header, header + 1, *range(header, len(raw), 997)}
    for length in sorted(lengths | {len(raw) - 1}):
        saved.write_bytes(raw[:length])
        refused(saved, "is damaged or not a safetensors file")
        with pytest.raises(Damaged):
            read_metadata(saved)
    saved.write_bytes(raw)
    load(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello, this is no model\n" * 100,
        b"\x00" * 64,
        b"\xff" * 64,
        b"PK\x03\x04" + b"\x00" * 200,  # what torch.save writes
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": 1}\n',
    ],
)
def test_a_file_that_is_something_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / MODEL_FILE
    path.write_bytes(content)
    message = refused(path, "is damaged or not a safetensors file")
    assert message.endswith("copy or train it again")


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_weights_from_elsewhere(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.rand(3)}, path, metadata=metadata)
    refused(path, "was not written by Prood")


def test_a_newer_format(saved: Path) -> None:
    refused(rewrite(saved, format=2, version="9.1"), r"Prood 9\.1 in a newer format.*newer wheel")


@pytest.mark.parametrize(
    "description", ["", "{", "null", "[]", "3", "{}", '{"format": 1}', '{"format": "x", "architecture": {}}']
)
def test_an_unreadable_description(tmp_path: Path, description: str) -> None:
    path = tmp_path / "odd.safetensors"
    save_file({"weight": torch.rand(3)}, path, metadata={files.KEY: description})
    refused(path, "unreadable description")


@pytest.mark.parametrize(
    "spec", [{"name": "resnet1001"}, {}, None, "small", {"name": "small", "depth": 3}, {"name": "small", "std": [0]}]
)
def test_a_description_that_nothing_can_be_built_from(saved: Path, spec: object) -> None:
    rewrite(saved, architecture=spec)
    with pytest.raises(ProodError, match=r"architecture|one positive std") as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_tensors_that_do_not_fit(saved: Path) -> None:
    tensors = load_file(saved)
    name = next(iter(sorted(tensors)))
    missing = {key: value for key, value in tensors.items() if key != name}
    refused(rewrite(saved, missing), f"does not hold the model that it describes: {name} is missing")
    refused(rewrite(saved, tensors | {"zzz": torch.rand(2)}), "zzz is unknown")
    refused(rewrite(saved, tensors | {name: torch.rand(7, 9)}), rf"{name} has shape \(7, 9\) instead of ")
    refused(rewrite(saved, tensors, architecture=SMALL | {"classes": 4}), r"shape \(3,\) instead of \(4,\)")


@pytest.mark.parametrize("name", ["nowhere", "nowhere/model.safetensors"])
def test_no_file(tmp_path: Path, name: str) -> None:
    refused(tmp_path / name, "there is no model at")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    refused(tmp_path, f"there is no model at .*{MODEL_FILE}: give a run's folder")
    with pytest.raises(NotFound):
        read_metadata(tmp_path)


# What happens when saving fails


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.Sequential(nn.ReLU())])
def test_a_model_that_build_did_not_make(tmp_path: Path, model: nn.Module) -> None:
    with pytest.raises(Unsupported, match=r"@prood\.models\.architecture"):
        save(model, tmp_path / MODEL_FILE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_nothing_half_written(saved: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    before = saved.read_bytes()

    def fail(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:100])
        raise error

    monkeypatch.setattr(Path, "write_bytes", fail)
    for target in (saved, saved.with_name("new.safetensors")):
        with pytest.raises(type(error)):
            save(used(SMALL, seed=1), target)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == before


def test_facts_that_json_cannot_hold(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(TypeError):
        save(used(SMALL), saved, recipe={"model": nn.ReLU()})
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == before


def test_saving_does_not_touch_the_model(tmp_path: Path) -> None:
    model = joint().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save(model, tmp_path / "deep" / "er" / MODEL_FILE)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_in_distribution_is_a_field_and_older_files_state_it_first(tmp_path):
    model = build({"name": "discriminator", "size": "digits-XS", "image": [1, 8, 8]})
    data = {"digits:train": "a", "photographs:train": "b"}
    save(model, tmp_path / "new.safetensors", inside="photographs:train", data=data)
    assert read_metadata(tmp_path / "new.safetensors").inside == "photographs:train"
    save(model, tmp_path / "none.safetensors")
    assert read_metadata(tmp_path / "none.safetensors").inside is None
    save(model, tmp_path / "old.safetensors", data=data)
    raw = (tmp_path / "old.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + length].replace(rb"\"inside\": null, ", b"")
    assert len(header) < length
    (tmp_path / "old.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length :])
    assert read_metadata(tmp_path / "old.safetensors").inside == "digits:train"
    assert read_metadata("cifar10").inside == "cifar10:train"


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9, 0.999])
def test_a_bit_that_a_disk_has_flipped_is_noticed(tmp_path: Path, place: float) -> None:
    """In a weight as well as in a fact: the model would be another one, and nobody would know."""
    torch.manual_seed(0)
    save(build(SMALL), tmp_path / "model.safetensors", threshold=0.5, eps=0.1)
    load(tmp_path)
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    start = int.from_bytes(data[:8], "little") + 8
    data[start + int(place * (len(data) - start))] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(Damaged, match="checksum"):
        load(tmp_path)
    save(build(SMALL), tmp_path / "model.safetensors", threshold=0.5, eps=0.1)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'threshold\\": 0.5', b'threshold\\": 0.7'))
    with pytest.raises(Damaged, match="checksum"):
        load(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    model = build(SMALL)
    with torch.no_grad():
        model[-1].bias[0] = value
    save(model, tmp_path / "model.safetensors")
    with pytest.raises(Damaged, match="NaN or infinite"):
        load(tmp_path)


@pytest.mark.parametrize(
    "described",
    [
        {"classifier": {"width": 8000}},
        {"discriminator": {"image": [1, 1000, 1000]}},
        {"discriminator": {"size": "3s1 " * 100_000 + "fc10"}},
    ],
)
def test_a_description_of_a_far_larger_model_builds_none(tmp_path: Path, described: dict[str, Any]) -> None:
    """A kilobyte of a file that asks for gigabytes, or for a hundred thousand layers."""
    save(build({"name": "prood", "classifier": SMALL, "discriminator": TINY}), tmp_path / MODEL_FILE)
    content = (tmp_path / MODEL_FILE).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    facts = json.loads(header["__metadata__"][files.KEY])
    del facts["sha256"]
    for part, changes in described.items():
        facts["architecture"][part] |= changes
    header["__metadata__"][files.KEY] = json.dumps(facts)
    text = json.dumps(header).encode()
    (tmp_path / MODEL_FILE).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Damaged, match="far larger"):
        load(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # kilobytes
    nn.Linear(2000, 2000)  # and nothing is counted afterwards
