"""How the service says no: a status and one line that says what to do."""

from __future__ import annotations

from prood.errors import ProodError


class Refused(ProodError):
    """A request that is answered with `status` and the message; `retry_after` in seconds where trying again helps."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


def bad(message: str) -> Refused:
    return Refused(400, message)


def busy(what: str) -> Refused:
    return Refused(503, f"{what}: try again in a second", retry_after=1)
