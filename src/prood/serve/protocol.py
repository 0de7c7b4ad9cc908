"""uvicorn's HTTP connection with a time limit where it has none, and with one system call for an answer."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


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


def impatient(seconds: float) -> type[H11Protocol]:
    """A connection that is closed where its client owes bytes for so long: the rest of its headers (also the first
    ones), or the rest of a body that was refused already. The body of a request in work has its own limit."""

    class Impatient(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(Gathered(transport, self.loop))  # type: ignore[arg-type]
            self._deadline = self.loop.call_later(seconds, self._too_slow)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def _look(self) -> None:
            """Start the clock where bytes are owed; more of them do not set it back."""
            if not self._owes():
                self._cancel()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self._too_slow)

        def _owes(self) -> bool:
            theirs = self.conn.their_state
            if theirs is h11.IDLE:
                return bool(self.conn.trailing_data[0])
            return theirs is h11.SEND_BODY and self.cycle is not None and bool(self.cycle.response_complete)

        def _cancel(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Impatient
