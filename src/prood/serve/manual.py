"""/docs: the document of /openapi.json as a page."""

from collections.abc import Sequence
from html import escape
from typing import Any


def page(document: dict[str, Any]) -> str:
    """/docs: the whole document as plain HTML, without a script, and nothing from another server."""
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>prood: the HTTP interface</title></head>',
        f"<body><h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a> (OpenAPI 3.1). '
        '<a href="/">The page</a>.</p>',
    ]
    for path, operations in document["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in operations.items()]
    schemas = [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    return "\n".join([*parts, "<h2>Answers</h2>", *schemas, "</body></html>"])


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = [
        (f"{one['name']} ({one['in']})", f"{one.get('description', '')} Example: {one['example']}")
        for one in operation.get("parameters", ())
    ]
    if "requestBody" in operation:
        rows.append(("body", ", ".join(operation["requestBody"]["content"])))
    for status, response in operation["responses"].items():
        kinds = [_named(body.get("schema", {})) or kind for kind, body in response.get("content", {}).items()]
        rows.append((status, f"{response['description']} {' '.join(kinds)}"))
    head = f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
    return head + _table(rows)


def _schema(name: str, schema: dict[str, Any]) -> str:
    rows = [(key, _kind(value), value.get("description", "")) for key, value in schema["properties"].items()]
    return f'<h3 id="{escape(name)}">{escape(name)}</h3>' + _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        lines.append(f"<tr><th>{escape(first)}</th>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return _named(schema) or str(schema.get("type", "anything"))


def _named(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
