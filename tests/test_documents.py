"""What README and CONTRIBUTING show runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

import prood
from prood import bounds
from prood.bounds import registry
from prood.data import sources
from prood.models import discriminator, save, score_of, small

ROOT = Path(__file__).parent.parent


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_readmes_python(tmp_path, monkeypatch):
    f, g = small(8), discriminator("digits", image=(1, 28, 28))
    for name, model in {"plain": f, "discriminator": g, "prood": prood.ProoD(f, g, 1.0)}.items():
        save(model, tmp_path / "runs" / "quickstart" / name / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks("README.md")
    names: dict = {}
    exec(block, names)
    assert names["guarded"](names["images"]).shape == (2, 8)
    assert names["results"]["model", "faces", 0.3].images == 20
    assert "GAUC" in (tmp_path / "report.html").read_text()


def test_the_rules_of_contributing(monkeypatch):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    names: dict = {}
    exec(python_blocks("CONTRIBUTING.md")[0], names)
    network = torch.nn.Sequential(
        torch.nn.Linear(3, 2), torch.nn.Sigmoid(), names["Scale"](-2.0), torch.nn.Linear(2, 1)
    )
    images = torch.rand(50, 3)
    bound = bounds.upper_bound(network, images, 0.1, arithmetic="plain")
    for _ in range(50):
        near = (images + 0.1 * torch.empty_like(images).uniform_(-1, 1)).clamp(0, 1)
        assert (network(near).squeeze(1) <= bound + 1e-6).all()
    scaled = torch.nn.Sequential(names["Scale"](-2.0), torch.nn.Linear(3, 1))
    bound = bounds.upper_bound(scaled, images, 0.1, method="crown-ibp")
    assert (scaled((images + 0.1).clamp(0, 1)).squeeze(1) <= bound).all()
    with pytest.raises(prood.ProodError, match="how Sigmoid rounds is not known"):
        bounds.upper_bound(network, images, 0.1)


def test_the_attack_of_contributing():
    names: dict = {}
    exec(python_blocks("CONTRIBUTING.md")[1], names)
    g = discriminator("digits", image=(1, 28, 28)).eval()
    outcome = names["Patterns"](tries=5)(score_of(g), torch.rand(3, 1, 28, 28), 0.1, goal=float("inf"))
    assert (outcome.scores > outcome.clean).any()
    assert outcome.forward == 3 * names["Patterns"](tries=5).passes


def test_the_source_of_contributing(monkeypatch):
    monkeypatch.setattr(sources, "_REGISTRY", dict(sources._REGISTRY))
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    names: dict = {"read_my_files": lambda split: (images, torch.tensor([0, 1]))}
    exec(python_blocks("CONTRIBUTING.md")[2], names)
    assert prood.data.load("mine:train").classes == ("cat", "dog")


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", *(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]
)
def test_links_and_files_that_are_named_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / name).parent / link).exists(), link
    for path in re.findall(r"`((?:src|tests)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
