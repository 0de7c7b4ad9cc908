"""What /openapi.json says of requests and answers. The models describe; they do not make the answers."""

from typing import Any

from pydantic import BaseModel, Field

from prood.detector.answers import Reason
from prood.serve.answer import NDJSON
from prood.serve.attacking import TARGETS, Target
from prood.serve.options import Options
from prood.serve.pictures import FORMATS

Responses = dict[int | str, dict[str, Any]]

BINARY = {"type": "string", "format": "binary"}
_REFUSALS = {
    400: "The request cannot be understood: a damaged picture, wrong JSON, a value out of range.",
    401: "The bearer token is missing or wrong.",
    403: "The request comes from a page of another site.",
    408: "The body was sent too slowly.",
    413: "Too many bytes, pixels or images.",
    415: "A Content-Type that is not taken.",
    429: "Too many requests from one address; see Retry-After.",
    503: "Too much is waiting, or the service shuts down; see Retry-After.",
}
_REASON = "Which gate rejects: discriminator where g alone does, else confidence; null where none does."
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB4iG8MwAAAABJRU5ErkJggg=="


class Error(BaseModel):
    error: str = Field(description="One line that says what to do.", examples=["image 0 is not base64"])


class Limits(BaseModel):
    body_bytes: int
    pixels: int
    images: int
    radii: int
    attack_steps: int


class Price(BaseModel):
    eps: float
    accepted: float = Field(description="The share of in-distribution images that was accepted.")
    rejected: float = Field(description="The share of other images that was rejected.")
    proved: float = Field(description="The share that is provably rejected, with all images within eps.")
    sets: int = Field(description="Sets of other images; the shares are their means.")
    attacked: float | None = Field(default=None, description="The share that was rejected under attack, if attacked.")


class Model(BaseModel):
    name: str
    classes: list[str]
    image: list[int] = Field(description="Channels, height, width.", min_length=3, max_length=3)
    shift: float
    threshold: float | None = Field(description="An image with a smaller confidence is rejected.")
    gated: bool = Field(description="Whether g has a gate, beside the gate of the confidence.")
    p_in_threshold: float | None = Field(description="Below this p_in the discriminator alone rejects an image.")
    accept: float | None = Field(description="The share of in-distribution images that is accepted at least …")
    level: float | None = Field(description="… with this confidence, if the model was calibrated.")
    provable: float | None = Field(description="The share of the false rejections that g alone may spend, if known.")
    price: list[Price] = Field(description="What evaluations say about the threshold, by radius; empty: none.")
    tpr: float | None = Field(description="accept by its name before; it stays for one version.", deprecated=True)
    confidence_level: float | None = Field(description="level by its name before.", deprecated=True)
    eps: float = Field(description="The radius used where a request gives none.")
    ceiling: float = Field(description="The confidence that no input at all exceeds.")
    p_in_ceiling: float = Field(description="The p_in that no input at all exceeds.")
    floor: float = Field(description="1/K.")
    method: str
    fingerprint: str = Field(description="Which weights these are.")
    certificates: bool = Field(description="Whether /v1/certificate makes files for prood verify.")
    limits: Limits
    version: str


class Standing(BaseModel):
    alarm: bool
    seen: int = Field(description="Images that were predicted.")
    accepted: int
    accept: float = Field(description="The share that the calibration promises to accept.")
    calibration: int = Field(description="Images of the calibration.")
    false_alarms: float = Field(description="The chance of any false alarm, ever, is at most this.")
    needed: float = Field(description="log10 of the evidence that raises an alarm.")
    shift: float = Field(description="log10 of the evidence that arrivals do not look like calibration.")
    promise: float = Field(description="log10 of the evidence that more images are rejected than promised.")
    shift_at: int | None = Field(description="The image, from 1, at which that alarm was raised.")
    promise_at: int | None


class Watched(BaseModel):
    model: str
    monitor: Standing | None = Field(description="null: the model has no calibration.")


class Answer(BaseModel):
    label: int
    name: str
    confidence: float = Field(ge=0, le=1)
    p_in: float = Field(ge=0, le=1)
    accepted: bool | None = Field(description="confidence ≥ threshold; null without a threshold.")
    reason: Reason | None = Field(description=_REASON)


class Prediction(Answer):
    p_value: float | None = Field(description="Of the hypothesis that the image is in-distribution.")
    probabilities: list[float]


class Predictions(BaseModel):
    predictions: list[Prediction]
    model: str
    fingerprint: str
    threshold: float | None


class Certificate(Answer):
    upper_bound: list[float] = Field(description="One for each radius: no image in the ball gets a higher confidence.")
    rejected: list[bool | None] = Field(description="upper_bound < threshold.")
    radius: float | None = Field(description="The largest radius found at which it provably stays rejected.")


class Certificates(BaseModel):
    eps: list[float]
    certificates: list[Certificate]
    method: str
    norm: str
    model: str
    fingerprint: str
    threshold: float | None


class Attack(BaseModel):
    on: Target
    eps: float
    confidence: list[float] = Field(description="The best found so far, from the clean image on, step by step.")
    found: float
    upper_bound: float | None = Field(description="null: the classifier alone has none.")
    clean: float
    label: int
    name: str
    accepted: bool | None
    reason: Reason | None = Field(description=_REASON)
    threshold: float | None = Field(description="Of the attacked confidence; null where none is known.")
    image: str = Field(description="The attacked image as a data URL, rounded to bytes for display.")
    original: str = Field(description="What the model saw of the picture, as a data URL.")
    passes: int
    ended: str = Field(
        description="Why: steps, goal (nothing is left to find), or time.", pattern="^(steps|goal|time)$"
    )


