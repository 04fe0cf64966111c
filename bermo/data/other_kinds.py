"""Files of words with tags, or of questions, given where no kind was named: a text and a label are expected.

Read as a table such a file would become classes without a meaning, or an error about columns.
"""

from pathlib import Path

from bermo.data.objects import JSON
from bermo.data.packed import kind_of
from bermo.data.table import Table
from bermo.data.word_files import holds_tagged_words
from bermo.errors import BermoError

TAGGED = ({"words", "tags"}, {"words", "ner_tags"}, {"tokens", "tags"}, {"tokens", "ner_tags"})
SPANS = ({"text", "spans"}, {"text", "entities"})
QUESTIONS = ({"title", "paragraphs"}, {"question", "context", "answers"})


def check_is_no_word_file(path: Path) -> None:
    """Refuse a file in which each line is a word with its tag."""
    if path.is_file() and holds_tagged_words(path, ()):
        raise BermoError(f"{path}: each line is a word with its tag. Pass --kind tagging.")


def check_is_of_texts(table: Table) -> None:
    """Refuse JSON whose fields are those of tags or of questions."""
    if kind_of(table.path) not in JSON:
        return
    names = {name.lower() for name in table.columns}
    if any(names >= fields for fields in (*TAGGED, *SPANS)):
        raise BermoError(f"{table.path} holds words with their tags. Pass --kind tagging.")
    if any(names >= fields for fields in QUESTIONS):
        raise BermoError(f"{table.path} holds questions on passages. Pass --kind span.")
