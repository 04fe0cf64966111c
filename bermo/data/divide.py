"""One file divided into training and validation rows, each class by the same share.

The rows of a class are taken in the order of a hash of their texts, so a file is always divided in the same
way, whatever the order of its rows. Rows with the same text, but for capitals and blanks, stay on one side.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bermo.data.rows import TextRows, label_names, text_keys
from bermo.errors import BermoError

SHARE = 0.1
LEAST_VALID = 10
"""With fewer validation rows a score says nothing: each of them moves it by over 10 points."""
MOST = 0.5
"""No larger share of few rows is taken unasked."""


@dataclass(frozen=True)
class Division:
    """The numbers of the rows on either side, in the order of the file, and the share that was taken."""

    train: list[int]
    valid: list[int]
    share: float

    def told(self, name: str) -> str:
        """Return the sentence on a file that was divided."""
        return (
            f"{name} is divided, since --valid names no file: {len(self.train):,} rows for training,"
            f" {len(self.valid):,} for validation (--split {self.share:.2g})"
        )


def divide(rows: TextRows, share: float | None, path: object) -> Division:
    """Return which rows train and which validate; too few rows are an error.

    A share that is left open is a tenth, or of few rows as much as gives enough of them to validation.
    """
    used = SHARE if share is None else share
    valid = _valid(rows, used)
    enough = (LEAST_VALID + 1) / max(1, len(rows))
    if share is None and len(valid) < LEAST_VALID and enough <= MOST:
        used, valid = enough, _valid(rows, enough)
    if len(valid) < LEAST_VALID:
        different = len(set(text_keys(rows)))
        repeated = f" Only {different} of the texts are different, and equal ones stay on one side."
        repeated = repeated if different < len(rows) else ""
        raise BermoError(
            f"{path}: --split {used:.2g} gives {len(valid)} of {len(rows)} rows to validation, but a score"
            f" needs at least {LEAST_VALID}.{repeated} Give more rows, a larger --split, or other rows"
            " with --valid."
        )
    held = _with_known_labels(rows, set(valid))
    return Division([i for i in range(len(rows)) if i not in held], sorted(held), used)


def _valid(rows: TextRows, share: float) -> list[int]:
    """Return the rows that validate: of each class this share."""
    classes: dict[object, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    label_of: dict[str, object] = {}
    for index, (key, label) in enumerate(zip(text_keys(rows), _strata(rows), strict=True)):
        classes[label_of.setdefault(key, label)][key].append(index)
    valid: list[int] = []
    due = 0.0
    for label in sorted(classes, key=str):
        groups = classes[label]
        taken, due = _take([groups[key] for key in sorted(groups, key=_hash)], share, due)
        valid += taken
    return valid


def _strata(rows: TextRows) -> Iterable[object]:
    """Return what each row is divided by: its class, or the rarest of its labels; numbers are all alike."""
    labels: Sequence[object] = rows.labels or [""] * len(rows)
    counts = Counter(label_names(rows))
    for label in labels:
        if isinstance(label, tuple):
            yield min(label, key=lambda name: (counts[name], name), default="")
        else:
            yield "" if isinstance(label, float) else label


def _with_known_labels(rows: TextRows, held: set[int]) -> set[int]:
    """Give rows back to training whose labels it would lack; only one of several labels can be such."""
    several = [set(label) for label in rows.labels or () if isinstance(label, tuple)]
    known = {name for i, row in enumerate(several) if i not in held for name in row}
    return {i for i in held if several[i] <= known} if several else held


def _take(groups: list[list[int]], share: float, due: float) -> tuple[list[int], float]:
    """Take the share of the rows of a class, never its first group, which stays for training.

    `due` is what rounding left to take from the classes before, and afterwards from this one too.
    """
    taken: list[int] = []
    for number, group in enumerate(groups):
        due += share * len(group)
        if number and due >= len(group) - 0.5:
            taken += group
            due -= len(group)
    return taken, min(due, 1.0)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
