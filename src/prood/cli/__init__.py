"""The command line: one thin command per verb, no logic of its own."""

import os
import sys
import warnings
from contextvars import copy_context
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from prood.cli.calibrating import calibrate
from prood.cli.combining import combine
from prood.cli.committee import committee
from prood.cli.data import data
from prood.cli.deploying import serve
from prood.cli.examples import EXAMPLES, add_examples
from prood.cli.exporting import export
from prood.cli.guarding import guard, init
from prood.cli.measuring import asymptotics, compare, evaluate
from prood.cli.options import formerly
from prood.cli.predicting import predict
from prood.cli.proving import certify
from prood.cli.reproduce import reproduce
from prood.cli.scoring import score
from prood.cli.showing import info, report, results
from prood.cli.training import ListsMethods, quickstart, recipes, train
from prood.cli.verifying import verify
from prood.errors import ProodError, ProodWarning
from prood.version import __version__

GUARD, COMPARE = "Guard a classifier", "Train and compare"


class _Root(TyperGroup):
    """The commands in two panels. The usage line names the general options, so that everything fits on one screen."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for param in params:
            param.hidden = True  # type: ignore[attr-defined]  # options have it
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[--version|--install-completion]", *super().collect_usage_pieces(ctx)[1:]]

    def list_commands(self, ctx: Any) -> list[str]:
        order = list(dict.fromkeys(words.split()[0] for words in EXAMPLES))
        return sorted(super().list_commands(ctx), key=[*order, *super().list_commands(ctx)].index)


app = typer.Typer(
    cls=_Root,
    help="Image classifiers that say “I don't know”, with a proof.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
promise, bound = formerly(tpr="accept", confidence="level"), formerly(method="bound")
compared, far = formerly(method="bound", in_="inside"), formerly(guard="far-penalty", out="outside", in_="inside")
for one in (quickstart, guard, init, predict, calibrate, verify, score, serve, export):
    app.command(rich_help_panel=GUARD)(one)
app.command(rich_help_panel=GUARD, context_settings=promise)(combine)
app.command(rich_help_panel=GUARD, context_settings=bound)(certify)
for other in (recipes, committee, report, info):
    app.command(rich_help_panel=COMPARE)(other)
app.command(cls=ListsMethods, rich_help_panel=COMPARE)(train)
app.command(rich_help_panel=COMPARE, context_settings=formerly(method="bound", out="outside", in_="inside"))(evaluate)
app.command(rich_help_panel=COMPARE, context_settings=compared)(compare)
app.add_typer(data, name="data", rich_help_panel=COMPARE)
app.add_typer(reproduce, name="reproduce", rich_help_panel=COMPARE)
reproduce.command("asymptotics", context_settings=far)(asymptotics)
reproduce.command("pages")(results)
# Former names:
app.command("wrap", hidden=True, context_settings=promise)(combine)
app.command("asymptotics", hidden=True, context_settings=far)(asymptotics)
app.command("results", hidden=True)(results)
add_examples(app)


def _version(value: bool) -> None:
    if value:
        print(f"prood {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """Run a command; an error that a user can mend is one line and exit code 2."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # A name on disk may be no text, and an old encoding has no ≤: standard error is written like this anyway.
        sys.stdout.reconfigure(errors="backslashreplace")
    if empty := _empty(sys.argv[1:]):
        _refuse(f"{empty} is an empty text: give a value; a variable that is not set leaves none")
    warnings.showwarning = _show
    try:
        # In a context of its own: what is trusted for a command is trusted for no other.
        sys.exit(copy_context().run(app, standalone_mode=False))
    except ProodError as error:
        _refuse(str(error))
    except OSError as error:  # a closed pipe is not among them: Typer ends on it without a word
        if error.errno is None:  # not the system's, but a library's way to say something else
            raise
        place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        if place is not None and place.suffix == ".part":  # what is written aside bears a name that nobody gave
            place = place.parent
        where = "a file" if place is None else str(place)
        _refuse(f"cannot read or write {where} ({error.strerror or error}): choose another place, or make room there")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # of Typer's own ones only what they have in common is in the same place in all versions
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
            sys.exit(2)
        fault = " ".join(error.format_message().split()).rstrip(".")  # with tabs in it
        context = getattr(error, "ctx", None)
        _refuse(f"{fault}: see '{context.command_path} --help'" if context else fault)  # where the right words are


def _empty(words: list[str]) -> str:
    """The first argument that is empty, if any: as a path it would be the folder that the command runs in."""
    for before, word in zip(["", *words], words, strict=False):
        if not word:
            return before if before.startswith("--") else "an argument"
        if word.startswith("--") and word.find("=") == len(word) - 1:
            return word[:-1]
    return ""


def _show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any, **more: Any) -> None:
    """Our own warnings are for the user, in one line; others are as Python shows them."""
    if issubclass(category, ProodWarning):
        Console(stderr=True, emoji=False).print(
            f"[yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True
        )
    else:
        print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)


def _refuse(fault: str) -> NoReturn:
    Console(stderr=True, emoji=False).print(f"[red]error:[/] {escape(fault)}", highlight=False, soft_wrap=True)
    sys.exit(2)
