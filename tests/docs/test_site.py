"""The site: its navigation, its generated pages, its figures, and that it builds without a complaint."""

import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from docs_pages import ROOT

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference" / "python"
ROOMS = ["attacks", "bounds", "certification", "data", "detector", "evaluation", "export", "methods"]
ROOMS += ["models", "report", "scoring", "serve", "studies", "training", "evaluation.asymptotics"]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The scripts in docs/make; `make.generated()` gives all that they make."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DOCS / "make"))
    spec = importlib.util.spec_from_file_location("make_the_docs", DOCS / "make" / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in ("commands", "recipes", "figures", "diagrams", "drawing", "verdict"):
        if name not in before:
            sys.modules.pop(name, None)


def documented() -> list[str]:
    pages = [file.read_text(encoding="utf-8") for file in sorted(REFERENCE.glob("*.md"))]
    return [name for text in pages for name in re.findall(r"(?m)^::: (\S+)$", text)]


def entries(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [page for child in children for page in entries(child)]  # type: ignore[attr-defined]


def test_the_navigation_has_every_page_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = entries(settings["nav"])
    assert sorted(listed) == sorted(str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md"))


def test_generated_pages_and_figures_are_up_to_date(make: ModuleType) -> None:
    for file, text in make.generated().items():
        assert file.is_file(), f"{file.name} is missing: run 'make docs'"
        assert file.read_text(encoding="utf-8") == text, f"{file.name} is not up to date: run 'make docs'"


def test_the_plane_of_a_verdict_shows_what_its_page_says(make: ModuleType) -> None:
    plane = sys.modules["verdict"]
    text = (DOCS / "verdict.md").read_text(encoding="utf-8")
    told = {row[0]: row for row in re.findall(r"(?m)^\| ([A-E]) \| (.*?) \| (.*?) \|$", text)}
    assert set(told) == set(plane.IMAGES)
    t, gate = plane.THRESHOLD, plane.GATE.inverse(plane.THRESHOLD)
    for name, (score, g, bound) in plane.IMAGES.items():
        assert score <= g <= bound
        verdicts = {
            (True, True): "accepted",
            (False, True): "the confidence rejects it; g lets it pass",
            (True, False): "g alone rejects it; its confidence would pass",
            (False, False): "both gates reject it",
        }
        assert told[name][1] == verdicts[score >= t, g >= gate]
        assert ("every image in the ball is rejected" in told[name][2]) == (bound < gate)
    assert all(plane.IMAGES[name][2] > t for name in "AB"), "without λ nothing would be proved about them"


def test_every_command_and_option_is_in_the_reference(make: ModuleType) -> None:
    """Against the help that Typer itself makes of the same declarations."""
    import typer

    from prood.cli import app

    def leaves(command: object, words: list[str]) -> Iterator[tuple[str, object]]:
        if hasattr(command, "commands"):
            for name, child in command.commands.items():
                if not child.hidden:  # former names are not documented
                    yield from leaves(child, [*words, name])
        else:
            yield " ".join(words), command

    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"(?ms)^## (prood .*?)\n(.*?)(?=^## |\Z)", text))
    found = dict(leaves(typer.main.get_command(app), ["prood"]))
    assert sections.keys() == found.keys()
    for name, command in found.items():
        rows = "\n".join(re.findall(r"(?m)^\| (\S.*?) \|", sections[name]))
        for parameter in command.params:  # type: ignore[attr-defined]
            hidden = getattr(parameter, "hidden", False)  # names of before
            if parameter.param_type_name == "option" and "--help" not in parameter.opts and not hidden:
                for option in (*parameter.opts, *parameter.secondary_opts):
                    assert re.search(rf"(?<![\w-]){option}(?![\w-])", rows), f"{name} {option}"


def public(room: str) -> list[str]:
    """`__all__`, read and not imported: a room may need a package for some of its names."""
    tree = ast.parse((ROOT / "src" / "prood").joinpath(*room.split("."), "__init__.py").read_text(encoding="utf-8"))
    (names,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return list(ast.literal_eval(names))


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_of_a_room_is_in_the_reference(room: str) -> None:
    shown = {name.rsplit(".", 1)[1] for name in documented() if name.startswith(f"prood.{room}.")}
    assert set(public(room)) <= shown


def test_every_name_in_the_reference_exists() -> None:
    names = documented()
    assert len(names) == len(set(names))
    for name in names:
        module, attribute = name.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), attribute), name


def test_the_names_at_the_top_are_all_listed() -> None:
    import prood

    text = (REFERENCE / "index.md").read_text(encoding="utf-8")
    assert {name for name in prood.__all__ if f"`prood.{name}`" not in text} == set()


def test_the_rooms_of_the_diagram_may_hand_things_to_each_other(make: ModuleType) -> None:
    spec = importlib.util.spec_from_file_location("the_rooms", ROOT / "tests" / "test_rooms.py")
    assert spec is not None
    assert spec.loader is not None
    rooms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rooms)
    for start, end in make.diagrams.ARROWS:
        assert start in rooms.ALLOWED[end] or end in rooms.ALLOWED[start], (start, end)


def test_what_the_figures_show_was_measured_in_the_right_order() -> None:
    """attacked ≤ certified for every radius and every way, the tighter bound below the looser ones, GAUC ≤ AUC."""
    found = json.loads((DOCS / "assets" / "measured.json").read_text(encoding="utf-8"))
    ball, lines, scores = found["ball"], found["lines"], found["scores"]
    digits = 1.0001  # the file has five digits
    for attacked, alpha, crown, ibp in zip(
        ball["attacked"], ball["alpha-crown"], ball["crown-ibp"], ball["ibp"], strict=True
    ):
        assert ball["clean"] <= attacked * digits <= alpha * digits**2
        assert alpha <= min(crown, ibp) * digits
        assert ibp <= ball["ceiling"] * digits
    assert max(map(max, [*lines["random"], lines["attack"]])) <= lines["upper_bound"] * digits
    assert scores["gauc"] <= scores["auc"]
    # What docs/idea.md says of the ball.
    assert max(eps for eps, bound in zip(ball["eps"], ball["alpha-crown"], strict=True) if bound < 0.6) == 0.0175
    assert ball["clean"] < found["threshold"] < ball["attacked"][1]
    assert all(seen <= most + 1e-3 for seen, most in zip(scores["outside"], scores["certified"], strict=True))


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install '.[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//', text), page.name
