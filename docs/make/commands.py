"""The page of the command line, docs/reference/commands.md, from the commands' own declarations.

The functions' signatures are read, and not what Typer makes of them, so that the page is the same with every version
of Typer.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from html import escape
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from prood.cli import app
from prood.cli.examples import EXAMPLES

ORDER = list(EXAMPLES)
HEAD = """# The command line

*This page is generated from the commands themselves: do not edit it, but run `make docs`.*

Every command prints this with `--help`. An error that you can correct is one line on the error stream, with exit code
2. A radius is a number or a fraction (`8/255`); a list has commas and no spaces. An image set has a name: see
[image sets](../guides/own-images.md#names-of-image-sets).

"""


@dataclass(frozen=True)
class Command:
    """One command: all words before its arguments, and the function behind it."""

    words: tuple[str, ...]
    function: Callable[..., Any]
    more: str = ""  # what its help says beside the function's docstring

    @property
    def name(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Parameter:
    """An argument or an option, as it is written and what it means."""

    written: str
    argument: bool
    required: bool
    default: str
    help: str


def commands(source: typer.Typer = app, words: tuple[str, ...] = ("prood",)) -> Iterator[Command]:
    """All commands in the order of `prood --help`."""
    found: list[Command] = []
    for info in (one for one in source.registered_commands if not one.hidden):
        assert info.callback is not None
        name = info.name or info.callback.__name__.replace("_", "-")
        found.append(Command((*words, name), info.callback, info.cls.more() if hasattr(info.cls, "more") else ""))
    for group in source.registered_groups:
        assert group.typer_instance is not None
        found += commands(group.typer_instance, (*words, str(group.name)))
    yield from sorted(found, key=lambda one: ORDER.index(" ".join(one.words[1:])))


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    declared = inspect.signature(function).parameters.values()
    shown = [item for item in declared if hints[item.name] is not typer.Context and not _hidden(hints[item.name])]
    return [_parameter(item, hints[item.name]) for item in shown]


def _hidden(hint: Any) -> bool:
    """Whether the option is a former name of another one."""
    return any(getattr(one, "hidden", False) for one in getattr(hint, "__metadata__", ()))


def _parameter(item: inspect.Parameter, hint: Any) -> Parameter:
    if isinstance(item.default, OptionInfo | ArgumentInfo):  # the older way to declare one
        kind, info, default = hint, item.default, item.default.default
        named = info.param_decls or ()
    else:
        kind, info = get_args(hint)[0], next(one for one in hint.__metadata__ if hasattr(one, "param_decls"))
        default = ... if item.default is inspect.Parameter.empty else item.default
        # Where Typer keeps Option("--name") until then.
        first = (info.default,) if isinstance(info.default, str) else ()
        named = (*first, *(info.param_decls or ()))
    argument, required = isinstance(info, ArgumentInfo), default is ...
    value = info.metavar or _value(kind)
    if argument:
        written = info.metavar or (value if "|" in value else item.name.upper())
        written = written if required else f"[{written}]"
    else:
        name = item.name.replace("_", "-")
        written = ", ".join(named) or (f"--{name}/--no-{name}" if _bare(kind) is bool else f"--{name}")
        written += "" if _bare(kind) is bool else f" {value}"
    return Parameter(written, argument, required, _default(default), (info.help or "").strip())


def _bare(kind: Any) -> Any:
    """The type without None and without the list around it: what one value is."""
    inner = [one for one in get_args(kind) if one is not NoneType]
    return _bare(inner[0]) if inner else kind


def _value(kind: Any) -> str:
    bare = _bare(kind)
    if issubclass(bare, Enum):
        return "|".join(str(one.value) for one in bare)
    return {Path: "PATH", int: "WHOLE", float: "NUMBER"}.get(bare, "TEXT")


def _default(default: Any) -> str:
    if default in (..., None, "", False) or default == []:
        return ""
    return str(default.value if isinstance(default, Enum) else default)


def section(command: Command) -> str:
    found = parameters(command.function)
    arguments = [one for one in found if one.argument]
    options = sorted((one for one in found if not one.argument), key=lambda one: not one.required)
    usage = " ".join(
        [command.name, *(one.written for one in arguments)]
        + [one.written for one in options if one.required]
        + (["[OPTION…]"] if any(not one.required for one in options) else [])
    )
    example = EXAMPLES[" ".join(command.words[1:])]
    text = f"## {command.name}\n\n```text\n{usage}\n```\n\n{_prose(_text(command))}\n\nExample: `{example}`\n"
    if found:
        text += "\n| | | default |\n|---|---|---|\n"
        text += "".join(_row(one) for one in (*arguments, *options))
    return text


def _text(command: Command) -> str:
    return "\n\n".join(filter(None, (inspect.getdoc(command.function), command.more)))


def _row(one: Parameter) -> str:
    default = "required" if one.required else f"`{one.default}`" if one.default else ""
    # In a table, a bar inside backticks is read differently by GitHub and by the site; as an entity it is not.
    written = f"<code>{escape(one.written)}</code>" if "|" in one.written else f"`{one.written}`"
    return f"| {written.replace('|', '&#124;')} | {one.help.replace('|', '&#124;')} | {default} |\n"


def _prose(text: str) -> str:
    """A docstring as Markdown: 'prood …' in quotes is code, and so is a method's name before its colon."""
    text = re.sub(r"'(prood [^']*)'", r"`\1`", text)
    text = re.sub(r"(?m)^([a-z][a-z -]*): ", r"**\1**: ", text)
    return re.sub(r"(?<![`\w])docs/(\w+)\.md", r"[\1.md](../\1.md)", text)


def page() -> str:
    found = list(commands())
    listed = "".join(f"- [`{one.name}`](#{'-'.join(one.words)}): {_first(one)}\n" for one in found)
    return HEAD + listed + "\n" + "\n".join(section(one) for one in found)


def _first(command: Command) -> str:
    return (inspect.getdoc(command.function) or "").split("\n\n")[0].replace("\n", " ")
