"""Sentences whose words have WordNet senses: SemCor as a table, and the test sets of Raganato et al.

    SemCor      doc, sentence, token, lemma, part of speech, sense key without its lemma, synset;
                tabs between them, "_" joins words
    test sets   NAME.data.xml with <sentence>, <wf> and <instance id lemma pos>;
                NAME.gold.key.txt with "id key …" a line

The first digit of a sense key is the part of speech: 1 noun, 2 verb, 3 and 5 adjective, 4 adverb.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from bermo.data.text import read_lines, read_sample, read_text
from bermo.errors import BermoError, nearest

PARTS = {"1": "noun", "2": "verb", "3": "adjective", "4": "adverb", "5": "adjective"}
TAGS = {"NOUN": "noun", "VERB": "verb", "ADJ": "adjective", "ADV": "adverb"}
SEMCOR_COLUMNS = 7


@dataclass(frozen=True)
class Tagged:
    """Words `start` to `end` (not included) of a sentence, their lemma, part of speech and right senses."""

    start: int
    end: int
    lemma: str
    part: str
    keys: tuple[str, ...]

    @property
    def word(self) -> tuple[str, str]:
        """What is known of the word before its sense is asked for."""
        return self.lemma, self.part


@dataclass(frozen=True)
class SenseSentence:
    """The words of a sentence, and those that carry a sense."""

    words: tuple[str, ...]
    tagged: tuple[Tagged, ...]


@dataclass(frozen=True, kw_only=True)
class SenseFolder:
    """A memory of sentences with senses, and test sets by name."""

    memory: Path
    tests: dict[str, Path]


def find_senses(folder: Path) -> SenseFolder:
    """Find SemCor's table and the test sets in a folder or the folders inside it."""
    if not folder.is_dir():
        raise BermoError(f"There is no folder {folder}. Give the one that holds SemCor and the test sets.")
    memories = sorted(folder.rglob("semcor*.tsv"))
    tests = {path.name.removesuffix(".data.xml"): path for path in sorted(folder.rglob("*.data.xml"))}
    if not memories or not tests:
        missing = "semcor*.tsv" if not memories else "*.data.xml with *.gold.key.txt beside it"
        raise BermoError(f"{folder} has no {missing}. Word senses need both SemCor and a test set.")
    return SenseFolder(memory=memories[0], tests=tests)


def choose_test(folder: SenseFolder, name: str) -> Path:
    """Return the file of the test set called `name`."""
    if name not in folder.tests:
        raise BermoError(f'There is no test set "{name}".{nearest(name, folder.tests)}')
    return folder.tests[name]


def read_semcor(path: Path) -> Iterator[SenseSentence]:
    """Yield the sentences of SemCor's table, one by one."""
    lines = enumerate(read_lines(path, read_sample(path)), start=1)
    kept = (row for number, line in lines if (row := _cells(path, number, line)) is not None)
    for _, group in groupby(kept, key=lambda row: row[:2]):
        yield _sentence((row[2], row[3], row[5]) for row in group)


def _cells(path: Path, number: int, line: str) -> list[str] | None:
    if line.startswith("#") or not line.strip():
        return None
    cells = line.rstrip("\r\n").split("\t")
    if len(cells) != SEMCOR_COLUMNS:
        raise BermoError(
            f"{path}, line {number}: {len(cells)} columns, but a table of SemCor has {SEMCOR_COLUMNS}."
        )
    return cells


def _sentence(rows: Iterable[tuple[str, str, str]]) -> SenseSentence:
    words: list[str] = []
    tagged = []
    for token, lemma, suffix in rows:
        parts = [part for part in token.split("_") if part] or [token]
        if suffix[:1] in PARTS and ":" in suffix:
            keys = tuple(f"{lemma}%{key}" for key in suffix.split(";"))
            tagged.append(Tagged(len(words), len(words) + len(parts), lemma, PARTS[suffix[0]], keys))
        words += parts
    return SenseSentence(tuple(words), tuple(tagged))


def read_test(path: Path) -> list[SenseSentence]:
    """Read a test set with its gold keys."""
    keys = _gold(path.with_name(path.name.replace(".data.xml", ".gold.key.txt")))
    try:
        root = ElementTree.fromstring(read_text(path))
    except ElementTree.ParseError as error:
        raise BermoError(f"{path} is not XML: {error}.") from error
    return [_test_sentence(item, keys) for item in root.iter("sentence")]


def _gold(path: Path) -> dict[str, tuple[str, ...]]:
    lines = (line.split() for line in read_text(path).splitlines() if line.strip())
    return {name: tuple(keys) for name, *keys in lines}


def _test_sentence(item: ElementTree.Element, keys: dict[str, tuple[str, ...]]) -> SenseSentence:
    words: list[str] = []
    tagged = []
    for token in item:
        parts = (token.text or "").replace("_", " ").split() or ["-"]
        name = token.get("id")
        if token.tag == "instance" and name in keys:
            part = TAGS.get(token.get("pos", ""), "noun")
            lemma = token.get("lemma", "").lower()
            tagged.append(Tagged(len(words), len(words) + len(parts), lemma, part, keys[name]))
        words += parts
    return SenseSentence(tuple(words), tuple(tagged))
