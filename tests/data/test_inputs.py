"""Texts to be answered come in blocks, each row with its line, and none is lost."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from bermo.data.inputs import filled_rows, inputs_of, line_blocks, line_names, text_blocks
from bermo.data.load import own_task
from bermo.data.rows import ChoiceRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.data.tasks import Task, find_task
from bermo.errors import BermoError

Write = Callable[[str, str], Path]
OWN = own_task("classification")


def read(path: Path, task: Task = OWN, text: tuple[str, ...] = ()) -> Rows:
    """The rows of a file that fits one block."""
    (table,) = text_blocks(path, task, text, 100)
    return inputs_of(table, task, text)


def test_every_kind_of_model_reads_its_form(write: Write) -> None:
    assert read(write("a.txt", "one, two\nthree\n")) == TextRows(["one, two", "three"])
    assert read(write("a.tsv", "id\ttext\n1\ta\n2\tb\n"), text=("text",)) == TextRows(["a", "b"])
    assert read(write("b.tsv", "premise\thypothesis\na\tb\n")) == TextRows(["a"], ["b"])
    tagger = find_task("conll2003")
    assert read(write("c.txt", "Mark lives .\n"), tagger) == TaggedRows([["Mark", "lives", "."]])
    listed = write("c.jsonl", '{"words": ["New York", "is"]}\n{"words": ["[", "x"]}\n')
    assert read(listed, tagger) == TaggedRows([["New York", "is"], ["[", "x"]])
    asked = write("d.csv", "question,context\nwho?,mark\n")
    assert read(asked, own_task("span")) == SpanRows(["2"], ["who?"], ["mark"])
    endings = write("e.csv", "sent1,sent2,ending0,ending1,ending2,ending3\na,b,c,d,e,f\n")
    assert read(endings, find_task("swag")) == ChoiceRows(["a"], [["b c", "b d", "b e", "b f"]])


@pytest.mark.parametrize("name", ["a.txt", "a.conll", "a.tsv", "a.txt.gz"])
def test_a_file_in_the_form_that_trains_a_tagger_gives_its_words_alone(
    write: Write, tmp_path: Path, name: str
) -> None:
    text = "-DOCSTART- -X- O\n\nEU NNP B-ORG\n[ . O\n\nPeter NNP B-PER\n\nPaul NNP S-PER\n"
    path = write("plain", text)
    if name.endswith(".gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path = path.rename(tmp_path / name)
    blocks = list(text_blocks(path, find_task("conll2003"), (), 2))
    assert [block.lines for block in blocks] == [[3, 6], [8]]
    words = [inputs_of(block, find_task("conll2003")) for block in blocks]
    assert words == [TaggedRows([["EU", "["], ["Peter"]]), TaggedRows([["Paul"]])]
    assert "its tags are not read" in blocks[0].notes[0]


def test_tags_of_words_are_known_by_the_model_that_reads(write: Write) -> None:
    tagger = own_task("tagging")
    path = write("a.txt", "go VERB\nhome NOUN\n")
    (known,) = text_blocks(path, tagger, (), 9, tags=("NOUN", "VERB"))
    assert inputs_of(known, tagger) == TaggedRows([["go", "home"]])
    (texts,) = text_blocks(path, tagger, (), 9, tags=("X",))
    assert inputs_of(texts, tagger) == TaggedRows([["go", "VERB"], ["home", "NOUN"]])


def test_a_treebank_gives_a_tagger_its_words(write: Write) -> None:
    path = write("a.conllu", "# text = go\n1\tgo\tgo\t_\t_\t_\t_\t_\t_\t_\n")
    (table,) = text_blocks(path, own_task("tagging"), (), 9)
    assert inputs_of(table, own_task("tagging")) == TaggedRows([["go"]])


def test_a_long_file_comes_in_blocks_that_know_their_lines(write: Write) -> None:
    path = write("a.txt", "".join(f"text {k}\n" for k in range(7)))
    blocks = list(text_blocks(path, OWN, (), 3))
    assert [len(block) for block in blocks] == [3, 3, 1]
    assert blocks[2].lines == [7]
    table = write("a.tsv", "text\n" + "".join(f"text {k}\n" for k in range(7)))
    assert [block.lines for block in text_blocks(table, OWN, (), 4)] == [[2, 3, 4, 5], [6, 7, 8]]


def test_empty_lines_are_rows_and_a_last_end_of_line_is_none(write: Write) -> None:
    (table,) = text_blocks(write("a.txt", "a\r\n\n \nb"), OWN, (), 9)
    assert table.columns == {"text": ["a", "", " ", "b"]}
    assert filled_rows(table, ("text",)) == [0, 3]


def test_lines_of_several_texts_are_apart_by_tabs() -> None:
    names = line_names(OWN, ("premise", "hypothesis"))
    (table,) = line_blocks(["a\tb\n", "\n"], names, 9)
    assert table.columns == {"premise": ["a", ""], "hypothesis": ["b", ""]}
    with pytest.raises(BermoError, match=r"line 1: the model reads 2 texts a row .* but got 1"):
        list(line_blocks(["a b\n"], names, 9))
    assert line_names(own_task("span"), ()) == ("question", "context")
    with pytest.raises(BermoError, match="chooses among several texts"):
        line_names(own_task("choice"), ())


def test_a_pair_on_the_command_line_is_shown_with_its_tab() -> None:
    with pytest.raises(BermoError, match=r"--text \$'first text\\tsecond text'\.$"):
        list(line_blocks(["a b"], ("premise", "hypothesis"), 9, "--text"))


def test_a_file_with_too_few_texts_a_row_is_refused(write: Write) -> None:
    with pytest.raises(BermoError, match="the model reads 2 a row"):
        read(write("a.tsv", "text\na\n"), OWN, ("premise", "hypothesis"))


def test_pairs_of_a_text_file_are_lines_unless_its_first_line_names_them(write: Write) -> None:
    names = ("text1", "text2")
    assert read(write("a.txt", "one\ttwo\nthree\tfour\n"), OWN, names) == TextRows(
        ["one", "three"], ["two", "four"]
    )
    headed = write("b.txt", "Text1\ttext2\nthree\tfour\n")
    assert read(headed, OWN, names) == TextRows(["three"], ["four"])
    usual = write("c.txt", "premise\thypothesis\nthree\tfour\n")
    assert read(usual, OWN, names) == TextRows(["three"], ["four"])
    with pytest.raises(BermoError, match=r"d\.txt, line 1: the model reads 2 texts a row .* but got 1"):
        read(write("d.txt", "one\n"), OWN, names)


def test_an_error_names_the_option_that_the_command_has(write: Write) -> None:
    with pytest.raises(BermoError, match=r"Name it with --columns, .* such as text,label\."):
        read(write("a.csv", "a,b\n1,2\n"))
    with pytest.raises(BermoError, match=r"--columns, or call it one of [^.]*…$"):
        read(write("a.jsonl", '{"a": 1, "b": 2}\n'))


def test_lines_have_no_columns_to_choose_from(write: Write) -> None:
    (table,) = text_blocks(write("a.txt", "one\ntwo\n"), OWN, (), 10)
    with pytest.raises(BermoError, match=r'a\.txt has texts alone, and no column "id"\. Give a file with'):
        table.column("id")


def test_every_text_format_comes_in_blocks_of_the_same_columns(write: Write) -> None:
    lines = "".join(f'{{"text": "a {k}"' + (', "id": 1}\n' if k < 2 else "}\n") for k in range(5))
    blocks = list(text_blocks(write("a.jsonl", lines), OWN, (), 2))
    assert [list(block.columns) for block in blocks] == [["text", "id"]] * 3
    assert blocks[1].columns["id"] == ["", ""]
    semicolons = write("b.csv", 'text;id\n"a\nb";1\nc;2\nd;3\n')
    blocks = list(text_blocks(semicolons, OWN, (), 2))
    assert [block.lines for block in blocks] == [[2, 4], [5]]
    assert blocks[0].columns["text"] == ["a\nb", "c"]
    with pytest.raises(BermoError, match="has no rows, only a header"):
        list(text_blocks(write("c.csv", "text,id\n"), OWN, (), 2))
