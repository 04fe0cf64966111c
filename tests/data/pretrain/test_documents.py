"""Documents come out of plain and packed files, one at a time, the same whatever the packing."""

import gzip
import io
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bermo.data.pretrain import documents
from bermo.data.pretrain.documents import digest_files, is_one_a_line, read_fragments
from bermo.errors import BermoError

TEXT = "Anarchism\n\nIt is a  philosophy.\nIt is old.\n\nAutism\n\nA disorder.\n\nNo title here.\nMore.\n"
DOCUMENTS = [
    "Anarchism\nIt is a philosophy.\nIt is old.",
    "Autism\nA disorder.",
    "No title here.\nMore.",
]


def write(folder: Path, name: str, text: bytes) -> str:
    path = folder / name
    match path.suffix:
        case ".xz":
            path.write_bytes(lzma.compress(text))
        case ".gz":
            path.write_bytes(gzip.compress(text))
        case _:
            path.write_bytes(text)
    return str(path)


def read_documents(files: list[str], **options: Any) -> Iterator[str]:
    """The documents, each put together from its fragments."""
    parts: list[str] = []
    for fragment in read_fragments(files, **options):
        parts.append(fragment.text)
        if fragment.is_end:
            yield "".join(parts)
            parts.clear()
    assert not parts, "every document ends"


@pytest.mark.parametrize("name", ["a.txt", "a.txt.xz", "a.txt.gz"])
def test_titles_open_the_document_after_them(tmp_path: Path, name: str) -> None:
    assert list(read_documents([write(tmp_path, name, TEXT.encode())])) == DOCUMENTS


def test_files_follow_each_other_up_to_the_limit(tmp_path: Path) -> None:
    files = [write(tmp_path, name, TEXT.encode()) for name in ("a.txt", "b.txt")]
    assert list(read_documents(files)) == DOCUMENTS * 2
    assert list(read_documents(files, limit=4)) == [*DOCUMENTS, DOCUMENTS[0]]


def test_only_the_first_lines_are_read_for_the_first_document(tmp_path: Path) -> None:
    """What comes later, here bytes that are no UTF-8, is not touched before it is asked for."""
    name = write(tmp_path, "a.txt", TEXT.encode() + b"\n" + b"\xff\xfe\n")
    found = read_documents([name])
    assert next(found) == DOCUMENTS[0]
    with pytest.raises(BermoError, match=r"a\.txt, line 13: this is not UTF-8"):
        list(found)


def test_faults_are_told(tmp_path: Path) -> None:
    with pytest.raises(BermoError, match=r'ends in "\.pdf"'):
        list(read_documents([write(tmp_path, "a.pdf", b"x")]))
    torn = tmp_path / "a.txt.xz"
    torn.write_bytes(lzma.compress(TEXT.encode() * 50)[:-9])
    with pytest.raises(BermoError, match="is damaged"):
        list(read_documents([str(torn)]))
    (tmp_path / "b.gz").write_bytes(b"plain text")
    with pytest.raises(BermoError, match="is damaged or is not packed"):
        list(read_documents([str(tmp_path / "b.gz")]))


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    one, two = write(tmp_path, "a.txt", b"one"), write(tmp_path, "b.txt", b"one")
    assert digest_files([one]) == digest_files([two]) != digest_files([one, two])


def test_texts_one_a_line_are_documents_where_blank_lines_part_too_few(tmp_path: Path) -> None:
    lines = [f"text {number} goes on" for number in range(9)]
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(lines) + "\n")
    assert is_one_a_line([str(path)], 5)
    assert list(read_documents([str(path)], by_line=True)) == lines
    assert not is_one_a_line([str(path)], 10)
    path.write_text("\n\n".join(f"{line}." for line in lines) + "\n")
    assert not is_one_a_line([str(path)], 5)


def test_fragments_make_up_the_documents_that_long_memory_would_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short line at the end of a block that came in parts is no title, and a title stays with its block."""
    text = "A title\n\n" + "A line of it.\n" * 9 + "short\n\nOther\n\nNext.\nEnd\n"
    files = [write(tmp_path, "a.txt", text.encode())]
    whole = list(read_fragments(files))
    monkeypatch.setattr(documents, "LONGEST_FRAGMENT", 30)
    parts = list(read_fragments(files))
    assert [fragment.is_end for fragment in whole] == [True, True]
    assert len(parts) == 5
    assert max(len(fragment.text) for fragment in parts) < 60
    assert list(read_documents(files)) == [fragment.text for fragment in whole]
    assert list(read_documents(files, limit=1)) == [whole[0].text]
    assert not is_one_a_line(files, 2)
    assert is_one_a_line(files, 3), "fragments are not counted as documents"


def test_a_line_without_end_comes_in_parts_cut_at_blanks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "LONGEST_LINE", 16)
    files = [write(tmp_path, "a.txt", ("one two three four five\n" + "é" * 20 + "\nlast").encode())]
    lines = [fragment.text for fragment in read_fragments(files, by_line=True)]
    assert lines == ["one two three", "four five", "é" * 7, "é" * 7, "é" * 6, "last"]
    with pytest.raises(BermoError, match="line 2: this is not UTF-8"):
        list(read_fragments([write(tmp_path, "b.txt", b"one\n" + b"\x80" * 40)]))


def test_no_more_than_a_part_of_an_endless_line_is_read_at_once() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"a" * len(buffer)
            return len(buffer)

    lines = documents._raw_lines(io.BufferedReader(Endless()))  # type: ignore[arg-type]
    sizes = [len(next(lines)[1]) for _ in range(3)]
    assert max(sizes) <= documents.LONGEST_LINE
