"""Shell commands that a page shows: their words, whether one can be run here, and whether it would be understood."""

import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path
from unittest.mock import DEFAULT, patch

import typer

from prood.attacks import PRESETS
from prood.cli import app
from prood.data import find
from prood.evaluation import parse_radii
from prood.pretrained import names
from prood.training import load_recipe

ROOT = Path(__file__).parents[2]
LONG = {"quickstart", "compare", "reproduce", "guard", "init"}  # minutes to hours
SMALL = {
    "train": ["--set", "train.epochs=0.01", "--set", "train.decay_from=0.005"],
    "train discriminator": ["--set", "train.eps_ramp=0.005"],
    "train good": ["--set", "train.eps_ramp=0.005", "--set", "train.kappa_ramp=0.005"],
    "train robust": ["--set", "train.eps_ramp=0.005"],
    "train unsure": ["--set", "train.weight_ramp=0.005"],
    "train ccu": ["--set", "train.components=3", "--set", "train.fit_images=200"],
    "evaluate": ["--limit", "2", "--attacks", "fast"],
    "certify": ["--limit", "2"],
    "predict": ["--limit", "2"],
    "calibrate": ["--limit", "2"],
    "reproduce asymptotics": ["--directions", "10", "--adversarial", "2"],
}
"""What makes a command that a page shows quick: the later of two options counts."""
THERE = dict.fromkeys(("find", "exists", "isdir"), DEFAULT)
"""What looks for models and images: a page names those that its reader has."""


def read(text: str) -> list[list[str]]:
    """The commands of a block as words; a line that ends in a backslash goes on."""
    joined = re.sub(r"\\\n\s*", "", text)
    found = [shlex.split(line.replace(".venv/bin/", ""), comments=True) for line in joined.splitlines()]
    return [words for words in found if words and not re.match(r"\w+=\$", words[0])]


def why_not_run(words: list[str]) -> str | None:
    """Why this command is only parsed: it takes minutes, needs the network or does not end. None: it is run."""
    if words[0] == "curl":
        return None
    if words[0] != "prood":
        return "it installs, builds, or starts several processes"
    verb = words[1]
    if verb in LONG:
        return "it takes minutes"
    if verb == "serve":
        return "it does not end"
    if words[1:3] in (["data", "fetch"], ["data", "check"]):
        return "it needs the network"
    if "ray" in words:
        return "it starts several processes"
    if verb == "combine" and re.match(r"(torchvision|timm|hf):", words[2]):
        return "it needs the network"
    if verb == "train" and Path(option(words, "--recipe") or "quickstart.toml").suffix != ".toml":
        return None if option(words, "--recipe") == "quickstart" else "it needs data that are not here"
    return None


def option(words: list[str], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


def check(words: list[str]) -> None:
    """Refuse what would not be understood: unknown options, targets, extras, files, presets, names of sets."""
    words = words[words.index("prood") :] if "prood" in words else words
    if words[0] == "prood":
        _check_prood(words)
    elif words[0] == "make":
        targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text())
        assert set(words[1:]) <= set(targets), words
    elif words[0] == "pip":
        _check_pip(words)
    elif words[0] == "python3":
        assert words[1:3] == ["-m", "venv"], words
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words[1]
    else:
        raise AssertionError(f"nothing here knows how to check {words[0]!r}")


def _check_prood(words: list[str]) -> None:
    command, context = typer.main.get_command(app), None
    rest = words[1:]
    if rest in (["--version"], ["--install-completion"]):
        return
    while hasattr(command, "commands"):
        context = command.make_context(words[0], list(rest[:1]), parent=context)
        assert rest[0] in command.commands, f"there is no command {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    with patch.multiple("prood.cli.options", **THERE), patch("prood.cli.scoring.exists"):
        command.make_context(words[0], list(rest))  # an unknown option, or a value of another type, is an error
    if (recipe := option(words, "--recipe")) and not recipe.endswith(".toml"):
        changed = [value for name, value in pairwise(words) if name == "--set"]
        load_recipe(recipe).with_settings(words[2], changed)
    if eps := option(words, "--eps"):
        parse_radii(eps)
    if attacks := option(words, "--attacks"):
        assert attacks in PRESETS or attacks == "none", attacks
    if words[1] in ("evaluate", "reproduce"):
        for name in (option(words, "--outside") or "uniform").split(","):
            find(name)
    if words[1] == "data" and words[2] in ("fetch", "check"):
        for name in words[3:]:
            find(name)
    if words[1] in ("certify", "predict") and "/" not in (model := str(option(words, "--model"))):
        assert model in names(), model


def _check_pip(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"\[([\w,]+)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), extras
    for name, file in pairwise(words):
        assert name != "-c" or (ROOT / file).is_file(), file
