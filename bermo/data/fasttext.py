"""fastText's lines to cells: labels with a prefix, then the text. Rows of several labels have a list of them.

__label__good a fine film
__label__sport __label__politics the games and the vote
"""

import json
from collections.abc import Iterator
from pathlib import Path

from bermo.data.text import Sample, read_lines

PREFIX = "__label__"


def is_fasttext(sample: Sample) -> bool:
    """Tell whether a file's first line starts with a label of fastText's."""
    return sample.text.lstrip("\ufeff \r\n").startswith(PREFIX)


def fasttext_lines(path: Path, sample: Sample) -> Iterator[tuple[int, list[str]]]:
    """Yield the names of the two columns, then the label and the text of each line with its number."""
    yield 0, ["label", "text"]
    for number, line in enumerate(read_lines(path, sample), start=1):
        if line.strip():
            yield number, _cells(line.strip())


def _cells(text: str) -> list[str]:
    labels = []
    while text.startswith(PREFIX):
        label, *rest = text.split(maxsplit=1)
        labels.append(label.removeprefix(PREFIX))
        text = rest[0] if rest else ""
    return [json.dumps(labels, ensure_ascii=False) if len(labels) > 1 else "".join(labels), text]
