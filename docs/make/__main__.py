"""Make what the site is generated from: `python docs/make` writes it, and `python docs/make --check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

import commands
import diagrams
import figures
import recipes

DOCS = Path(__file__).parent.parent


def generated() -> dict[Path, str]:
    """Every generated file and its text. The figures are drawn from `measured.json`, which `measure.py` made."""
    pages = {"reference/commands.md": commands.page(), "reference/recipes.md": recipes.page()}
    drawn = figures.drawn() | diagrams.drawn()
    return {DOCS / name: text for name, text in {**pages, **{f"assets/{key}.svg": drawn[key] for key in drawn}}.items()}


def main() -> None:
    stale = [file for file, text in generated().items() if not file.is_file() or file.read_text("utf-8") != text]
    if "--check" in sys.argv:
        if stale:
            sys.exit(f"not up to date: {', '.join(file.name for file in stale)}; run 'make docs'")
        return
    for file in stale:
        file.write_text(generated()[file], encoding="utf-8")
        print(f"wrote {file.relative_to(DOCS)}")


if __name__ == "__main__":
    main()
