"""What every request passes first: who asks, by which name, how often; and what every answer gets on its way out."""

import asyncio
import hmac
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prood.serve.answer import GONE, Refused, busy, refusal
from prood.serve.house import House
from prood.serve.lines import access, asking

HEALTH = ("/healthz", "/v2/health/live", "/v2/health/ready")
"""Answered to anybody by any name: what probes a container calls it by its address."""
OPEN = (*HEALTH, "/docs", "/openapi.json")
"""Answered without the token, as is the page."""
METRICS = "/metrics"
GUARDED = ("/v1/", "/v2", METRICS)
ADMIN = "/v2/repository/models/"
HUNG_UP = "the client has hung up"
AMBIGUOUS = Refused(400, "the request has a Content-Length and a Transfer-Encoding: send one of them")
CLIENTS = 10_000
BURST_S = 10.0
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]

_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class Guard:
    """An ASGI layer around the whole application."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self.app, self.house, self.options = app, house, house.options
        self.rates = Rates(self.options.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, begun, start = 500, False, time.perf_counter()
        headers = Headers(scope=scope)
        name, refused, ambiguous = (
            request_id(headers),
            None,
            "transfer-encoding" in headers and "content-length" in headers,
        )
        asking.set(name)
        # The server's connection looks it up where its client hangs up.
        scope.setdefault("state", {})["task"] = asyncio.current_task()

        async def answered(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = [*message.get("headers", ()), *HEADERS, (b"x-request-id", name.encode())]
                if self.house.draining or ambiguous:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        self.house.in_flight += 1
        try:
            async with asyncio.timeout(self.options.deadline_s) as limit:
                refused = AMBIGUOUS if ambiguous else self._refused(scope, headers)
                await (self.app if refused is None else refusal(refused))(scope, receive, answered)
        except TimeoutError:
            if not limit.expired() or begun:
                raise
            late = busy(
                f"this took longer than {self.options.deadline_s:g} seconds and was given up: send less at once"
            )
            await refusal(late)(scope, receive, answered)
        except asyncio.CancelledError as error:
            hung_up = error.args == (HUNG_UP,)
            if not hung_up and (begun or not self.house.draining):
                raise
            if hung_up:
                status = GONE
            else:
                await refusal(busy("the service is shutting down"))(scope, receive, answered)
        finally:
            self.house.in_flight -= 1
            # The route's pattern: what a stranger writes must not become a label.
            path, seconds = str(getattr(scope.get("route"), "path", "other")), time.perf_counter() - start
            self.house.metrics.requests.labels(path, str(status)).inc()
            self.house.metrics.seconds.labels(path).observe(seconds)
            if self.options.access_log:
                said = {"id": name, "client": (scope.get("client") or ("",))[0], "method": scope["method"]}
                said |= {"path": scope["path"], "status": status, "seconds": round(seconds, 6)}
                model = scope["state"].get("model")
                access.info("answered", extra={"said": said | ({"model": model} if model else {})})

    def _refused(self, scope: Scope, headers: Headers) -> Refused | None:
        path, hosts = scope["path"], self.options.hosts
        if path in HEALTH:
            return None
        # Against DNS rebinding: a page elsewhere may lead its own name here, and its requests carry that name.
        if hosts is not None and path != METRICS and host_name(headers.get("host", "")) not in hosts:
            return Refused(400, "the service is not known by this host name: call it by another, or use --allow-host")
        if path in OPEN:
            return None
        if self.options.rate and not self.rates.allowed((scope.get("client") or ("",))[0]):
            return Refused(429, "too many requests from your address: wait a second")
        if not self._trusted(headers, path):
            return Refused(401, "a token is needed: send the header 'Authorization: Bearer TOKEN'")
        if path.startswith(ADMIN) and not _holds(headers, self.options.admin_token):
            return Refused(403, "only the admin token (--admin-token-file) loads and unloads models")
        if scope["method"] == "POST":
            if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                return Refused(403, "the request comes from a page of another site")
            if self.house.in_flight > self.options.requests:
                return busy("too many requests are being worked on")
        return None

    def _trusted(self, headers: Headers, path: str) -> bool:
        token = self.options.token
        if token is None or not path.startswith(GUARDED):
            return True
        return _holds(headers, token) or _holds(headers, self.options.admin_token)


def _holds(headers: Headers, token: str | None) -> bool:
    """Whether the request bears this token."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode("latin-1", "replace"), (token or "").encode())
    return token is not None and same and scheme.lower() == "bearer"


class Rates:
    """A bucket for each client: it holds ten seconds' worth of requests and is filled at the rate."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.clock = rate, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allowed(self, client: str) -> bool:
        full, now = max(1.0, self.rate * BURST_S), self.clock()
        left, since = self._buckets.pop(client, (full, now))
        left = min(full, left + (now - since) * self.rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > CLIENTS:  # who has not asked for longest has a full bucket anyway
            self._buckets.popitem(last=False)
        return left >= 1


def host_name(host: str) -> str:
    """`localhost:8000` and `[::1]:8000` without the port, in small letters."""
    name, _, _ = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    return name.lower()


def request_id(headers: Headers) -> str:
    """The one that a proxy has given, if it may stand in a log, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else uuid.uuid4().hex
