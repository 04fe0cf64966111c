"""Encodings and packed files come out as the same table; what is no text is named."""

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bermo.data import packed
from bermo.data.read import read_table
from bermo.data.text import read_text
from bermo.errors import BermoError

Write = Callable[[str, str], Path]
TEXT = "text,label\nüber alles,a\n“quoted” 日本,b\n"
WANTED = {"text": ["über alles", "“quoted” 日本"], "label": ["a", "b"]}
PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
BODIES = {
    "csv": TEXT,
    "tsv": TEXT.replace(",", "\t"),
    "txt": TEXT.replace(",", "\t"),
    "jsonl": '{"text": "über alles", "label": "a"}\n{"text": "“quoted” 日本", "label": "b"}\n',
    "json": '{"text": ["über alles", "“quoted” 日本"], "label": ["a", "b"]}',
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("kind", BODIES)
def test_an_encoding_that_a_file_shows_is_read(tmp_path: Path, encoding: str, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(BODIES[kind].encode(encoding))
    assert read_table(path).columns == WANTED


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", BODIES)
def test_packed_text_is_read(tmp_path: Path, packing: str, kind: str) -> None:
    path = tmp_path / f"a.{kind}.{packing}"
    path.write_bytes(PACK[packing](BODIES[kind].encode()))
    assert read_table(path).columns == WANTED


def test_lines_of_a_whole_text_end_in_one_way(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\rtwo\rthree")
    assert read_text(path) == "one\ntwo\nthree"
    path.write_bytes(b"one\rtwo\nthree")
    assert read_text(path) == "one\rtwo\nthree"


@pytest.mark.parametrize("packing", PACK)
def test_a_file_that_unpacks_to_more_than_the_memory_holds_is_refused(
    tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "memory_bytes", lambda: 4 * 2**20)
    path = tmp_path / f"bomb.csv.{packing}"
    path.write_bytes(PACK[packing](b"text,label\n" + b"a" * (2**20 + 1)))
    with pytest.raises(BermoError, match=r"bomb\.csv\.\w+ unpacks to more than 0\.0 GiB, a quarter of this"):
        read_table(path)


@pytest.mark.parametrize("packing", PACK)
def test_a_torn_or_wrongly_named_packed_file_is_refused(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"a.csv.{packing}"
    for content in (PACK[packing](TEXT.encode() * 50)[:-12], TEXT.encode()):
        path.write_bytes(content)
        with pytest.raises(BermoError, match="is damaged or is not packed as its name says"):
            read_table(path)


@pytest.mark.parametrize(
    ("content", "ending"),
    [
        (gzip.compress(b"text", mtime=0), ".gz"),
        (b"PK\x03\x04xl/book", ".xlsx"),
        (b"PAR1\x00\x01", ".parquet"),
    ],
)
def test_a_file_that_is_no_text_is_named_by_what_it_is(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(BermoError, match=rf"starts like a \{ending} file"):
        read_table(path)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path: Path, name: str, line_end: str) -> None:
    separator = "\t" if name == "a.tsv" else ","
    lines = [f"text{separator}label", f"fine{separator}a", f"un café noir{separator}b"]
    if name == "a.jsonl":
        lines = ['{"text": "a"}', '{"text": "b"}', '{"text": "un café noir"}']
    path = tmp_path / name
    path.write_bytes(line_end.join(lines).encode("latin-1"))
    with pytest.raises(BermoError, match=r"line 3: byte 0xe9 is not UTF-8.*un café noir.*iconv"):
        read_table(path)


def test_a_wrong_byte_far_into_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\n" + b"a good film,x\n" * 20_000 + b"caf\xe9,y\n")
    with pytest.raises(BermoError, match=r"line 20002: byte 0xe9"):
        read_table(path)


def test_utf16_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(TEXT.encode("utf-16")[:-1])
    with pytest.raises(BermoError, match="cut off or damaged: it is not whole UTF-16"):
        read_table(path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_a_file_that_may_not_be_read_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write("a.csv", TEXT)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BermoError, match=r"a\.csv cannot be read: Permission denied"):
        read_table(path)
