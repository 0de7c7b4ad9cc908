"""Prood: image classifiers that say "I don't know", with a proof.

The names below are loaded when they are first used, so that `import prood` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from prood.errors import ProodError
from prood.version import __version__

if TYPE_CHECKING:
    from prood.detector import Detector
    from prood.evaluation import evaluate
    from prood.guarding import guard
    from prood.models import Discriminator, ProoD, discriminator
    from prood.scoring import Scorer
    from prood.training import combine, load_recipe, train

_ROOMS = {
    "detector": ("Detector",),
    "evaluation": ("evaluate",),
    "guarding": ("guard",),
    "models": ("Discriminator", "ProoD", "discriminator"),
    "scoring": ("Scorer",),
    "training": ("combine", "load_recipe", "train"),
}

__all__ = [
    "Detector",
    "Discriminator",
    "ProoD",
    "ProodError",
    "Scorer",
    "__version__",
    "combine",
    "discriminator",
    "evaluate",
    "guard",
    "load",
    "load_recipe",
    "train",
]


def load(path: str, *, trust_code: bool = False) -> Any:
    """The model, ready to use, that a run's folder or a .safetensors file holds, or one that comes with Prood.

    `load("cifar10")` gives a shipped model, unless a file or folder of that name is there: what is on disk wins.
    `load("hf:USER/NAME")`, or `"hf:USER/NAME@REVISION"`, downloads one from the Hugging Face Hub (extra `hub`).
    `prood.pretrained.names()` lists them, and `.card(name)` says what each was trained on and what it reaches. A joint
    model has its `classes` (names), `shift` and `threshold`: reject an image whose confidence is below that.

    Nothing that a file holds is run, so a TorchScript classifier in a run's folder is refused without `trust_code`.
    """
    from prood.models import load as load_file

    return load_file(path, trust_code=trust_code)[0]


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(f"prood.{room}"), name)
    raise AttributeError(f"module 'prood' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names alone, as a notebook completes them."""
    return sorted(__all__)
