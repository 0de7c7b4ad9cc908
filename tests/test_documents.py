"""What CONTRIBUTING shows runs as it stands, and every link of every page leads somewhere."""

import re
from pathlib import Path

import pytest
import torch

import prood
from prood import bounds
from prood.bounds import registry
from prood.data import sources
from prood.errors import Unsupported
from prood.models import discriminator, score_of

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(f.relative_to(ROOT)) for f in (ROOT / "docs").rglob("*.md"))]


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_contributing_has_the_blocks_that_are_tested_here():
    """Those of README and of the site run in tests/docs; these need something around them."""
    assert len(python_blocks("CONTRIBUTING.md")) == 3


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
    with pytest.raises(Unsupported, match="Sigmoid"):
        bounds.upper_bound(network, images, 0.1)


def test_the_attack_of_contributing():
    names: dict = {}
    exec(python_blocks("CONTRIBUTING.md")[1], names)
    torch.manual_seed(0)  # five random patterns need not help against every random network
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


def anchors(name: str) -> set[str]:
    """The headings of a page as links name them, and what the reference shows of the code."""
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / name).read_text(encoding="utf-8"))
    titles = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in re.findall(r"(?m)^#+ (.*)$", text)]
    return {re.sub(r"[-\s]+", "-", title) for title in titles} | set(re.findall(r"(?m)^::: (\S+)$", text))


@pytest.mark.parametrize("name", PAGES)
def test_links_anchors_and_files_that_are_named_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", text):
        page = (ROOT / name).parent / link if link else ROOT / name
        assert page.exists(), link
        assert not anchor or anchor in anchors(str(page)), f"{link}#{anchor}"
    for path in re.findall(r"`((?:src|tests|benchmarks|docs)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_check_of_links_sees_headings_and_documented_names():
    assert {"the-command-line", "prood-data-fetch"} <= anchors("docs/reference/commands.md")
    assert "prood.detector.Detector" in anchors("docs/reference/python/detector.md")
    assert "no-such-heading" not in anchors("README.md")
