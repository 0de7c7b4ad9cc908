"""/openapi.json, and /docs as a plain page made from it: no script, and nothing from another server."""

from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from prood.serve.answer import answer


def routes(app: FastAPI) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/openapi.json")
    async def openapi(request: Request) -> Response:
        return answer(app.openapi())

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        return Response(page(app.openapi()), media_type="text/html; charset=utf-8")

    return router


def page(document: dict[str, Any]) -> str:
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>prood: the HTTP interface</title></head>',
        f"<body><h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a> (OpenAPI 3.1). '
        '<a href="/">The page</a>.</p>',
    ]
    schemas = document.get("components", {}).get("schemas", {})
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation))
    parts += ["<h2>Answers</h2>", *(_schema(name, schema) for name, schema in schemas.items()), "</body></html>"]
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    lines = [f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('summary', ''))}</p>"]
    rows = [
        (f"{one['name']} ({one['in']})", f"{one.get('description', '')} Example: {one.get('example', '')}")
        for one in operation.get("parameters", ())
    ]
    if content := operation.get("requestBody", {}).get("content"):
        rows.append(("body", ", ".join(content)))
    for status, response in operation["responses"].items():
        kinds = [_named(body.get("schema", {})) or kind for kind, body in response.get("content", {}).items()]
        rows.append((status, f"{response.get('description', '')} {' '.join(kinds)}"))
    lines += ["<table>", *(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows), "</table>"]
    return "".join(lines)


def _schema(name: str, schema: dict[str, Any]) -> str:
    rows = [
        f"<tr><th>{escape(key)}</th><td>{escape(_kind(value))}</td><td>{escape(value.get('description', ''))}</td></tr>"
        for key, value in schema.get("properties", {}).items()
    ]
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><table>{"".join(rows)}</table>'


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return _named(schema) or str(schema.get("type", "anything"))


def _named(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
