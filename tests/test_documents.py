"""Every link of every page leads somewhere, and every file that a page names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(f.relative_to(ROOT)) for f in (ROOT / "docs").rglob("*.md"))]


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
