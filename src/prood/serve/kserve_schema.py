"""What /openapi.json says of the v2 protocol."""

from typing import Any

from prood.serve.schema import Error, responses

_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype", "data"],
    "properties": {
        "name": {"type": "string", "enum": ["images"]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 4, "maxItems": 4},
        "datatype": {"type": "string", "enum": ["FP32", "UINT8"]},
        "data": {"type": "array", "description": "Flat, or nested as the shape says."},
    },
}
_RADIUS = {"type": "number", "minimum": 0, "maximum": 1}
_RADII = {
    "anyOf": [
        _RADIUS,
        {"type": "array", "items": _RADIUS, "minItems": 1},
        {"type": "string", "examples": ["0.01,8/255"]},
    ],
    "description": "Certify, too. With several radii upper_bound has the shape [N, radii], with one number [N].",
}
_NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {
            "type": "object",
            "properties": {"eps": _RADII},
        },
        "inputs": {"type": "array", "items": _TENSOR, "minItems": 1, "maxItems": 1},
        "outputs": {"type": "array", "items": _NAMED},
    },
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "example": "prood"}
_NO_MODEL = {"model": Error, "description": "There is no such model."}


def _answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return responses(Error, *statuses) | {200: {"content": _OBJECT, "description": "As the protocol says."}}


SERVER: dict[str, Any] = {"responses": _answers()}
READY: dict[str, Any] = {
    "responses": {
        200: {"content": _OBJECT, "description": "Yes."},
        400: {"model": Error, "description": "Called by a host name that is not allowed."},
        503: {"content": _OBJECT, "description": "It shuts down."},
    }
}
METADATA: dict[str, Any] = {
    "responses": _answers(503) | {404: _NO_MODEL, 503: {"content": _OBJECT, "description": "It shuts down."}},
    "openapi_extra": {"parameters": [_NAME]},
}
INFER: dict[str, Any] = {
    "responses": _answers(403, 408, 413, 415, 503) | {404: _NO_MODEL},
    "openapi_extra": {
        "parameters": [_NAME],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST}}},
    },
}
