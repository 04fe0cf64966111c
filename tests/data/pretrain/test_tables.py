"""The file of a task is read as text: each row a document, labels left out."""

import gzip
from pathlib import Path

import pytest

from bermo.data.pretrain import tables
from bermo.data.pretrain.documents import is_one_a_line, read_fragments
from bermo.errors import BermoError


def texts(path: Path) -> list[str]:
    fragments = list(read_fragments([str(path)]))
    assert all(fragment.is_end for fragment in fragments)
    return [fragment.text for fragment in fragments]


def test_rows_are_documents_without_their_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BLOCK_ROWS", 2)
    rows = 'text,label\n"A good,  long film.",good\n,bad\nNo.,bad\n"Two\nlines.",good\n'
    (tmp_path / "my.csv").write_text(rows)
    with gzip.open(tmp_path / "my.csv.gz", "wt") as file:
        file.write(rows)
    for name in ("my.csv", "my.csv.gz"):
        assert texts(tmp_path / name) == ["A good, long film.", "No.", "Two lines."]
    assert not is_one_a_line([str(tmp_path / "my.csv")], 2)


def test_a_pair_is_two_lines_of_a_document(tmp_path: Path) -> None:
    line = '{"sentence1": "It rains.", "sentence2": "Rain falls.", "label": 1}\n'
    (tmp_path / "pairs.jsonl").write_text(line * 3)
    assert texts(tmp_path / "pairs.jsonl") == ["It rains.\nRain falls."] * 3


def test_another_kind_of_file_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "my.doc").write_text("a")
    with pytest.raises(BermoError, match=r"not a text we read. Known: \.txt, \.xz, \.gz, .*\.csv"):
        texts(tmp_path / "my.doc")
