"""Documents come out of plain and packed files, one at a time, the same whatever the packing."""

import gzip
import lzma
from pathlib import Path

import pytest

from bermo.data.pretrain.documents import digest_files, is_one_a_line, read_documents
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
    documents = read_documents([name])
    assert next(documents) == DOCUMENTS[0]
    with pytest.raises(BermoError, match=r"a\.txt, line 13: this is not UTF-8"):
        list(documents)


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
