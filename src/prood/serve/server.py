"""The process: a socket, uvicorn, and an orderly end."""

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn

from prood.detector import Detector
from prood.errors import BadValue, NoAccess
from prood.models import read_metadata
from prood.models.files import title
from prood.serve.app import create_app
from prood.serve.connection import ACCEPTED, Quiet, descriptors, impatient
from prood.serve.gallery import gallery_of
from prood.serve.guard import access
from prood.serve.options import About, Options
from prood.serve.service import Service

TOKEN_VARIABLE = "PROOD_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


BACKLOG = 2048


class Server(uvicorn.Server):
    """From SIGTERM on it says that it is not ready, and for a while still answers whoever has not heard. Then it takes
    no more, and ends with exit code 0 once everything accepted is answered, or the time for that is over."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._signalled: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.draining = True
        first, self._signalled = self._signalled is None, self._signalled or time.monotonic()
        if first and sig == signal.SIGTERM and self.service.options.grace_s:
            return
        super().handle_exit(sig, frame)  # ctrl-C, or a second signal: there is no balancer that must hear of it
        self._captured_signals.clear()  # uvicorn would raise it again at the end, and the exit code be that of a kill

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(Quiet())
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)  # those that wait are more than those that are accepted at a time

    async def on_tick(self, counter: int) -> bool:
        options = self.service.options
        if self._signalled and time.monotonic() - self._signalled >= min(options.grace_s, options.drain_s):
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.draining = True
        passed = time.monotonic() - (self._signalled or time.monotonic())
        self.config.timeout_graceful_shutdown = max(0.1, self.service.options.drain_s - passed)  # type: ignore[assignment]
        await super().shutdown(sockets)


def loaded(run: Path | str, *, device: str = "cpu", name: str | None = None) -> tuple[Detector, About]:
    """The detector of a run, a model file or a shipped model, and what its file says."""
    if name is not None and (name in ("", ".", "..") or "/" in name):
        raise BadValue(f"/v2/models/NAME cannot be reached with the name {name!r}: give a word without a slash")
    detector, facts = Detector.load(run, device=device), read_metadata(run)
    detector.joint()  # a bare discriminator names no class
    own = title(run) if name is None else name
    return detector, About(own, facts.eps, facts.inside, gallery=gallery_of(run))


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
    last: bool = False,
) -> None:
    """Serve until a signal ends it. `bound` is a socket from `bind`, if the port is to be known before. With `last` the
    process ends with it."""
    options = options or Options()
    if options.hosts is None:
        options = replace(options, hosts=hosts_for(host, ()))
    # What Pillow and the parser of forms have to say of strangers' files belongs into no log.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(message)s"))  # they are JSON
    access.addHandler(lines)
    access.setLevel(logging.INFO)
    access.propagate = False
    server = make_server(detector, options, about)
    with bound or bind(host, port) as listening:
        server.run(sockets=[listening])
    if not server.service.ended:
        logging.getLogger("prood.serve").error("the model was still busy at the end")
    if last:  # Python would wait for a thread that computes, and take torch apart, for seconds on a busy machine
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if server.service.ended else 1)


def make_server(detector: Detector, options: Options, about: About | None = None) -> Server:
    """uvicorn around the application; `run(sockets=[…])` serves."""
    app = create_app(detector, options, about)
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
    return Server(config, app.state.service)
