"""CoNLL-U: words and trees as written; what is no tree, or no CoNLL-U, has a sentence that says where."""

from pathlib import Path

import pytest

from bermo.data.conllu import ROOT, features_of, read_conllu, tree_of
from bermo.errors import BermoError
from tests.trees import treebank

GOOD = "1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n2\tcat\tcat\tNOUN\tNN\tNumber=Sing\t0\troot\t_\t_\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "some.conllu"
    path.write_text(text, encoding="utf-8")
    return path


def test_words_are_the_lines_with_whole_numbers(tmp_path: Path) -> None:
    text = "# text = don't go\n1-2\tdon't" + "\t_" * 8 + "\n"
    text += "1\tdo\tdo\tAUX\tVBP\tMood=Ind|Tense=Pres\t3\taux\t_\t_\n"
    text += "2\tn't\tnot\tPART\tRB\tPolarity=Neg\t3\tadvmod\t_\t_\n"
    text += "2.1\tyou\tyou\tPRON\tPRP" + "\t_" * 5 + "\n"
    text += "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"
    sentence = read_conllu(write(tmp_path, text + "\n\n# nothing but a comment\n\n"))[0]
    assert sentence.words == ("do", "n't", "go")
    assert tree_of(Path("f"), sentence) == (2, 2, ROOT)
    assert features_of(sentence.features[0]) == {"Mood": "Ind", "Tense": "Pres"}
    assert features_of("_") == {}
    assert sentence.lines == (3, 4, 6)


def test_sentences_end_at_blank_lines_and_at_the_end(tmp_path: Path) -> None:
    found = read_conllu(write(tmp_path, treebank(5).rstrip("\n").replace("\n", "\r\n")))
    assert len(found) == 5
    assert all(len(tree_of(Path("f"), sentence)) == len(sentence.words) for sentence in found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\tDT", "", "line 1: got 9 columns"),
        (GOOD, GOOD.replace("\t", " "), "Put tabs, not blanks"),
        ("2\tcat", "3\tcat", 'the word\'s number is "3", but 2 was expected'),
        ("\tcat\tcat", "\t\tcat", "the word itself, is empty"),
        (GOOD, "# a comment\n\n", "holds no sentence"),
    ],
)
def test_what_is_no_conllu_is_an_error(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(BermoError, match=words):
        read_conllu(write(tmp_path, GOOD.replace(old, new)))


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ("2 1 0", "lead in a circle"),
        ("2 3 1", "no word of this sentence has the head 0"),
        ("0 0 1", 'both "a" and "b" have the head 0'),
        ("0 _ 1", '"b" has no head'),
        ("0 9 1", 'the head of "b" is "9"'),
        ("0 2 1", '"b" is its own head'),
        ("0 x 1", 'is "x"'),
        ("0 ² 1", 'is "²"'),
        (f"0 {'9' * 5000} 1", 'is "9999'),
    ],
)
def test_what_is_no_tree_is_an_error_with_its_line(tmp_path: Path, heads: str, words: str) -> None:
    rows = zip("abc", heads.split(), strict=True)
    text = "".join(f"{at}\t{w}\t_\tX\t_\t_\t{h}\tdep\t_\t_\n" for at, (w, h) in enumerate(rows, 1))
    path = write(tmp_path, text)
    sentence = read_conllu(path)[0]
    with pytest.raises(BermoError, match=words) as error:
        tree_of(path, sentence)
    assert f"{path}, line " in str(error.value)
