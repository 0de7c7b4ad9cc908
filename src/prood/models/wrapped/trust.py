"""Whether the caller trusts the code that a model may bring along: TorchScript is a program."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from prood.errors import Unsupported

_TRUSTED = ContextVar("trusted", default=False)


def trust(trusted: bool) -> None:
    """From here on, as the command line asks for it."""
    _TRUSTED.set(trusted)


@contextmanager
def trusting_code(trusted: bool = True) -> Iterator[None]:
    """Inside, code that comes with a model is run. Without `trusted` nothing changes."""
    before = _TRUSTED.set(trusted or _TRUSTED.get())
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def check_trust() -> None:
    """Refuse to run a program of somebody else's unless the caller has said that it may."""
    if not _TRUSTED.get():
        raise Unsupported(
            "the classifier is TorchScript, a program that runs as it is opened: export it to .pt2 or ONNX, or, if you "
            "trust who made it, pass --trust-code (in Python trust_code=True)"
        )
