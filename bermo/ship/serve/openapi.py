"""What the server takes and gives, in the words of OpenAPI 3.1."""

from importlib.metadata import version
from typing import Any

from bermo.ship.serve.spec import ServeSpec

ERRORS = {
    400: "the request is wrong; the sentence says how",
    404: "there is no such model",
    408: "the body came too slowly",
    413: "the request is too large",
    415: "the body does not say that it is JSON",
    429: "too much waits; Retry-After says how many seconds to wait",
    431: "address and headers are too long",
    500: "the model failed",
    503: "the server is stopping",
    504: "there was no answer in time",
}
ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def describe(spec: ServeSpec) -> dict[str, Any]:
    """Return the description of every path, with the limits of this server."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "bermo serve", "version": version("bermo")},
        "paths": {
            "/predict": _post("Answer texts", _request(spec, _ANSWERED), "answers", {"type": "object"}),
            "/embed": _post("Texts to vectors", _request(spec, _EMBEDDED), "vectors", _numbers()),
            "/models": _get("The models that are served, what they read and answer"),
            "/health": _get("200 while requests are taken, 503 while the server stops"),
            "/metrics": _get("Counts and times for Prometheus", "text/plain"),
            "/openapi.json": _get("This description"),
            "/": _get("A page to try the models on", "text/html"),
        },
        "components": {"schemas": {"Error": ERROR}},
    }


_ANSWERED = {
    "probabilities": {"type": "boolean", "description": "the probability of every class too"},
}
_EMBEDDED = {
    "prompt": {"type": "string", "description": "name of the model's prompt that stands before each text"},
    "dimension": {"type": "integer", "minimum": 1, "description": "only the first so many units"},
}


def _request(spec: ServeSpec, more: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string", "maxLength": spec.max_characters}
    row = {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": spec.max_texts}
    return {
        "type": "object",
        "additionalProperties": False,
        "oneOf": [{"required": ["text"]}, {"required": ["texts"]}],
        "properties": {
            "text": row,
            "texts": rows | {"description": "a list inside holds the texts of one row, or a row's words"},
            "model": {"type": "string", "description": "needed where several models answer on this path"},
            **more,
        },
    }


def _post(summary: str, request: dict[str, Any], name: str, item: dict[str, Any]) -> dict[str, Any]:
    answer = {
        "type": "object",
        "required": ["model", name],
        "properties": {"model": {"type": "string"}, name: {"type": "array", "items": item}},
    }
    example = {"texts": ["a fine film", "a dull one"]}
    body = {"application/json": {"schema": request, "example": example}}
    failure = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses = {
        "200": {
            "description": f"one of the {name} for each text, in their order",
            "content": {"application/json": {"schema": answer}},
        },
        **{str(status): {"description": text, "content": failure} for status, text in ERRORS.items()},
    }
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": body},
            "responses": responses,
        }
    }


def _get(summary: str, kind: str = "application/json") -> dict[str, Any]:
    return {
        "get": {"summary": summary, "responses": {"200": {"description": summary, "content": {kind: {}}}}}
    }


def _numbers() -> dict[str, Any]:
    return {"type": "array", "items": {"type": "number"}}
