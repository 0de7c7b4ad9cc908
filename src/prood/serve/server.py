"""The process: a socket, uvicorn, and an orderly end."""

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn

from prood.detector import Detector
from prood.errors import BadValue, NoAccess
from prood.models import read_metadata
from prood.models.files import title
from prood.serve.app import Application, create_app
from prood.serve.connection import ACCEPTED, Quiet, descriptors, impatient
from prood.serve.gallery import gallery_of
from prood.serve.house import House
from prood.serve.lines import write_log
from prood.serve.options import About, Options

TOKEN_VARIABLE, ADMIN_VARIABLE = "PROOD_TOKEN", "PROOD_ADMIN_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


BACKLOG = 2048


class Server(uvicorn.Server):
    """From SIGTERM on it says that it is not ready, and for a while still answers whoever has not heard. Then it takes
    no more, and ends with exit code 0 once everything accepted is answered, or the time for that is over."""

    def __init__(self, config: uvicorn.Config, house: House) -> None:
        super().__init__(config)
        self.house = house
        self._signalled: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.house.draining = True
        first, self._signalled = self._signalled is None, self._signalled or time.monotonic()
        if first and sig == signal.SIGTERM and self.house.options.grace_s:
            return
        super().handle_exit(sig, frame)  # ctrl-C, or a second signal: there is no balancer that must hear of it
        self._captured_signals.clear()  # uvicorn would raise it again at the end, and the exit code would say killed

    def _read_again(self) -> None:
        self._reading = asyncio.ensure_future(self.house.load_all())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(Quiet())
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, self._read_again)
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)  # those that wait are more than those that are accepted at a time

    async def on_tick(self, counter: int) -> bool:
        options = self.house.options
        if self._signalled and time.monotonic() - self._signalled >= min(options.grace_s, options.drain_s):
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.house.draining = True
        passed = time.monotonic() - (self._signalled or time.monotonic())
        self.config.timeout_graceful_shutdown = max(0.1, self.house.options.drain_s - passed)  # type: ignore[assignment]
        await super().shutdown(sockets)


def loaded(run: Path | str, *, device: str = "cpu", name: str | None = None) -> tuple[Detector, About]:
    """The detector of a run, a model file or a shipped model, and what its file says."""
    own = check_name(title(run) if name is None else name)
    detector, facts = Detector.load(run, device=device), read_metadata(run)
    detector.joint()  # a bare discriminator names no class
    return detector, About(own, facts.eps, facts.inside, gallery=gallery_of(run))


def named(words: Sequence[str], name: str | None = None) -> dict[str, str]:
    """The runs of `NAME=RUN …` by name; a path that is there is one, whatever its letters."""
    found: dict[str, str] = {}
    for word in words:
        own, is_, run = word.partition("=")
        if not is_ or Path(word).exists():
            own, run = (name if name is not None else title(word)), word
        if own in found:
            raise BadValue(f"two models are called {own}: give one another name, {own}2={run}")
        found[check_name(own)] = run
    if name is not None and list(found) != [name]:
        raise BadValue("--name is for one model: give several as NAME=RUN")
    return found


def check_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise BadValue(f"/v2/models/NAME cannot be reached with the name {name!r}: give a word without a slash")
    return name


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


def read_token(file: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """From the file, else from the environment; None without either."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise NoAccess(f"cannot read the token in {file}: {getattr(error, 'strerror', None) or error}") from None


def announcement(app: Application, host: str, port: int) -> list[str]:
    """What a person who starts the service wants to know."""
    shown = "localhost" if is_loopback(host) and ":" not in host else f"[{host}]" if ":" in host else host
    address, options = f"http://{shown}:{port}", app.house.options
    lines = [
        *(_model(one.service.detector, name) for name, one in app.house.models.items()),
        f"page      {address}/",
        f"docs      {address}/docs   (for programs: {address}/openapi.json)",
    ]
    if not is_loopback(host) and options.token is None:
        lines.append(f"warning   anybody who reaches {host} may use it: give --token-file, or set {TOKEN_VARIABLE}")
    return [*lines, "ctrl-C ends it"]


def _model(detector: Detector, name: str) -> str:
    shape = "×".join(map(str, detector.shape))
    if detector.threshold is None:
        verdict = "no threshold: nothing is accepted or rejected; calibrate the detector, or give --threshold"
    else:
        verdict = f"rejects below a confidence of {detector.threshold:.4g}"
        verdict += "" if detector.accept is None else f" (accepts {100 * detector.accept:g}% of in-distribution images)"
    return f"serving   {name}: {detector.count} classes, images {shape}, {verdict}"


def serve(
    detector: Detector,
    options: Options | None = None,
    about: About | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    bound: socket.socket | None = None,
    last: bool = False,
) -> None:
    """Serve a detector until a signal ends it. `bound` is a socket from `bind`, where the port must be known before.

    With `last` the process ends with it.
    """
    options = options or Options()
    if options.hosts is None:
        options = replace(options, hosts=hosts_for(host, ()))
    serve_app(create_app(detector, options, about), bound or bind(host, port), last=last)


def serve_app(app: Application, bound: socket.socket, *, last: bool = False) -> None:
    """Serve an application, of one model or several, until a signal ends it."""
    # What Pillow and the parser of forms have to say of strangers' files belongs into no log.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    write_log(app.house.options.access_log)
    server = server_of(app)
    with bound:
        server.run(sockets=[bound])
    if not app.house.ended:
        logging.getLogger("prood.serve").error("the model was still busy at the end")
    if last:  # Python would wait for a thread that computes, and take torch apart, for seconds on a busy machine
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if app.house.ended else 1)


def make_server(detector: Detector, options: Options, about: About | None = None) -> Server:
    return server_of(create_app(detector, options, about))


def server_of(app: Application) -> Server:
    """uvicorn around the application; `run(sockets=[…])` serves."""
    options = app.house.options
    config = uvicorn.Config(
        app,
        http=impatient(options.header_s, descriptors(options.connections)),
        backlog=ACCEPTED,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
    )
    return Server(config, app.house)
