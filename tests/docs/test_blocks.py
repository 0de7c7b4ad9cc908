"""Every block of code in every page runs as it stands, or says in the page's source why not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docs_commands import check, option, read, why_not_run
from docs_pages import NOTEBOOKS, PAGES, Block, blocks, complaint, parsed

from prood.models import Gated, load

PARTS = {page: blocks(page) for page in [*PAGES, *NOTEBOOKS]}
SHOWN = [
    pytest.param(words, id=f"{block.where}-{'-'.join(words[:3])}")
    for found in PARTS.values()
    for block in found
    if block.language == "bash"
    for words in read(block.text)
    if words[0] != "curl" and (not block.runs or why_not_run(words))
]


def tutorial(names: dict[str, Any], place: Path) -> None:
    answer = names["answer"]
    assert (answer.label == names["data"].load("digits:test").labels.numpy()).mean() > 0.9  # the classifier was trained
    assert answer.accepted.mean() > 0.9
    assert len(names["proof"].upper_bound) == 20
    assert (place / "runs" / "wrapped" / "report.html").is_file()
    assert len((place / "certificates.jsonl").read_text().splitlines()) == 1


def shift(names: dict[str, Any], place: Path) -> None:
    assert [one.shift for one in names["candidates"]] == list(range(7))
    assert names["chosen"] in names["candidates"]
    assert isinstance(load(place / "runs" / "strict")[0], Gated)
    assert isinstance(names["detector"].joint(), Gated)
    assert not isinstance(load(place / "runs" / "prood-6")[0], Gated)  # a look at the price changes nothing


def deploy(names: dict[str, Any], place: Path) -> None:
    assert names["facts"]["threshold"] == "0.5"  # that of the run, which the page's own detector does not change
    assert (names["confidence"] <= names["upper_bound"]).all()


AFTERWARDS = {
    "docs/tutorial.md": tutorial,
    "docs/guides/shift.md": shift,
    "docs/guides/deploy.md": deploy,
}
"""What must hold once a page has run, beyond that nothing in it failed."""


@pytest.mark.parametrize("page", [page for page in PARTS if PARTS[page]])
def test_every_block_says_what_it_is_and_why_it_is_not_run(page: str) -> None:
    assert [wrong for block in PARTS[page] if (wrong := complaint(block))] == []


PAGE = """# A page

```python
1 / 0
```

<!-- not run: too lazy -->
```bash
prood train \\
    plain  # a comment
```

````
text
````

```toml
key = 1
```
"""


def test_the_reader_of_pages_sees_every_block_and_what_is_wrong_with_it() -> None:
    first, lazy, nameless, bare = parsed("page.md", PAGE)
    assert (first.language, first.text, first.line, first.runs) == ("python", "1 / 0\n", 3, True)
    assert (lazy.note, lazy.runs, read(lazy.text)) == ("not run: too lazy", False, [["prood", "train", "plain"]])
    assert complaint(first) is None
    assert complaint(lazy) == "page.md:8: 'not run: too lazy' is no reason"
    assert complaint(nameless) == "page.md:13: '' is no kind of block"
    assert complaint(bare) == "page.md:17: which file is it?"
    assert sum(block.language == "python" for block in PARTS["docs/tutorial.md"]) >= 10


@pytest.mark.slow
def test_a_block_that_fails_is_seen(runner: Callable[[Block], None], place: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        runner(parsed("page.md", PAGE)[0])
    with pytest.raises(AssertionError, match="there is no model"):
        runner(
            Block("page.md", 1, "bash", "prood serve runs/prood\nprood certify photo.png --model no/model --eps 0.1\n")
        )
    with pytest.raises(AssertionError, match="404"):
        runner(Block("page.md", 1, "bash", "curl localhost:8000/v1/nothing\n"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PARTS if any(block.runs and block.language in ("python", "bash") for block in PARTS[page])],
)
def test_the_blocks_of_a_page_run(
    page: str,
    runner: Callable[[Block], None],
    made_by: Callable[[list[Block]], None],
    names: dict[str, Any],
    place: Path,
) -> None:
    made_by(PARTS[page])
    for block in sorted(PARTS[page], key=lambda block: not block.note.startswith("file: ")):  # files first
        if block.runs:
            runner(block)
    if page in AFTERWARDS:
        AFTERWARDS[page](names, place)


@pytest.mark.slow
def test_the_readme_shows_what_its_first_lines_print(capsys: pytest.CaptureFixture[str]) -> None:
    blocks_of = {one.language: one.text for one in reversed(PARTS["README.md"])}  # the first of each language
    code, printed = blocks_of["python"], blocks_of["text"]
    exec(code, {})
    assert capsys.readouterr().out == printed


def test_what_must_hold_afterwards_is_about_pages_that_are_there() -> None:
    assert set(AFTERWARDS) <= set(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("words", SHOWN)
def test_a_command_that_takes_long_or_a_network_or_a_gpu_is_parsed_only(words: list[str]) -> None:
    if (recipe := option(words, "--recipe")) and recipe.endswith(".toml") and words[1] != "guard":
        pytest.fail(f"{recipe} is a page's own recipe: its commands can be run")
    if words[0] not in ("srun", "torchrun") or "prood" in words:
        check(words)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("prood train plain --run x --epoch 3", "epoch"),
        ("prood trian plain --run x", "trian"),
        ("prood train plain --recipe quickstart --set train.epoch=3 --run x", "epoch"),
        ("prood data fetch cifar11", "cifar11"),
        ("prood evaluate runs/x --outside svnh", "svnh"),
        ("prood evaluate runs/x --attacks strongest", "strongest"),
        ("prood certify photo.png --model cifar11 --eps 0.1", "cifar11"),
        ("prood serve runs/x --port many", "integer"),
        ("make quickstarts", "quickstarts"),
        ("pip install 'prood[everything]'", "everything"),
        ("python benchmarks/nothing.py", "nothing"),
        ("rm -r /", "rm"),
    ],
)
def test_the_check_of_commands_sees_what_is_wrong(line: str, said: str) -> None:
    (words,) = read(line)
    with pytest.raises(BaseException, match=said):  # Typer's own errors are no ordinary exceptions in every version
        check(words)
