"""A .pt2 that does more than compute is refused before torch would run it."""

import contextlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from prood.errors import Damaged, Unsupported
from prood.models import open_classifier
from prood.models.wrapped.archives import archive_kind, checked_export

MODEL = "models/model.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 4)]
    network = nn.Sequential(*layers).eval()
    batch, side = torch.export.Dim("batch", max=64), torch.export.Dim("side", min=4, max=32)
    program = torch.export.export(
        network, (torch.rand(2, 3, 12, 12),), dynamic_shapes=({0: batch, 2: 2 * side, 3: 2 * side},)
    )
    path = tmp_path_factory.mktemp("good") / "model.pt2"
    torch.export.save(program, path)
    return path.read_bytes()


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def changed(content: bytes, name: str, change) -> bytes:
    """With the JSON member of this name put through `change`."""
    files = members(content)
    (place,) = [one for one in files if one.endswith(name)]
    value = json.loads(files[place])
    change(value)
    return packed(files | {place: json.dumps(value).encode()})


def graph(value: dict) -> dict:
    return value["graph_module"]["graph"]


class Evil:
    """Unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.slow
def test_a_network_passes(good, tmp_path):
    assert archive_kind(good) == "export"
    (tmp_path / "model.pt2").write_bytes(good)
    classifier, _ = open_classifier(tmp_path / "model.pt2", (3, 20, 20))
    images = torch.rand(3, 3, 20, 20)
    assert torch.equal(classifier(images), torch.export.load(tmp_path / "model.pt2").module()(images))


def with_examples(good: bytes, evil: object) -> bytes:
    files = members(good)
    (place,) = [name for name in files if name.endswith("sample_inputs/model.pt")]
    buffer = io.BytesIO()
    torch.save(((evil,), {}), buffer)
    return packed(files | {place: buffer.getvalue()})


def test_example_inputs_are_not_unpickled(good, tmp_path):
    (tmp_path / "model.pt2").write_bytes(with_examples(good, Evil(tmp_path / "proof")))
    classifier, _ = open_classifier(tmp_path / "model.pt2", (3, 20, 20))
    assert classifier(torch.rand(3, 3, 20, 20)).shape == (3, 4)
    assert not (tmp_path / "proof").exists()
    # The danger is real: torch's own loader runs it.
    with contextlib.suppress(Exception):
        torch.export.load(tmp_path / "model.pt2")
    assert (tmp_path / "proof").exists()


def test_pickled_constants_are_refused(good, tmp_path):
    def add(value):
        value["config"]["evil"] = {"path_name": "custom_obj_0", "use_pickle": True, "is_param": False}

    content = changed(good, "model_constants_config.json", add)
    root = next(iter(members(content))).partition("/")[0]
    evil = pickle.dumps(Evil(tmp_path / "proof"))
    content = packed(members(content) | {f"{root}/data/constants/custom_obj_0": evil})
    with pytest.raises(Unsupported):
        checked_export(content)
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.hub.load",
        "_operator.attrgetter",
        "math.__loader__.load_module",
        "#evil:run",
        "torch.ops.aten.from_file.default",
        "torch.ops.mine.run.default",
        "torch.ops.load_library",
    ],
)
def test_operators_that_are_none(good, target):
    def put(value):
        graph(value)["nodes"][0]["target"] = target

    with pytest.raises(Unsupported):
        checked_export(changed(good, MODEL, put))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "exec('1')",
        "().__class__",
        "(lambda: 1)()",
        "Symbol('a b')",
        "[1 for s in ()]",
        "Symbol(__name__)",
        "S('exit()')",
        "S('exit')",
        "1 +",
        "x.evalf()",
    ],
)
def test_expressions_that_are_more_than_sizes(good, text):
    def put(value):
        graph(value)["sym_int_values"]["evil"] = {"as_expr": {"expr_str": text, "hint": None}}

    def guard(value):
        value["guards_code"] = [text]

    for change in (put, guard):
        with pytest.raises(Unsupported):
            checked_export(changed(good, MODEL, change))


@pytest.mark.parametrize("name", ["data/aotinductor/model/model.so", "models/other.json", "data/weights/../x"])
def test_members_that_do_not_belong_there(good, name):
    files = members(good)
    root = next(iter(files)).partition("/")[0]
    with pytest.raises(Unsupported):
        checked_export(packed(files | {f"{root}/{name}": b""}))


def test_the_loader_sees_only_what_was_checked(good, tmp_path):
    """Bytes around an archive may be another one to another reader."""
    evil = with_examples(good, Evil(tmp_path / "proof"))
    assert members(checked_export(evil + good)) == members(checked_export(good))


def test_two_roots_are_refused(good):
    files = members(good)
    with pytest.raises(Unsupported):
        checked_export(packed(files | {f"other/{MODEL}": b"{}"}))


@pytest.mark.parametrize("lost", [MODEL, "model_weights_config.json", "model_constants_config.json"])
def test_damaged_archives_are_one_line(good, lost):
    files = {name: content for name, content in members(good).items() if not name.endswith(lost)}
    with pytest.raises(Damaged):
        checked_export(packed(files))
    with pytest.raises(Damaged):
        checked_export(good[:200])


def test_kinds_of_archives():
    assert archive_kind(b"hello") is None
    assert archive_kind(packed({"a/b": b""})) is None
    assert archive_kind(packed({"a/data.pkl": b""})) == "weights"
    assert archive_kind(packed({"a/data.pkl": b"", "a/constants.pkl": b""})) == "torchscript"


def test_an_archive_that_unpacks_to_far_more_is_refused_before_it_is_read(good, monkeypatch):
    content = io.BytesIO(good)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/data/weights/weight_9", bytes(600 * 2**20))
    assert len(content.getvalue()) < 2**20
    monkeypatch.setattr(zipfile.ZipFile, "read", pytest.fail)
    with pytest.raises(Damaged, match=r"would unpack to 60[0-9] MiB"):
        checked_export(content.getvalue())


def test_a_description_that_is_nested_deeply_is_damaged(good):
    files = {name: b"[" * 10**5 if name.endswith(MODEL) else content for name, content in members(good).items()}
    with pytest.raises(Damaged):
        checked_export(packed(files))
