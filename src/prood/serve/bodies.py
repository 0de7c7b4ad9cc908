"""The body of a request: read within its limits, and taken apart into images and options."""

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from prood.detector.inputs import Shape
from prood.serve.answer import Refused, bad, busy
from prood.serve.options import Options
from prood.serve.pictures import FORMATS

T = TypeVar("T")

TYPES = (*FORMATS, "multipart/form-data", "application/json")
INLINE = 64 * 1024


@dataclass(frozen=True)
class Asked:
    """Picture files (bytes) and nested lists of pixels, in order, and the options as they came."""

    images: list[bytes | list[Any]]
    options: Mapping[str, Any]


class Held:
    """The bytes of all bodies that are in memory. Short ones are not counted, and never refused.

    `took` is told how many seconds a request took that was read and understood.
    """

    def __init__(self, most: int, took: Callable[[float], None]) -> None:
        self.most, self.bytes, self._took = most, 0, took

    @contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """`grown(length)` says how long this body is by now; refused where there is no room for it."""
        mine, begun = 0, time.perf_counter()

        def grown(length: int) -> None:
            nonlocal mine
            more = length - mine
            if length > INLINE and self.bytes + more > self.most:
                raise busy("too many large requests are being read")
            if length > INLINE:
                self.bytes += more
                mine = length

        try:
            yield grown
            self._took(time.perf_counter() - begun)
        finally:
            self.bytes -= mine


@dataclass(frozen=True)
class Allowed:
    """What a POST may give: options by name, in the query or a JSON body, and how many values and lists."""

    names: tuple[str, ...]
    values: int
    lists: int

    @classmethod
    def of(cls, names: tuple[str, ...], shape: Shape, options: Options) -> "Allowed":
        channels, height, width = shape
        few = 1000  # for options, and names of other protocols
        rows = channels * height
        return cls(names, options.images * rows * width + few, options.images * (1 + channels + rows) + few)


async def asked(request: Request, options: Options, allowed: Allowed, grown: Callable[[int], None]) -> Asked:
    """What a POST asks."""
    kind = content_type(request)
    if kind not in TYPES:
        raise Refused(415, f"send one of {', '.join(TYPES)}")
    query = _query(request, allowed.names)
    body = await read(request, options, grown)
    if not body:
        raise bad("the body is empty: send a picture, or JSON with images")
    if kind == "application/json":
        return await parsed(body, lambda body: _from_json(parsed_json(body, allowed), query, allowed.names, options))
    if kind == "multipart/form-data":
        header = request.headers["content-type"]
        return Asked(await parsed(body, lambda body: _from_form(header, body, options.images)), query)
    return Asked([body], query)


def content_type(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


async def read(request: Request, options: Options, grown: Callable[[int], None]) -> bytes:
    """The whole body, however it is sent; more than the limit is never kept. `grown` may refuse what is too much."""
    most, said = options.body_bytes, request.headers.get("content-length", "")
    too_large = Refused(413, f"the body has more than {most} bytes: send less, or a smaller picture")
    if said.isdecimal() and int(said[:20]) > most:
        raise too_large
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(options.body_s):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise bad("the connection closed before the body was complete")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    raise too_large
                grown(len(body))
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {options.body_s:g} seconds: send it faster") from None
    return bytes(body)


async def parsed(body: bytes, parse: Callable[[bytes], T]) -> T:
    """A long body is taken apart in a thread: it would hold up the others."""
    return parse(body) if len(body) <= INLINE else await asyncio.to_thread(parse, body)


def parsed_json(body: bytes, allowed: Allowed) -> dict[str, Any]:
    """A JSON object of finite numbers. Python reads it in one go, in which no other thread runs: so not too long."""
    if body.count(b",") > allowed.values or body.count(b"[") + body.count(b"{") > allowed.lists:
        raise Refused(413, "the JSON has more values or lists than the images that are allowed: send fewer")
    try:
        values = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise bad("the JSON is not UTF-8: encode it as UTF-8") from None
    except RecursionError:
        raise bad("the JSON is nested too deeply") from None
    except ValueError as error:
        raise bad(f"the body is not JSON ({str(error)[:80]})") from None
    if not isinstance(values, dict):
        raise bad('the JSON is not an object: send {"images": [...]}')
    return values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _query(request: Request, allowed: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key not in allowed:
            known = f"only {', '.join(allowed)}" if allowed else "none"
            raise bad(f"unknown option {_short(key)} in the address: there is {known}")
        if key in found:
            raise bad(f"{key} occurs twice in the address: separate several values by commas")
        found[key] = value
    return found


def _from_json(values: dict[str, Any], query: dict[str, str], allowed: tuple[str, ...], options: Options) -> Asked:
    images = values.pop("images", None)
    if unknown := sorted(values.keys() - set(allowed)):
        raise bad(f"unknown key {_short(unknown[0])}: the JSON may have {', '.join(('images', *allowed))}")
    if twice := sorted(values.keys() & query.keys()):
        raise bad(f"{twice[0]} occurs in the address and in the JSON: give it once")
    if not isinstance(images, list) or not images:
        raise bad('the JSON has no images: send {"images": ["<base64 of a picture>", ...]}')
    if len(images) > options.images:
        raise Refused(413, f"{len(images)} images are too many: {options.images} are allowed in one request")
    return Asked([_image(image, place) for place, image in enumerate(images)], query | values)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _image(image: Any, place: int) -> bytes | list[Any]:
    if isinstance(image, list):
        return image
    if not isinstance(image, str):
        raise bad(f"image {place} is neither base64 text nor a list of pixels")
    if image.startswith("data:"):
        head, comma, image = image.partition(",")
        if not comma or not head.endswith(";base64"):
            raise bad(f"image {place} is not a base64 data URL such as data:image/png;base64,…")
    try:
        return base64.b64decode(image.encode("ascii"), validate=True)
    except ValueError:
        raise bad(f"image {place} is not base64") from None


def _from_form(header: str, body: bytes, limit: int) -> list[bytes | list[Any]]:
    """The contents of all parts named `image` of multipart/form-data, at most `limit`."""
    boundary = parse_options_header(header)[1].get(b"boundary")
    if not boundary:
        raise bad("the form has no boundary: let your HTTP library set its Content-Type")
    files: list[bytes | list[Any]] = []
    headers: dict[bytes, bytes] = {}
    name, value, content, ended = bytearray(), bytearray(), bytearray(), False

    def header_end() -> None:
        headers[bytes(name.lower())] = bytes(value)
        name.clear()
        value.clear()

    def part_end() -> None:
        _, options = parse_options_header(headers.get(b"content-disposition", b""))
        if options.get(b"name") != b"image":
            raise bad("a part of the form is not named image: send every picture as image")
        if len(files) == limit:
            raise Refused(413, f"the form has more images than the {limit} that are allowed in one request")
        files.append(bytes(content))
        headers.clear()
        content.clear()

    def end() -> None:
        nonlocal ended
        ended = True

    try:
        parser = MultipartParser(
            boundary,
            {
                "on_header_field": _adding_to(name),
                "on_header_value": _adding_to(value),
                "on_header_end": header_end,
                "on_part_data": _adding_to(content),
                "on_part_end": part_end,
                "on_end": end,
            },
        )
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise bad(f"the form is damaged ({str(error)[:80]})") from None
    if not ended:
        raise bad("the form is cut short: its last boundary is missing")
    if not files:
        raise bad("the form has no image: send the picture as a part named image")
    return files


def _adding_to(buffer: bytearray) -> Callable[[bytes, int, int], None]:
    return lambda data, start, end: buffer.extend(data[start:end])
