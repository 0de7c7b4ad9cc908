"""The process: a socket, uvicorn, and an orderly end.

uvicorn's HTTP connection gets a time limit where it has none, and needs one system call for an answer.
"""

import asyncio
import ipaddress
import logging
import os
import socket
import warnings
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from prood.detector import Detector
from prood.errors import BadValue, NoAccess
from prood.models import model_path, read_metadata
from prood.serve.app import create_app
from prood.serve.options import About, Options
from prood.serve.service import Service

TOKEN_VARIABLE = "PROOD_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Server(uvicorn.Server):
    """Says that it is draining from the signal on, and ends with exit code 0 once everything accepted is answered."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.draining = True
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # uvicorn would raise it again at the end, and the exit code be that of a kill


def loaded(run: Path | str, *, device: str = "cpu", name: str | None = None) -> tuple[Detector, About]:
    """The detector of a run, a model file or a shipped model, and what its file says."""
    if name is not None and (name in ("", ".", "..") or "/" in name):
        raise BadValue(f"/v2/models/NAME cannot be reached with the name {name!r}: give a word without a slash")
    detector, facts = Detector.load(run, device=device), read_metadata(run)
    detector.joint()  # a bare discriminator names no class
    place = model_path(run)
    own = place.resolve().parent.name if Path(run).is_dir() else place.stem
    return detector, About(own if name is None else name, facts.eps, facts.inside)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or one line that says why there is none."""
    if not 0 <= port < 2**16:  # the system would take its last 16 bits
        raise BadValue(f"a port is a number from 0 to 65535, not {port}")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # then :: takes IPv4, too
        return socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]  # which names the address again
        raise NoAccess(f"cannot listen on {host} port {port} ({reason}): give another --host or --port") from None


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_for(host: str, more: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names by which the service may be called: on loopback only such, elsewhere any unless some are given."""
    names = tuple(one.lower() for one in more)
    return tuple({*LOOPBACK, host.lower(), *names}) if is_loopback(host) else names or None


def read_token(file: Path | None) -> str | None:
    """From the file, else from the environment; None without either."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise NoAccess(f"cannot read the token in {file}: {getattr(error, 'strerror', None) or error}") from None


def announcement(detector: Detector, about: About, options: Options, host: str, port: int) -> list[str]:
    """What a person who starts the service wants to know."""
    shown = "localhost" if is_loopback(host) and ":" not in host else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    shape = "×".join(map(str, detector.shape))
    if detector.threshold is None:
        verdict = "no threshold: nothing is accepted or rejected; calibrate the detector, or give --threshold"
    else:
        verdict = f"rejects below a confidence of {detector.threshold:.4g}"
        verdict += "" if detector.accept is None else f" (accepts {100 * detector.accept:g}% of in-distribution images)"
    lines = [
        f"serving   {about.name}: {detector.count} classes, images {shape}, {verdict}",
        f"page      {address}/",
        f"docs      {address}/docs   (for programs: {address}/openapi.json)",
    ]
    if not is_loopback(host) and options.token is None:
        lines.append(f"warning   anybody who reaches {host} may use it: give --token-file, or set {TOKEN_VARIABLE}")
    return [*lines, "ctrl-C ends it"]


def serve(
    detector: Detector,
    options: Options | None = None,
    about: About | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    bound: socket.socket | None = None,
    access_log: bool = False,
) -> None:
    """Serve until a signal ends it. `bound` is a socket from `bind`, if the port is to be known before."""
    options = options or Options()
    if options.hosts is None:
        options = replace(options, hosts=hosts_for(host, ()))
    # What Pillow and the parser of forms have to say of strangers' files belongs into no log.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    with bound or bind(host, port) as listening:
        make_server(detector, options, about, access_log=access_log).run(sockets=[listening])


def make_server(
    detector: Detector, options: Options, about: About | None = None, *, access_log: bool = False
) -> Server:
    """uvicorn around the application; `run(sockets=[…])` serves."""
    app = create_app(detector, options, about)
    config = uvicorn.Config(
        app,
        http=impatient(options.header_s),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="info" if access_log else "warning",
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(options.drain_s)),
    )
    return Server(config, app.state.service)


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
            self._deadline = self.loop.call_later(seconds, self.transport.close)

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
