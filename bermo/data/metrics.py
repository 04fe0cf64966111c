"""The official metrics, in numpy: as fractions, 0 to 1 or -1 to 1.

    F1 = 2 TP / (2 TP + FP + FN)
    Matthews = (c·s − Σ_k p_k t_k) / √((s² − Σ p_k²)(s² − Σ t_k²)): Gorodkin 2004, for any number of classes
    Spearman = Pearson of the ranks, equal values sharing their mean rank

Entities count as right by exact span and type, as conlleval does (Tjong Kim Sang and De Meulder 2003).
SQuAD's EM and F1 follow the official scripts of versions 1.1 and 2.0. A value that is undefined (a
correlation with a constant, F1 without any positive) is 0.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.errors import BermoError

Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.floating]
Bools = npt.NDArray[np.bool_]


def accuracy(predicted: Ints, gold: Ints) -> float:
    """Return the share of right answers."""
    return float(np.mean(predicted == gold)) if len(gold) else 0.0


def f1(predicted: Ints, gold: Ints, positive: int = 1) -> float:
    """Return the F1 of one class."""
    right = int(np.sum((predicted == positive) & (gold == positive)))
    total = int(np.sum(predicted == positive)) + int(np.sum(gold == positive))
    return 2 * right / total if total else 0.0


def macro_f1(predicted: Ints, gold: Ints) -> float:
    """Return the mean F1 of the classes that occur, in gold or predicted."""
    classes = np.union1d(predicted, gold)
    return float(np.mean([f1(predicted, gold, int(k)) for k in classes])) if len(classes) else 0.0


def counts_of_rows(predicted_NC: Bools, gold_NC: Bools) -> npt.NDArray[np.int64]:
    """Return how many labels of each row are right, given and wanted, (N, 3)."""
    columns = (predicted_NC & gold_NC, predicted_NC, gold_NC)
    return np.stack([part.sum(1, dtype=np.int64) for part in columns], axis=1)


def counts_of_labels(predicted_NC: Bools, gold_NC: Bools) -> npt.NDArray[np.int64]:
    """Return how often each label is right, given and wanted, (C, 3)."""
    return counts_of_rows(predicted_NC.T, gold_NC.T)


def f1_of_counts(counts: Ints) -> npt.NDArray[np.float64]:
    """Return the F1 of each (right, given, wanted) of the last axis; 0 where nothing is given or wanted."""
    total = counts[..., 1] + counts[..., 2]
    return np.where(total > 0, 2 * counts[..., 0] / np.maximum(total, 1), 0.0)


def macro_f1_of_labels(predicted_NC: Bools, gold_NC: Bools) -> float:
    """Return the mean F1 of the labels that occur, in gold or predicted."""
    counts_C3 = counts_of_labels(predicted_NC, gold_NC)
    occurs = counts_C3[:, 1:].sum(1) > 0
    return float(f1_of_counts(counts_C3[occurs]).mean()) if occurs.any() else 0.0


def matthews(predicted: Ints, gold: Ints) -> float:
    """Return the Matthews correlation of two lists of classes."""
    classes = np.union1d(predicted, gold)
    p = np.array([np.sum(predicted == k) for k in classes], dtype=np.float64)
    t = np.array([np.sum(gold == k) for k in classes], dtype=np.float64)
    right, count = float(np.sum(predicted == gold)), float(len(gold))
    below = np.sqrt((count**2 - p @ p) * (count**2 - t @ t))
    return float((right * count - p @ t) / below) if below > 0 else 0.0


def pearson(x: Floats, y: Floats) -> float:
    """Return the linear correlation."""
    _check_numbers(x, y)
    x, y = _centred(x), _centred(y)
    below = np.sqrt((x @ x) * (y @ y))
    return float(np.clip(x @ y / below, -1.0, 1.0)) if below > 0 else 0.0


def _check_numbers(*values: Floats) -> None:
    """Refuse what has no rank: NaN would count as the largest number of all."""
    for array in values:
        bad = int(np.sum(~np.isfinite(array)))
        if bad:
            raise BermoError(
                f"{bad} of {len(array)} numbers are infinite or not a number, which correlate with nothing."
                " Leave such rows out, or look at why the model gives them."
            )


def _centred(values: Floats) -> Floats:
    """Subtract the mean and bring the largest size to 1, so that squares neither vanish nor overflow."""
    values = np.asarray(values, dtype=np.float64)
    centred = values - values.mean() if len(values) and np.ptp(values) > 0 else np.zeros(len(values))
    largest = np.max(np.abs(centred), initial=0.0)
    return centred / largest if largest > 0 else centred


def spearman(x: Floats, y: Floats) -> float:
    """Return the correlation of the ranks."""
    _check_numbers(x, y)
    return pearson(_ranks(x), _ranks(y))


def _ranks(values: Floats) -> Floats:
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Floats = (last - (count - 1) / 2)[index]
    return ranks


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return (type, first word, last word) of each entity of IOB1 or IOB2 tags, as conlleval reads them."""
    spans, kind, start = set(), "", 0
    for index, tag in enumerate((*tags, "O")):
        prefix, _, named = tag.partition("-")
        if kind and (prefix != "I" or named != kind):
            spans.add((kind, start, index - 1))
            kind = ""
        if prefix in ("B", "I") and not kind:
            kind, start = named, index
    return spans


@dataclass(frozen=True)
class EntityScores:
    """Precision, recall and their harmonic mean over all entities of all sentences."""

    precision: float
    recall: float
    f1: float


def entity_scores(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> EntityScores:
    """Compare the entities of predicted and gold tags, sentence by sentence."""
    right = guessed = wanted = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        a, b = entities(ours), entities(theirs)
        right, guessed, wanted = right + len(a & b), guessed + len(a), wanted + len(b)
    total = guessed + wanted
    return EntityScores(
        right / guessed if guessed else 0.0,
        right / wanted if wanted else 0.0,
        2 * right / total if total else 0.0,
    )


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower the case, drop punctuation and articles, and leave single spaces, as SQuAD's scripts do."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, gold: str) -> float:
    """Return 1 if the normalised answers are equal, else 0."""
    return float(normalise_answer(predicted) == normalise_answer(gold))


def answer_f1(predicted: str, gold: str, has_no_answer: bool = False) -> float:
    """Return the F1 of the answers' words; in version 2.0 two empty answers agree, in 1.1 they do not."""
    ours, theirs = normalise_answer(predicted).split(), normalise_answer(gold).split()
    if has_no_answer and (not ours or not theirs):
        return float(ours == theirs)
    same = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * same / (len(ours) + len(theirs)) if same else 0.0


@dataclass(frozen=True)
class AnswerScores:
    """Exact match and F1 of each question, the best over its gold answers."""

    exact_match: Floats
    f1: Floats
    is_answerable: npt.NDArray[np.bool_]


def answer_scores(
    predicted: Sequence[str], gold: Sequence[Sequence[str]], has_no_answer: bool
) -> AnswerScores:
    """Score one answer for each question; in version 2.0 a question without gold answers wants none."""
    exact, overlap, answerable = [], [], []
    for ours, theirs in zip(predicted, gold, strict=True):
        answerable.append(bool(theirs))
        if has_no_answer:
            theirs = [text for text in theirs if normalise_answer(text)] or [""]
        exact.append(max((exact_match(ours, text) for text in theirs), default=0.0))
        overlap.append(max((answer_f1(ours, text, has_no_answer) for text in theirs), default=0.0))
    return AnswerScores(np.array(exact), np.array(overlap), np.array(answerable, dtype=np.bool_))