class Line(BaseModel):
    input: dict[str, str | int | None]
    model: dict[str, str]
    norm: str
    eps: float
    method: str
    bound: float = Field(description="Of g, without the shift.")
    shift: float
    classes: int | None
    confidence: float | None = Field(description="No image in the ball gets a higher confidence.")
    seconds: float
    arithmetic: str
    version: str
    format: int
    digest: str


class Far(BaseModel):
    factors: list[float]
    confidence: list[float]
    p_in: list[float]
    floor: float


class Example(BaseModel):
    name: str
    kind: str = Field(pattern="^(in|out)$")
    url: str
    how: str = Field(description="Where it comes from, and how it was picked.")


def _described(options: Options, one: bool) -> dict[str, tuple[dict[str, Any], str, str]]:
    """What a request may give: its type in JSON, an example for the address, and what it is."""
    radius = {"type": "number", "minimum": 0, "maximum": 1}
    factor = {"type": "number", "minimum": 0, "maximum": 1e6}
    several = {"type": "array", "minItems": 1, "maxItems": options.radii}
    radii = {"anyOf": [radius, several | {"items": radius}]}
    steps = {"type": "integer", "minimum": 1, "maximum": options.attack_steps}
    alpha = "The image becomes 0.5 + α(x − 0.5), for each α; separated by commas."
    many = (radii, "0.01,8/255", "Radii, separated by commas; in JSON a number or a list.")
    return {
        "eps": (radius, "0.01", "The radius.") if one else many,
        "watch": ({"type": "boolean"}, "false", "false: the monitor of arrivals leaves these images out."),
        "radius": ({"type": "boolean"}, "false", "false: leave the search for the certified radius out."),
        "steps": (steps, str(min(50, options.attack_steps)), "Steps of the search."),
        "on": ({"enum": list(TARGETS)}, TARGETS[0], "What is attacked: the guarded model, or its classifier alone."),
        "stream": ({"type": "boolean"}, "false", "true: a line of JSON for each step, the last one is the answer."),
        "name": ({"type": "string"}, "photo.png", "The picture's file name, by which prood verify finds it."),
        "factors": (several | {"items": factor}, "1,2,4,8", alpha),
    }


def post(options: Options, summary: str, model: type[BaseModel], *names: str, one: bool = False) -> dict[str, Any]:
    """Arguments of a route that takes images, or one, and the options of these names."""
    described = _described(options, one)
    parameters = [
        _parameter(name, "query", example) | {"required": False, "description": text}
        for name, (_, example, text) in described.items()
        if name in names
    ]
    bodies = _bodies({name: described[name][0] for name in names}, 1 if one else options.images)
    extra = {"parameters": parameters, "requestBody": {"required": True, "content": bodies}}
    found = responses(model, 403, 408, 413, 415, 503)
    if "stream" in names:
        found[200]["content"] = {NDJSON: {"schema": {"type": "string"}}}
    if "name" in names:
        found[404] = {"model": Error, "description": "The service makes no such files."}
    return {"summary": summary, "responses": found, "openapi_extra": extra}


def _parameter(name: str, place: str, example: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": {"type": "string"}, "example": example}


def responses(model: Any, *statuses: int) -> Responses:
    """The answer's model, and every refusal that the route may give."""
    found: Responses = {200: {"model": model}}
    return found | {
        status: {"model": Error, "description": _REFUSALS[status]} for status in sorted({400, 401, 429, *statuses})
    }


def content(kind: str, schema: dict[str, Any], text: str, *statuses: int) -> Responses:
    """Schema of an answer that no model describes."""
    return responses(Error, *statuses) | {200: {"content": {kind: {"schema": schema}}, "description": text}}


def named(name: str, example: str, missing: str, found: Responses) -> dict[str, Any]:
    """Arguments of a route with this name in its path; `missing` says what there is none of."""
    found = found | {404: {"model": Error, "description": f"There is no such {missing}."}}
    return {"responses": found, "openapi_extra": {"parameters": [_parameter(name, "path", example)]}}


def healthy(schema: dict[str, Any], yes: str) -> Responses:
    shape = {"application/json": {"schema": schema}}
    return {
        200: {"content": shape, "description": yes},
        400: {"model": Error, "description": "Called by a host name that is not allowed."},
        503: {"content": shape, "description": "It shuts down."},
    }


def _bodies(options: dict[str, Any], images: int) -> dict[str, Any]:
    pixels = {"type": "array", "description": "Pixels in [0, 1] of the model's shape: channels × height × width."}
    image = {"anyOf": [{"type": "string", "description": "base64 of a picture, or a data URL."}, pixels]}
    count = {"type": "array", "minItems": 1, "maxItems": images}
    properties = {"images": count | {"items": image}, **options}
    body = {"type": "object", "required": ["images"], "properties": properties, "additionalProperties": False}
    files = count | {"items": BINARY}
    form = {"type": "object", "required": ["image"], "properties": {"image": files}}
    return {
        **{kind: {"schema": BINARY} for kind in FORMATS},
        "multipart/form-data": {"schema": form},
        "application/json": {"schema": body, "example": {"images": [_PIXEL]}},
    }
