"""The body of a request, read and checked before any model is asked.

    read_asked(b'{"texts": ["a text", ["a question", "a passage"]], "model": "small"}', spec) -> Asked

A body is data alone: names in it are compared with those of the models that are served, and nothing in it is
a path, a template or code. Whatever is wrong with it is status 400 and a sentence.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from bermo.errors import nearest
from bermo.ship.serve.refused import Refused
from bermo.ship.serve.spec import ServeSpec

FIELDS = ("text", "texts", "model", "probabilities", "prompt", "dimension")
EXAMPLE = '{"texts": ["a fine film"]}'
SHOWN = 40
"""Characters of a client's word that a sentence repeats."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The texts of each row, and how they are to be answered."""

    rows: tuple[tuple[str, ...], ...]
    model: str | None = None
    probabilities: bool = False
    prompt: str | None = None
    dimension: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self, size: int) -> "list[Asked]":
        """Return the request as several of at most `size` rows, in their order."""
        return [replace(self, rows=self.rows[i : i + size]) for i in range(0, len(self), size)]


def read_asked(body: bytes, spec: ServeSpec) -> Asked:
    """Read the body of a request."""
    values = _object(body)
    for name in values:
        if name not in FIELDS:
            raise Refused(400, f'There is no field "{name[:SHOWN]}".{nearest(name, FIELDS)}')
    return Asked(
        rows=_rows(values, spec),
        model=_value(values, "model", str, "the name of a model"),
        probabilities=_value(values, "probabilities", bool, "true or false") or False,
        prompt=_value(values, "prompt", str, "the name of a prompt"),
        dimension=_dimension(values),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except RecursionError:
        raise Refused(400, f"The body is nested too deeply. Send JSON such as {EXAMPLE}.") from None
    except ValueError as error:  # also bytes that are not UTF-8
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise Refused(400, f"The body is no JSON ({reason}). Send JSON such as {EXAMPLE}.") from None
    if not isinstance(values, dict):
        raise Refused(400, f"The body must be an object of JSON, such as {EXAMPLE}.")
    return values


def _value(values: dict[str, Any], name: str, kind: type, expected: str) -> Any:
    value = values.get(name)
    if value is not None and not isinstance(value, kind):
        raise Refused(400, f'"{name}" must be {expected}, but got {_shown(value)}.')
    return value


def _dimension(values: dict[str, Any]) -> int | None:
    value = values.get("dimension")
    is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if value is not None and not is_number:
        raise Refused(400, f'"dimension" must be a whole number over 0, but got {_shown(value)}.')
    return value


def _rows(values: dict[str, Any], spec: ServeSpec) -> tuple[tuple[str, ...], ...]:
    if ("text" in values) == ("texts" in values):
        raise Refused(400, f'Give either "text" or "texts", such as {EXAMPLE}.')
    rows = values["texts"] if "texts" in values else [values["text"]]
    if not isinstance(rows, list) or not rows:
        raise Refused(400, f'"texts" must be a list of at least one text, such as {EXAMPLE}.')
    if len(rows) > spec.max_texts:
        raise Refused(413, f"A request may have {spec.max_texts:,} texts, but got {len(rows):,}. Send fewer.")
    return tuple(_row(index, row, spec) for index, row in enumerate(rows, start=1))


def _row(index: int, row: Any, spec: ServeSpec) -> tuple[str, ...]:
    """Return the texts of a row: a string alone, or a list of them."""
    texts = row if isinstance(row, list) else [row]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"Text {index} must be a string or a list of strings, but got {_shown(row)}.")
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(400, f"Text {index} holds half of a character. Send whole ones.") from None
    if sum(map(len, texts)) > spec.max_characters:
        raise Refused(
            413,
            f"A text may have {spec.max_characters:,} characters, but text {index} has"
            f" {sum(map(len, texts)):,}. Send a shorter one.",
        )
    return tuple(texts)


def _shown(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=True)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
