"""The user's files for a sentence encoder: what each form is read as, and what is refused."""

from pathlib import Path

import pytest

from bermo.data.load import load_task
from bermo.data.rows import ApartRows
from bermo.errors import BermoError
from bermo.spec import DataSpec

PAIRS = "text1,text2,score\n" + "".join(f"a {i},b {i},{i % 6}\n" for i in range(200))


def read(
    tmp_path: Path, content: str, valid: str | None = None, name: str = "train.csv"
) -> tuple[ApartRows, ...]:
    (tmp_path / name).write_text(content)
    files = {"train": str(tmp_path / name)}
    if valid is not None:
        (tmp_path / "valid.csv").write_text(valid)
        files["valid"] = str(tmp_path / "valid.csv")
    data = load_task(DataSpec(task="own/embedding", **files))
    assert isinstance(data.train, ApartRows)
    assert isinstance(data.valid, ApartRows)
    return data.train, data.valid


def test_pairs_with_a_number_are_divided_and_the_largest_number_becomes_one(tmp_path: Path) -> None:
    train, valid = read(tmp_path, PAIRS)
    assert len(train) + len(valid) == 200
    assert max(train.labels or ()) == 1
    assert set(valid.labels or ()) <= {i / 5 for i in range(6)}
    assert not set(train.texts) & set(valid.texts)


def test_lines_of_text_pairs_and_triplets_are_told_apart(tmp_path: Path) -> None:
    train, valid = read(tmp_path, "one text\n\nanother\n", PAIRS, "train.txt")
    assert train == ApartRows([("one text",), ("another",)])
    assert len(valid.texts[0]) == 2
    train, _ = read(tmp_path, "anchor,positive\na,b\n", PAIRS)
    assert train == ApartRows([("a", "b")])
    train, _ = read(tmp_path, "anchor,positive,negative\na,b,c\n", PAIRS)
    assert train == ApartRows([("a", "b", "c")])


@pytest.mark.parametrize(
    ("content", "valid", "sentence"),
    [
        ("text\na\nb\n", None, "has texts alone, by which no vectors can be scored"),
        ("text\na\nb\n", "text\na\n", "but vectors are scored by pairs"),
        ("text1,text2,score\na,b,much\n", PAIRS, 'the label "much" is not a number'),
    ],
)
def test_what_cannot_be_learned_or_scored_is_refused(
    tmp_path: Path, content: str, valid: str | None, sentence: str
) -> None:
    with pytest.raises(BermoError, match=sentence):
        read(tmp_path, content, valid)


def test_a_reranker_reads_pairs_with_numbers_from_zero_to_one(tmp_path: Path) -> None:
    for content, sentence in (
        ("query,passage,label\na,b,3\n", "is not from 0"),
        ("text,label\na,1\n", "a reranker reads pairs"),
    ):
        (tmp_path / "train.csv").write_text(content)
        file = str(tmp_path / "train.csv")
        with pytest.raises(BermoError, match=sentence):
            load_task(DataSpec(task="own/reranker", train=file, valid=file))
