"""uvicorn's HTTP connection, with limits where it has none, and one system call for an answer."""

import asyncio
import contextlib
import logging
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from prood.serve.guard import HUNG_UP

RESERVE = 128
"""File descriptors that are not for connections."""
ACCEPTED = 128
"""Connections that are accepted in one turn of the loop, before any of them is counted."""
QUIET_S = 60.0
log = logging.getLogger("prood.serve")


def descriptors(connections: int) -> int:
    """Maximum connections; fewer where the system lacks file descriptors."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return connections
    wanted = connections + RESERVE + ACCEPTED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        return max(1, min(connections, soft - RESERVE - ACCEPTED))
    return connections


class Quiet:
    """An event loop's handler of exceptions. asyncio complains for every connection that it cannot accept; one line a
    minute says as much."""

    def __init__(self) -> None:
        self._said = -QUIET_S

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "socket.accept()" not in context.get("message", ""):
            loop.default_exception_handler(context)
        elif time.monotonic() - self._said >= QUIET_S:
            self._said = time.monotonic()
            log.error("no connection can be accepted (%s): raise the limit of open files", context.get("exception"))


class Gathered:
    """A transport that sends what is written in one turn of the loop at once: an answer's head and its body.

    Each system call gives the interpreter's lock away, and under load the model's thread takes its time with it.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if data and not self._parts:
            self._loop.call_soon(self.flush)
        if data:
            self._parts.append(data)

    def flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def impatient(seconds: float, connections: int) -> type[H11Protocol]:
    """A connection, counted among at most MOST. Where its client hangs up, the work for it ends.

    It is closed where its client owes bytes for `seconds`: the rest of its headers (also the first ones), or
    the rest of a body that was refused already. The body of a request in work has its own limit.
    """

    class Impatient(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(Gathered(transport, self.loop))  # type: ignore[arg-type]
            self._deadline = self.loop.call_later(seconds, self.transport.close)
            if len(self.connections) > connections:
                self.transport.close()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            if self.cycle is not None and not self.cycle.response_complete:
                task = self.scope.get("state", {}).get("task")
                if task is not None:
                    task.cancel(HUNG_UP)
            super().connection_lost(exc)

        def _look(self) -> None:
            """Start the clock where bytes are owed; more of them do not set it back."""
            if not self._owes():
                self._cancel()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self.transport.close)

        def _owes(self) -> bool:
            theirs = self.conn.their_state
            if theirs is h11.IDLE:
                return bool(self.conn.trailing_data[0])
            return theirs is h11.SEND_BODY and self.cycle is not None and bool(self.cycle.response_complete)

        def _cancel(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Impatient
