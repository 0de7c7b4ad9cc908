"""prood reproduce pages, as a user meets it; and the page in the repository."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_pages_are_written_and_checked(prood, tmp_path):
    (tmp_path / "results").mkdir()
    docs = tmp_path / "docs"
    pages = [docs / "results.md", docs / "experiments.md"]
    arguments = ("results", tmp_path / "results", "--docs", docs)
    code, _, err = prood(*arguments, "--check")
    assert (code, err.count("\n")) == (2, 1)
    assert not docs.exists()
    written = (0, f"wrote {pages[0]}\nwrote {pages[1]}\n", "")
    assert prood(*arguments) == written
    assert prood(*arguments, "--check") == (0, "", "")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("folder", "drawer"), encoding="utf-8")
        code, _, err = prood(*arguments, "--check")
        assert code == 2
        assert err.startswith(
            f"error: {page} is out of date: write it with 'prood reproduce pages {tmp_path / 'results'}"
        )
        assert "drawer" in page.read_text(encoding="utf-8")
        assert prood(*arguments) == written
        assert page.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_the_folders_are_those_of_the_repository_unless_told_otherwise(prood, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = prood("results")
    assert (code, err) == (2, "error: there is no folder results: name the one that holds the published results\n")
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("experiments"))
    assert prood("results") == (0, "wrote docs/results.md\nwrote docs/experiments.md\n", "")
    (tmp_path / "results" / "wrong.json").write_text("{half")
    code, _, err = prood("results")
    assert (code, err.count("\n")) == (2, 1)
    assert "results/wrong.json cannot be read" in err


def test_the_pages_in_the_repository_are_what_its_files_say(prood):
    """And every figure that they show is there."""
    code, _, err = prood("results", ROOT / "results", "--docs", ROOT / "docs", "--check")
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_a_missing_figure_is_named(prood, tmp_path):
    shutil.copytree(ROOT / "results", tmp_path / "results")
    shutil.copytree(ROOT / "docs" / "figures", tmp_path / "docs" / "figures")
    for name in ("results.md", "experiments.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    arguments = ("results", tmp_path / "results", "--docs", tmp_path / "docs", "--check")
    assert prood(*arguments) == (0, "", "")
    figure = tmp_path / "docs" / "figures" / "quickstart" / "figure-asymptotic.svg"
    figure.unlink()
    code, _, err = prood(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {figure} is out of date")
