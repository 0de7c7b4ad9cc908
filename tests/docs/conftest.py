"""What the pages of the documentation take for given: trained runs, pictures, folders of images, a service."""

import hashlib
import importlib.util
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from prood import cli, data
from prood.attacks import APGD, PGD, PRESETS, Ensemble, Square
from prood.bounds import registry
from prood.data import sources
from prood.detector import Detector
from prood.methods import METHODS
from prood.models import ProoD, architectures, discriminator, model_path, save, small

# Tests are no package, so their helpers are loaded by their paths.
for _name in ("pages", "commands", "words"):
    _spec = importlib.util.spec_from_file_location(f"docs_{_name}", Path(__file__).with_name(f"{_name}.py"))
    _module = sys.modules[f"docs_{_name}"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)

from docs_commands import SMALL, check, read, why_not_run  # noqa: E402
from docs_pages import Block  # noqa: E402


def _pictures(folder: Path, images: torch.Tensor) -> None:
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(folder / f"{number}.png")


def _onnx(file: Path) -> None:
    """A linear classifier of 28×28 images, as somebody else's exporter might have written it."""
    import onnx
    from onnx import TensorProto, helper

    weight = np.random.default_rng(0).normal(size=(784, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("image", ["N", 1, 28, 28]), ("logits", ["N", 8]))
    ]
    graph = helper.make_graph(nodes, "f", values[:1], values[1:], [onnx.numpy_helper.from_array(weight, "weight")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models with random weights where a reader would have trained ones, and real images."""
    folder = tmp_path_factory.mktemp("world")
    torch.manual_seed(0)
    f, g = small(8, width=4), discriminator("digits", image=(1, 28, 28))
    with torch.no_grad():
        g.last.log_weight.sub_(2.0)  # bounds below the ceiling
    classes = list("01234567")
    for place in ("runs/quickstart", "runs"):
        for name in ("plain", "oe"):
            save(f, folder / place / name / "model.safetensors", classes=classes)
        for name in ("discriminator", "disc"):
            save(g, folder / place / name / "model.safetensors", eps=0.3)
        save(ProoD(f, g, 1.0), folder / place / "prood" / "model.safetensors", classes=classes, threshold=0.5, eps=0.3)
    digits, others = data.load("digits:train"), data.load("photographs:train").images
    for split, rows in (("train", slice(0, 80)), ("test", slice(80, 120))):
        for label in (0, 1):
            _pictures(folder / "photos" / split / f"shape-{label}", digits.images[digits.labels == label][rows][:40])
        _pictures(folder / "others" / split, others[rows])
    for label in range(8):
        _pictures(folder / "held-back" / str(label), digits.images[digits.labels == label][100:110])
    np.savez(folder / "my_images.npz", images=others[:120, 0].numpy())
    for name in ("photo.png", "photo.jpg", "one.png", "two.png"):
        Image.fromarray(others[0, 0].numpy()).convert("RGB").resize((40, 50)).save(folder / name)
    (folder / "token.txt").write_text("a-long-secret-token\n")
    _onnx(folder / "classifier.onnx")
    return folder


@pytest.fixture
def place(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the world to work in. What a page registers or draws at random is forgotten at its end."""
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sources, "_REGISTRY", dict(sources._REGISTRY))
    short = Ensemble((PGD(steps=3, uniform=1, gaussian=0), APGD(iterations=3, restarts=1), Square(queries=3)))
    for name in ("fast", "paper"):
        monkeypatch.setitem(PRESETS, name, short)
    torch.manual_seed(0)
    yield tmp_path
    for table in (registry._RULES, architectures._BUILDERS, METHODS):  # and not what a module of ours has registered
        for key in [key for key, value in table.items() if _is_of_a_page(value, tmp_path)]:
            del table[key]


def _is_of_a_page(value: object, place: Path) -> bool:
    modules = (str(getattr(value, "__module__", "")), type(value).__module__)
    return "page" in modules or any(module.startswith(str(place)) for module in modules)


@pytest.fixture
def service(place: Path) -> Iterator[Callable[[], int]]:
    """`service()` starts `prood serve runs/prood` on a free port, once, and says which."""
    from prood.serve import Options
    from prood.serve.server import bind, make_server

    started: list[tuple[object, threading.Thread, socket.socket]] = []

    def start() -> int:
        if not started:
            server = make_server(Detector.load("runs/prood"), Options())
            bound = bind("127.0.0.1", 0)
            thread = threading.Thread(target=lambda: server.run(sockets=[bound]))
            thread.start()
            started.append((server, thread, bound))
        return int(started[0][2].getsockname()[1])

    yield start
    for server, thread, bound in started:
        server.should_exit = True  # type: ignore[attr-defined]
        thread.join(30)
        bound.close()


@pytest.fixture(scope="session")
def exported() -> dict[str, Path]:
    """What `prood export` made of which model: it takes seconds, and several pages show it."""
    return {}


def _key(run: str) -> str:
    return hashlib.sha256(model_path(run).read_bytes()).hexdigest()


@pytest.fixture
def names() -> dict[str, Any]:
    """The namespace of a page's Python."""
    return {"__name__": "page"}


@pytest.fixture
def runner(
    place: Path,
    service: Callable[[], int],
    names: dict[str, Any],
    exported: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[[Block], None]:
    """Run the blocks of one page, one after the other: Python in one namespace, commands by the command line."""

    def command(words: list[str]) -> None:
        if why_not_run(words):
            check(words)
        elif words[:2] == ["prood", "export"] and (key := _key(words[2])) in exported:
            check(words)  # it was made before, from the same weights
            shutil.copy(exported[key], words[3])
        elif words[0] == "curl":
            answered = subprocess.run([*words, "-sS", "--fail-with-body"], capture_output=True, text=True, timeout=60)
            assert answered.returncode == 0, f"{answered.stderr} {answered.stdout}"
        else:
            words = [*words, *SMALL.get(words[1], []), *SMALL.get(" ".join(words[1:3]), [])]
            monkeypatch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit) as ended:
                cli.main()
            assert not ended.value.code, f"{' '.join(words)}: {capfd.readouterr().err}"
            if words[1] == "export":
                exported[_key(words[2])] = place / words[3]

    def run(block: Block) -> None:
        text = block.text
        if "localhost:8000" in text and block.language in ("python", "bash"):
            text = text.replace("localhost:8000", f"localhost:{service()}")
        if block.note.startswith("file: "):
            (place / block.note.removeprefix("file: ")).write_text(text)
        elif block.language == "python":
            exec(compile("\n" * block.line + text, block.page, "exec"), names)
        elif block.language == "bash":
            for words in read(text):
                command(words)

    return run


@pytest.fixture
def made_by(place: Path) -> Callable[[list[Block]], None]:
    """What the commands of a page make (`--run FOLDER`, an exported file) is not there before."""

    def remove(blocks: list[Block]) -> None:
        for block in blocks:
            text = block.text if block.language == "bash" and block.runs else ""
            for name in re.findall(r"--run (\S+)|prood export \S+ (\S+)", text):
                there = place / (name[0] or name[1])
                if there.is_dir():
                    shutil.rmtree(there)
                else:
                    there.unlink(missing_ok=True)

    return remove
