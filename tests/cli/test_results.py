"""prood results, as a user meets it; and the page in the repository."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_written_and_checked(prood, tmp_path):
    (tmp_path / "results").mkdir()
    page = tmp_path / "docs" / "page.md"
    arguments = ("results", tmp_path / "results", "--out", page)
    code, _, err = prood(*arguments, "--check")
    assert (code, err.count("\n")) == (2, 1)
    assert not page.exists()
    assert prood(*arguments) == (0, f"wrote {page}\n", "")
    assert prood(*arguments, "--check") == (0, "", "")
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("yet", "so far"), encoding="utf-8")
    code, _, err = prood(*arguments, "--check")
    assert code == 2
    assert err.startswith(f"error: {page} is not what {tmp_path / 'results'} says: write it with 'prood results")
    assert "so far" in page.read_text(encoding="utf-8")
    assert prood(*arguments)[0] == 0
    assert page.read_text(encoding="utf-8") == text


def test_the_folders_are_those_of_the_repository_unless_told_otherwise(prood, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = prood("results")
    assert (code, err) == (2, "error: there is no folder results: name the one that holds the published results\n")
    shutil.copytree(ROOT / "results", tmp_path / "results")
    assert prood("results") == (0, "wrote docs/results.md\n", "")
    (tmp_path / "results" / "wrong.json").write_text("{half")
    code, _, err = prood("results")
    assert (code, err.count("\n")) == (2, 1)
    assert "results/wrong.json cannot be read" in err


def test_the_page_in_the_repository_is_what_its_files_say(prood):
    code, _, err = prood("results", ROOT / "results", "--out", ROOT / "docs" / "results.md", "--check")
    assert (code, err) == (0, "")
