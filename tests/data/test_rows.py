"""The digest of rows names their content."""

import hashlib
import json

from bermo.data.rows import TextRows, digest


def test_the_digest_is_that_of_json_line_by_line() -> None:
    """Runs and token caches of earlier versions are known by it."""
    rows = TextRows(["a “b”\n", "ü\t", ""], ["x", "y", "z"], [0.5, 1.0, -2e-7])
    lines = ["TextRows\nfirst\n", *(json.dumps(value) + "\n" for value in rows.first)]
    lines += ["\nsecond\n", *(json.dumps(value) + "\n" for value in rows.second)]
    lines += ["\nlabels\n", *(json.dumps(value) + "\n" for value in rows.labels)]
    assert digest(rows) == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_digest_changes_with_any_cell_and_with_nothing_else() -> None:
    rows = TextRows(["a b", "c"], None, ["1", "0"])
    assert digest(rows) == digest(TextRows(("a b", "c"), None, ("1", "0")))
    others = [
        TextRows(["a", "b c"], None, ["1", "0"]),
        TextRows(["a b", "c"], None, ["0", "1"]),
        TextRows(["a b", "c"], ["1", "0"], None),
        TextRows(["a b", "c"]),
    ]
    assert len({digest(item) for item in [rows, *others]}) == 5
