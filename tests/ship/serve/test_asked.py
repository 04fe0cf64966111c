"""The body of a request: whatever bytes come, they are read or refused with a sentence."""

import json
import random

from bermo.ship.serve.asked import Asked, read_asked
from bermo.ship.serve.refused import Refused
from bermo.ship.serve.spec import ServeSpec

BODY = {
    "texts": ["a text", ["a question", "é€😀 \x00"], ""],
    "model": "small",
    "probabilities": True,
    "prompt": "query",
    "dimension": 8,
}
PIECES = (
    b"null",
    b"1e999",
    b"-0",
    b"NaN",
    b"{}",
    b"[]",
    b'"\\ud83d"',
    b"\xff",
    b"[[",
    b'"texts":7',
    b"9" * 5000,
)
SPEC = ServeSpec(max_texts=4, queue=4, max_characters=50)


def changed(body: bytes, chance: random.Random) -> bytes:
    """Return a body in which a few pieces are lost, repeated or replaced."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(body) + 1)
        end = min(len(body), start + chance.randrange(12))
        piece = chance.choice((b"", body[start:end] * 2, chance.choice(PIECES)))
        body = body[:start] + piece + body[end:]
    return body


def read(body: bytes) -> Asked | Refused:
    try:
        return read_asked(body, SPEC)
    except Refused as refusal:
        return refusal


def test_a_changed_body_is_read_or_refused() -> None:
    chance, body = random.Random(0), json.dumps(BODY).encode()
    results = [read(changed(body, chance)) for _ in range(3000)]
    refusals = [item for item in results if isinstance(item, Refused)]
    assert {item.status for item in refusals} == {400, 413}
    assert max(len(str(item)) for item in refusals) < 300
    lengths = [len(item) for item in results if isinstance(item, Asked)]
    assert len(lengths) > 100
    assert 1 <= min(lengths) <= max(lengths) <= 4


def test_parts_of_a_request_are_all_of_it_in_order() -> None:
    asked = Asked(rows=tuple((str(n),) for n in range(5)), model="a", probabilities=True)
    parts = asked.parts(2)
    assert [len(part) for part in parts] == [2, 2, 1]
    assert sum((part.rows for part in parts), ()) == asked.rows
    assert all((part.model, part.probabilities) == ("a", True) for part in parts)
