"""JSON answers, and how the service says no: a status and one line that says what to do."""

import json
from typing import Any

from starlette.responses import Response

from prood.errors import ProodError

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
GONE = 499
"""The status that is counted for a client that hung up; nobody is sent it."""


class Refused(ProodError):
    """A request that is answered with `status` and the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad(message: str) -> Refused:
    return Refused(400, message)


def busy(what: str) -> Refused:
    return Refused(503, f"{what}: try again in a second")


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """NaN is no JSON: whoever has one must say null."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair, which a client may send, has no UTF-8; what Python writes for it is JSON's own escape.
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, "application/json")


def refusal(refused: Refused) -> Response:
    return answer({"error": str(refused)}, refused.status, _HEADERS.get(refused.status))
