"""The body of a request: read within its limits, and taken apart into images and options."""

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from prood.serve.answer import Refused, bad
from prood.serve.multipart import parts
from prood.serve.options import Options
from prood.serve.pictures import FORMATS

TYPES = (*FORMATS, "multipart/form-data", "application/json")
INLINE = 64 * 1024
"""A longer body is taken apart in a thread: it would hold up the others."""


@dataclass(frozen=True)
class Asked:
    """Picture files (bytes) and nested lists of pixels, in order, and the options as they came."""

    images: list[bytes | list[Any]]
    options: Mapping[str, Any] = field(default_factory=dict)


async def asked(request: Request, options: Options, allowed: tuple[str, ...]) -> Asked:
    """What a POST asks; `allowed` are the options that it may give, in the query or in a JSON body."""
    kind = content_type(request)
    if kind not in TYPES:
        raise Refused(415, f"send one of {', '.join(TYPES)}")
    query = _query(request, allowed)
    body = await read(request, options)
    if not body:
        raise bad("the body is empty: send a picture, or JSON with images")
    if len(body) <= INLINE:
        return _parse(kind, request.headers["content-type"], body, query, allowed, options)
    return await asyncio.to_thread(_parse, kind, request.headers["content-type"], body, query, allowed, options)


def content_type(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


async def read(request: Request, options: Options) -> bytes:
    """The whole body, however it is sent; more than the limit is never kept."""
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:20]) > options.body_bytes:
        raise _too_large(options)
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(options.body_s):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise bad("the connection was closed before the body was there")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > options.body_bytes:
                    raise _too_large(options)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {options.body_s:g} seconds: send it faster") from None
    return bytes(body)


def parsed_json(body: bytes) -> dict[str, Any]:
    """A JSON object of finite numbers."""
    try:
        values = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise bad("the JSON is not UTF-8: encode it so") from None
    except RecursionError:
        raise bad("the JSON is nested too deeply") from None
    except ValueError as error:
        raise bad(f"the body is no JSON ({str(error)[:80]})") from None
    if not isinstance(values, dict):
        raise bad('the JSON is no object: send {"images": [...]}')
    return values


def _parse(
    kind: str, header: str, body: bytes, query: dict[str, str], allowed: tuple[str, ...], options: Options
) -> Asked:
    if kind == "application/json":
        return _from_json(parsed_json(body), query, allowed, options)
    if kind == "multipart/form-data":
        files: list[bytes | list[Any]] = list(parts(header, body, options.images))
        return Asked(files, query)
    return Asked([body], query)


def _from_json(values: dict[str, Any], query: dict[str, str], allowed: tuple[str, ...], options: Options) -> Asked:
    unknown = sorted(values.keys() - {"images", *allowed})
    if unknown:
        raise bad(f"unknown key {_short(unknown[0])}: the JSON may have {', '.join(('images', *allowed))}")
    twice = sorted(values.keys() & query.keys())
    if twice:
        raise bad(f"{twice[0]} stands in the address and in the JSON: give it once")
    images = values.get("images")
    if not isinstance(images, list) or not images:
        raise bad('the JSON has no images: send {"images": ["<base64 of a picture>", ...]}')
    if len(images) > options.images:
        raise Refused(413, f"{len(images)} images are too many: {options.images} are allowed in one request")
    given = {key: values[key] for key in allowed if key in values}
    return Asked([_image(image, place) for place, image in enumerate(images)], query | given)


def _image(image: Any, place: int) -> bytes | list[Any]:
    if isinstance(image, list):
        return image
    if not isinstance(image, str):
        raise bad(f"image {place} is neither base64 text nor a list of pixels")
    if image.startswith("data:"):
        head, comma, image = image.partition(",")
        if not comma or not head.endswith(";base64"):
            raise bad(f"image {place} is no data URL in base64: data:image/png;base64,…")
    try:
        return base64.b64decode(image.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise bad(f"image {place} is no base64") from None


def _query(request: Request, allowed: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key not in allowed:
            known = f"only {', '.join(allowed)}" if allowed else "none"
            raise bad(f"unknown option {_short(key)} in the address: there is {known}")
        if key in found:
            raise bad(f"{key} stands in the address twice: separate several values by commas")
        found[key] = value
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _too_large(options: Options) -> Refused:
    return Refused(413, f"the body has more than {options.body_bytes} bytes: send less, or a smaller picture")
