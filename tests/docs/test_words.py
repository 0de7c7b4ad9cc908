"""Pages, help, errors and the source keep the mechanical rules of how Prood writes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from docs_commands import check, read
from docs_pages import PAGES, ROOT
from docs_words import complaints, errors, long_lines, paragraphs, phrases, strings

from prood.cli import app
from prood.cli.examples import EXAMPLES

GENERATED = {"docs/results.md", "docs/experiments.md", "docs/reference/commands.md"}
"""Made of other texts: of help, which is looked at below, and of published files."""
WRITTEN = [page for page in PAGES if page not in GENERATED]


@pytest.mark.parametrize("page", [*WRITTEN, "CHANGELOG.md", "CONTRIBUTING.md"])
def test_pages(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [wrong for block in paragraphs(text) for wrong in complaints(block)] == []
    assert long_lines(text) == []


@pytest.mark.parametrize(
    "page", [page for page in WRITTEN if page.startswith("docs/") and "/reference/" not in page and "index" not in page]
)
def test_a_page_opens_with_what_its_reader_will_be_able_to_do(page: str) -> None:
    first = next(text for text in paragraphs((ROOT / page).read_text(encoding="utf-8")) if text)
    assert first.startswith("After this page you ")


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


def leaves() -> Iterator[tuple[str, object]]:
    def of(command: object, words: list[str]) -> Iterator[tuple[str, object]]:
        if not getattr(command, "commands", None):
            yield " ".join(words), command
        for name, child in getattr(command, "commands", {}).items():
            if not child.hidden:
                yield from of(child, [*words, name])

    yield from of(typer.main.get_command(app), [])


@pytest.mark.parametrize(("name", "command"), list(leaves()))
def test_help_begins_with_an_example_that_is_understood(name: str, command: typer.core.TyperCommand) -> None:
    assert (command.help or "").startswith(f"Example: {EXAMPLES[name]}\n\n")
    ((*words,),) = read(EXAMPLES[name])
    assert words[1:] == [*name.split(), *words[1 + len(name.split()) :]]
    check(words)


def test_the_list_of_commands_fits_on_one_screen() -> None:
    """In a window of 80 columns and 30 rows, the prompt included."""
    words = [sys.executable, "-m", "prood", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=_environment(), timeout=60)
    lines = done.stdout.rstrip().splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 80
    for panel in ("Guard a classifier", "Train and compare"):
        assert any(panel in line for line in lines)


def _environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"}


def test_former_names_of_options_and_commands_still_work() -> None:
    for line in (
        "prood certify digits:test --model cifar10 --eps 0.1 --method ibp",
        "prood evaluate cifar10 --in cifar10:test --out uniform --method crown",
        "prood compare --in digits:test --method ibp",
        "prood asymptotics cifar10 --in digits --out uniform --guard 1",
        "prood reproduce cifar10 --out cifar100",
        "prood reproduce claims results.json --model cifar10 --out svhn --method best",
        "prood combine run --discriminator cifar10 --run joint --shift 1 --tpr 0.9 --confidence 0.9",
        "prood wrap run --discriminator cifar10 --run joint --shift 1",
        "prood results results",
    ):
        check(read(line)[0])


def test_source() -> None:
    files = sorted((ROOT / "src" / "prood").rglob("*.py"))
    assert [(file.stem, line, wrong) for file in files for line, text in strings(file) for wrong in phrases(text)] == []


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
