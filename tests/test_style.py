"""What CONTRIBUTING.md promises about the form of the code and no linter looks at: sizes that a reader can hold."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import prood

SOURCE = Path(prood.__file__).parent
LINES, MEDIAN, NAMES, PARAMETERS = 300, 120, 25, 7


def sources() -> dict[str, str]:
    return {file.relative_to(SOURCE).as_posix(): file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Every function of a file, and how many parameters a caller may give."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            yield node.name, len([name for name in names if name not in ("self", "cls")])


def exports(text: str) -> list[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return []


def test_files_are_short():
    lines = {name: len(text.splitlines()) for name, text in sources().items()}
    assert not {name: count for name, count in lines.items() if count > LINES}
    assert median(lines.values()) <= MEDIAN


def test_a_room_shows_few_names():
    counts = {name: len(exports(text)) for name, text in sources().items() if name.endswith("__init__.py")}
    assert not {name: count for name, count in counts.items() if count > NAMES}


def test_a_function_takes_few_parameters():
    """Commands aside: theirs are the options of the command line."""
    assert not [
        f"{file}:{name}"
        for file, text in sources().items()
        for name, count in functions(text)
        if count > PARAMETERS and not file.startswith("cli/")
    ]


def test_no_room_for_what_has_no_place():
    assert not [name for name in sources() if Path(name).stem in ("utils", "util", "helpers", "common", "misc")]


def test_the_check_sees_what_it_looks_for():
    text = "__all__ = ['a', 'b']\nclass A:\n    def f(self, a, /, b, *rest, c, **more): ...\nasync def g(): ...\n"
    assert exports(text) == ["a", "b"]
    assert dict(functions(text)) == {"f": 3, "g": 0}
