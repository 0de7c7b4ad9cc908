"""Make what the site is generated from: `python docs/make` writes it, and `python docs/make --check` only compares."""

import sys
from pathlib import Path

import commands
import diagrams
import figures
import recipes
import summary
import verdict

DOCS = Path(__file__).parent.parent


def generated() -> dict[Path, str]:
    """Every generated file and its text. The figures are drawn from `measured.json`, which `measure.py` made."""
    pages = {
        "reference/commands.md": commands.page(),
        "reference/recipes.md": recipes.page(),
        "verdict.md": verdict.page(),
        **dict(summary.pages()),
    }
    drawn = {
        f"assets/{key}.svg": text
        for key, text in (figures.drawn() | diagrams.drawn() | verdict.drawn() | summary.drawn()).items()
    }
    return {DOCS / name: text for name, text in (pages | drawn).items()}


def main() -> None:
    made = generated()
    stale = {file: text for file, text in made.items() if not file.is_file() or file.read_text("utf-8") != text}
    if "--check" not in sys.argv:
        for file, text in stale.items():
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(DOCS)}")
    elif stale:
        sys.exit(f"not up to date: {', '.join(file.name for file in stale)}; run 'make docs'")


if __name__ == "__main__":
    main()
