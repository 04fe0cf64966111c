"""A tokenizer without transformers reads every kind of row as the one of transformers does."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from bermo.data.features import Features, tokenise
from bermo.data.rows import ApartRows, ChoiceRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.data.tasks import Kind, own_task
from bermo.encoders.backbone import load_tokenizer
from bermo.encoders.plain_tokenizer import PlainTokenizer, facts_in_file, read_backend
from bermo.errors import BermoError
from bermo.spec import DataSpec
from tests import tiny

LONG = "the good dog saw a bad film . " * 9
ROWS: dict[Kind, Rows] = {
    "classification": TextRows(["a good film", LONG, "the zebra"]),
    "regression": TextRows(["a good film", LONG], [LONG, "the cats"]),
    "tagging": TaggedRows([["the", "zebra", "sees"], LONG.split()]),
    "span": SpanRows(["1", "2"], ["the cat ?", LONG * 3], [LONG, "a film"]),
    "choice": ChoiceRows(["the cat", LONG], [["saw", "sees a dog"], [LONG, "."]]),
    "embedding": ApartRows([("a film", LONG), ("cats", "dogs")]),
}


@pytest.mark.parametrize("family", ["bert", "roberta", "xlnet", "gpt2"])
def test_every_kind_of_row_is_read_as_by_transformers(family: str, tmp_path: Path) -> None:
    tiny.make_tokenizer(family).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    tokenizer = load_tokenizer(tmp_path)
    facts = facts_in_file(tmp_path, tokenizer)
    assert facts is not None
    plain = PlainTokenizer(read_backend(tmp_path), facts)
    before = plain.backend.to_str()
    for kind, rows in ROWS.items():
        one, other = (
            tokenise(rows, own_task(kind), (), by, DataSpec(max_length=24, stride=4), True)
            for by in (tokenizer, plain)
        )
        assert same(one, other), kind
        if kind == "classification":
            expected = tokenizer(list(rows.first), truncation=True, max_length=24)["input_ids"]  # type: ignore[union-attr]
            assert [part.tolist() for part in np.split(other.ids, other.starts[1:-1])] == expected
    assert plain.backend.to_str() == before


def same(one: Features, other: Features) -> bool:
    return all(
        np.array_equal(getattr(one, item.name), getattr(other, item.name))
        if isinstance(getattr(one, item.name), np.ndarray)
        else getattr(one, item.name) == getattr(other, item.name)
        for item in fields(Features)
    )


def test_a_tokenizer_that_its_class_changes_has_no_facts_of_its_file(tmp_path: Path) -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    assert facts_in_file(tmp_path, tokenizer) is not None
    tokenizer.backend_tokenizer.normalizer = None
    assert facts_in_file(tmp_path, tokenizer) is None
    (tmp_path / "tokenizer.json").unlink()
    assert facts_in_file(tmp_path, tokenizer) is None


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(BermoError, match="Could not load the tokenizer of"):
        read_backend(tmp_path)
