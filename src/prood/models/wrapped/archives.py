"""What kind of archive a file is, and whether a .pt2 may be opened: torch's own loader would run what it holds.

`torch.export.load` unpickles weights that are marked so, evaluates symbolic sizes and guards as Python, opens compiled
libraries, and looks operators up anywhere in torch, where `torch.os.system` is one as well. A network needs none of
that. So the archive is read here first, and refused if it holds more than tensors and tensor operations.
"""

import ast
import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from prood.errors import Damaged, ProodError, Unsupported
from prood.reading import check_sizes, json_of

_MEMBERS = re.compile(
    r"models/model\.json|data/weights/\w+(\.json)?|data/constants/\w+(\.json)?|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|byteorder|\.data/\w+|extra/.+"
)
_TARGETS = re.compile(
    r"torch\.ops\.aten\.(?!from_file|save)\w+\.\w+|torch\.sym_\w+"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|eq|ne|lt|le|gt|ge|and_|or_)"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)|math\.(floor|ceil|trunc)"
)
_FUNCTIONS = {
    *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "Abs"),
    *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "And", "Or", "Not"),
    *("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
    *("FloorDiv", "CeilDiv", "CleanDiv", "PythonMod", "ModularIndexing", "Where", "IntTrueDiv", "FloatTrueDiv"),
    *("CeilToInt", "FloorToInt", "TruncToInt", "ToFloat", "max", "min", "size", "stride", "storage_offset"),
}
_HARMLESS = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.keyword),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Tuple, ast.Subscript),
)


def archive_kind(content: bytes) -> str | None:
    """`export` for a .pt2, `torchscript`, `weights` for what torch.save wrote, None for anything else."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()}
    except zipfile.BadZipFile:
        return None
    kinds = {"archive_format": "export", "models/model.json": "export", "constants.pkl": "torchscript"}
    return next((kinds[name] for name in kinds if name in names), "weights" if "data.pkl" in names else None)


def checked_export(content: bytes) -> bytes:
    """The .pt2, packed anew from what was checked, or an error if it holds more than a network of tensor operations.

    Anew, because another reader of zip files might see another archive in the same bytes; and without its example
    inputs, which are a pickle that nobody needs.
    """
    try:
        members = _members(content)
        for name in ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json"):
            if any(entry["use_pickle"] for entry in json_of(members[name])["config"].values()):
                raise _refused("a pickled tensor or object")
        model = json_of(members["models/model.json"])
    except (zipfile.BadZipFile, KeyError, TypeError, AttributeError, ValueError, NotImplementedError) as error:
        raise Damaged(f"the .pt2 is damaged or of another version of torch ({error!r}): export it again") from None
    for key, text in _strings(model):
        if key in ("target", "as_operator") and not _TARGETS.fullmatch(text):
            raise _refused(f"the operator {text}")
        if key in ("expr_str", "guards_code") and not _harmless(text):
            raise _refused(f"the expression {text}")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, member in (members | {"data/sample_inputs/model.pt": b""}).items():
            archive.writestr(f"model/{name}", member)
    return packed.getvalue()


def _members(content: bytes) -> dict[str, bytes]:
    """By their names without the archive's own."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        check_sizes(archive, "the .pt2", len(content))
        places = archive.namelist()
        members = {name.partition("/")[2]: archive.read(name) for name in places}
    if len({name.partition("/")[0] for name in places}) != 1 or len(members) != len(places):
        raise _refused("two members of one name")
    if strange := [name for name in members if not _MEMBERS.fullmatch(name)]:
        raise _refused(f"a member called {strange[0]}")
    return members


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in the description of a program, under the nearest key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else ((key, one) for one in value):
            yield from _strings(inner, name)


def _harmless(text: str) -> bool:
    """Whether an expression is arithmetic of sizes: no names with underscores in front, no texts but symbols."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return False
    return all(_plain(node) for node in ast.walk(tree))


def _plain(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in _FUNCTIONS
        case ast.Attribute(attr=name):
            return name in ("size", "stride", "storage_offset", "shape")
        case ast.Name(id=name):
            return not name.startswith("_")
        case ast.Constant(value=str(text)):
            return re.fullmatch(r"[a-zA-Z]\w*", text) is not None
    return isinstance(node, _HARMLESS)


def _refused(what: str) -> ProodError:
    return Unsupported(f"the .pt2 holds {what}, and not plain tensor operations alone: export it to ONNX instead")
