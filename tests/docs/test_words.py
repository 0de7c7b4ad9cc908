"""Pages, help and errors keep the mechanical rules of how Prood writes."""

from collections.abc import Iterator

import pytest
import typer
from docs_pages import PAGES, ROOT
from docs_words import complaints, errors, long_lines, paragraphs

from prood.cli import app

GENERATED = {"docs/results.md", "docs/experiments.md", "docs/reference/commands.md"}
"""Made of other texts: of help, which is looked at below, and of published files."""
WRITTEN = [page for page in PAGES if page not in GENERATED]


@pytest.mark.parametrize("page", [*WRITTEN, "CHANGELOG.md", "CONTRIBUTING.md"])
def test_pages(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [wrong for block in paragraphs(text) for wrong in complaints(block)] == []
    assert long_lines(text) == []


def helps() -> Iterator[tuple[str, str]]:
    def of(command: object, words: list[str]) -> Iterator[tuple[str, str]]:
        yield " ".join(words), getattr(command, "help", "") or ""
        for parameter in getattr(command, "params", ()):
            yield f"{' '.join(words)} {parameter.opts[0]}", getattr(parameter, "help", "") or ""
        for name, child in getattr(command, "commands", {}).items():
            yield from of(child, [*words, name])

    yield from of(typer.main.get_command(app), ["prood"])


def test_help() -> None:
    assert [(name, wrong) for name, text in helps() for wrong in complaints(" ".join(text.split()))] == []


def test_errors() -> None:
    files = sorted((ROOT / "src" / "prood").rglob("*.py"))
    found = [(file.stem, line, wrong) for file in files for line, text in errors(file) for wrong in complaints(text)]
    assert found == []


def test_the_rules_see_what_breaks_them() -> None:
    assert (
        len(list(complaints("It is no file; else the recipe's. So many of them are the same as that of another."))) == 4
    )
    assert list(complaints(" ".join(["word"] * 41))) != []
    assert list(complaints("Prood reuses results that already exist.")) == []
    assert list(paragraphs("# A\n\n```bash\nso many\n```\n\n| so many |\n\none\ntwo\n\n- three")) == [
        "one two",
        "- three",
    ]
