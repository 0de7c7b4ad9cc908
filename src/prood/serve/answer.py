"""JSON answers, and how the service says no: a status and one line that says what to do."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from prood.errors import ProodError

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
NDJSON = "application/x-ndjson"
"""A line of JSON for each event."""
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
    return Response(_encoded(content), status, headers, "application/json")


class Lines(Response):
    """Events as lines of JSON, each sent when it comes. Where the first fails, the answer is that refusal; where a
    later one does, the last line has its `error`."""

    def __init__(self, events: AsyncGenerator[Any]) -> None:
        super().__init__(media_type=NDJSON)
        del self.headers["content-length"]
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.events) as events:
            try:
                first = await anext(events)
            except Refused as refused:
                await refusal(refused)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send(_line(first))
            try:
                async for event in events:
                    await send(_line(event))
            except Refused as refused:
                await send(_line({"error": str(refused)}))
            await send({"type": "http.response.body", "body": b""})


async def last(events: AsyncGenerator[Any]) -> Any:
    """What the last event says."""
    async with aclosing(events):
        return [event async for event in events][-1]


def _line(event: Any) -> dict[str, Any]:
    return {"type": "http.response.body", "body": _encoded(event) + b"\n", "more_body": True}


def _encoded(content: Any) -> bytes:
    """NaN is no JSON: whoever has one must say null."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair, which a client may send, has no UTF-8; what Python writes for it is JSON's own escape.
    return text.encode("utf-8", "backslashreplace")


def refusal(refused: Refused) -> Response:
    return answer({"error": str(refused)}, refused.status, _HEADERS.get(refused.status))
