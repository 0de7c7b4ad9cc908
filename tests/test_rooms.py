"""The rooms of docs/architecture.md: who may import whom."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import prood

SOURCE = Path(prood.__file__).parent
# small modules that every room may use
BASE = {"errors", "atomic", "extras", "processes", "progress", "reading", "version"}
ALLOWED = {
    "errors": set(),
    "extras": set(),
    "atomic": set(),
    "processes": set(),
    "progress": set(),
    "reading": set(),
    "version": set(),
    "pretrained": set(),
    "recipes": set(),
    "bounds": set(),
    "models": {"bounds", "pretrained"},
    "data": set(),
    "methods": {"models", "data", "bounds"},
    "training": {"methods", "models", "data", "bounds", "recipes"},
    "attacks": {"models"},
    "evaluation": {"attacks", "bounds", "models", "data"},
    "certification": {"pretrained", "models", "bounds", "data", "detector"},
    "detector": {"pretrained", "models", "bounds", "data"},
    "export": {"detector", "models", "bounds"},
    "scoring": {"models", "bounds", "data", "detector", "certification"},
    "serve": {"models", "bounds", "data", "attacks", "detector"},
    "wrapping": {"models", "training"},
    "studies": {"bounds", "models", "data", "methods", "training", "attacks", "evaluation", "detector"},
    "report": {"evaluation", "models", "data", "studies"},
    "guarding": {"pretrained", "data", "models", "detector", "training", "evaluation", "studies", "report"},
    "cli": {
        "pretrained",
        "recipes",
        "bounds",
        "models",
        "data",
        "methods",
        "training",
        "attacks",
        "evaluation",
        "studies",
        "report",
        "certification",
        "detector",
        "scoring",
        "serve",
        "export",
        "guarding",
    },
}
EXCEPTIONS = {"evaluation": {"report"}}  # `Results.report(…)` loads it when it is called


def rooms() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE).parts
        if parts[0] not in ("__init__.py", "__main__.py"):
            found.setdefault(parts[0].removesuffix(".py"), []).append(file)
    return found


def imported_rooms(file: Path) -> set[str]:
    """Every prood room that the file imports, at its top or inside a function."""
    names = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} uses a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("prood.")}


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_room_imports_only_from_rooms_to_its_left(room):
    assert room in ALLOWED, f"{room} is not in the table of rooms"
    used = {name for file in rooms()[room] for name in imported_rooms(file)}
    assert used <= ALLOWED[room] | BASE | EXCEPTIONS.get(room, set()) | {room}


def test_the_check_sees_a_forbidden_import(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text("def later():\n    from prood.training import train\n    import prood.cli.info\n")
    assert imported_rooms(file) == {"training", "cli"}


def test_importing_prood_does_not_load_torch():
    code = "import sys, prood, prood.cli; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    for name in prood.__all__:
        assert getattr(prood, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = prood.no_such_name


@pytest.mark.parametrize("room", ["bounds", "models"])
def test_names_that_were_public_stay_for_one_version(room):
    module = importlib.import_module(f"prood.{room}")
    old = {"bounds": ["Arithmetic", "Pullback", "crown_ibp"], "models": ["resnet18", "SIZES", "Wrapped"]}[room]
    assert all(getattr(module, name) is not None and name not in module.__all__ for name in old)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name
