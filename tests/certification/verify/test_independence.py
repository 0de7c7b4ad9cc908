"""The verifier shares no code with what it verifies."""

import ast
from pathlib import Path

import pytest

import prood.certification.verify as package

FILES = sorted(Path(package.__file__).parent.rglob("*.py"))
ALLOWED = (
    "prood.errors",
    "prood.extras",
    "prood.atomic",
    "prood.reading",
    "prood.pretrained",
    "prood.data",
    "prood.certification.record",
    "prood.certification.verify",
)


def imports(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found += [f"{node.module}.{alias.name}" for alias in node.names]  # `from prood import bounds`, too
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_imports_nothing_that_it_verifies(file):
    for name in imports(file):
        if name.split(".")[0] == "prood":
            assert name.startswith(ALLOWED), name
        assert name.split(".")[0] != "torch", name


def test_it_imports_nothing_by_another_way():
    assert not any("importlib" in file.read_text() or "__import__" in file.read_text() for file in FILES)


def test_the_sizes_are_those_that_are_deployed():
    from prood.certification.verify.network import SIZES
    from prood.models import sizes

    assert SIZES == sizes.SIZES
