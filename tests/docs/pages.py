"""The pages and notebooks of the documentation, and the blocks of code in them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "docs" / "notebooks").glob("*.ipynb"))
PAGES = ["README.md", *sorted(str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "bash", "toml", "text"}
"""What is run, what is run word by word, a file that the page shows, and what something printed."""
REASONS = {"needs a GPU", "needs an extra", "needs the network", "takes minutes", "takes hours"}
"""Why a block may stay without being run; the page's source says it in a comment just above the block."""


@dataclass(frozen=True)
class Block:
    """`note` is the comment just above: `not run: REASON`, or `file: NAME` for a file that the page shows."""

    page: str
    line: int
    language: str
    text: str
    note: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return not self.note.startswith("not run:")


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return cells(page, text) if page.endswith(".ipynb") else parsed(page, text)


def cells(page: str, text: str) -> list[Block]:
    """The cells of code of a notebook, numbered as they stand."""
    found = enumerate(json.loads(text)["cells"], 1)
    return [
        Block(page, number, "python", "".join(cell["source"])) for number, cell in found if cell["cell_type"] == "code"
    ]


def complaint(block: Block) -> str | None:
    """What is wrong with the way in which a page shows this block."""
    if block.language not in LANGUAGES:
        return f"{block.where}: {block.language!r} is no kind of block"
    if block.note.startswith("not run") and block.note.removeprefix("not run: ") not in REASONS:
        return f"{block.where}: {block.note!r} is no reason"
    if block.language == "toml" and not block.note.startswith("file: "):
        return f"{block.where}: which file is it?"
    return None


def parsed(page: str, text: str) -> list[Block]:
    """All fenced blocks, in order."""
    lines = text.splitlines()
    found, number = [], 0
    while number < len(lines):
        fence = re.fullmatch(r"\s*(```+|~~~+)\s*(.*?)\s*", lines[number])
        if fence:
            end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == fence[1])
            above = re.fullmatch(r"<!-- (.*) -->", lines[number - 1]) if number else None
            text = "".join(f"{line}\n" for line in lines[number + 1 : end])
            found.append(Block(page, number + 1, fence[2], text, above[1] if above else ""))
            number = end
        number += 1
    return found
