"""Start and end logits to answers: the best span over all pieces of a question's passage.

    score(s, e) = start_s + end_e,  s ≤ e < s + 30, both in the passage, each among its piece's best 20

In version 2.0 the answer is empty if the classifier token's score, the least over the pieces, is above the
best span's. The text is cut from the passage itself, never glued from tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.data.features import Features
from bermo.data.rows import SpanRows

NUM_BEST = 20
LONGEST_ANSWER = 30
NULL_THRESHOLD = 0.0
"""By how much no answer must beat the best span, as in the official baselines."""


@dataclass(frozen=True)
class _Span:
    score: float = -np.inf
    begin: int = 0
    end: int = 0


def best_answers(features: Features, predictions: Sequence[npt.NDArray[np.floating]]) -> list[str]:
    """Return the answer to each question, the empty text where there is none."""
    assert isinstance(features.rows, SpanRows)
    assert features.row_of is not None
    assert features.spans is not None
    best = [_Span()] * len(features.rows)
    null = np.full(len(features.rows), np.inf)
    for piece, row in enumerate(features.row_of):
        tokens = slice(features.starts[piece], features.starts[piece + 1])
        start, end = np.asarray(predictions[piece], dtype=np.float64)
        span = _best_span(start, end, np.asarray(features.spans[tokens]))
        best[row] = max(best[row], span, key=lambda item: item.score)
        no_answer = _null_position(features, tokens)
        null[row] = min(null[row], start[no_answer] + end[no_answer])
    return [
        ""
        if features.task.has_no_answer and null[row] - span.score > NULL_THRESHOLD
        else features.rows.contexts[row][span.begin : span.end]
        for row, span in enumerate(best)
    ]


def _best_span(
    start: npt.NDArray[np.float64], end: npt.NDArray[np.float64], spans: npt.NDArray[np.int32]
) -> _Span:
    inside = np.flatnonzero(spans[:, 0] >= 0)
    if not len(inside):
        return _Span()
    firsts, lasts = _top(start, inside), _top(end, inside)
    totals = start[firsts][:, None] + end[lasts][None, :]
    width = lasts[None, :] - firsts[:, None]
    totals[(width < 0) | (width >= LONGEST_ANSWER)] = -np.inf
    first, last = np.unravel_index(np.argmax(totals), totals.shape)
    if totals[first, last] == -np.inf:
        return _Span()
    begin, stop = spans[firsts[first], 0], spans[lasts[last], 1]
    return _Span(float(totals[first, last]), int(begin), int(stop))


def _top(logits: npt.NDArray[np.float64], inside: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return inside[np.argsort(-logits[inside], kind="stable")[:NUM_BEST]]


def _null_position(features: Features, tokens: slice) -> int:
    """Return the token at which training marks "no answer": the classifier token, else the first."""
    if features.classifier_id is None:
        return 0
    classifier = np.flatnonzero(features.ids[tokens] == features.classifier_id)
    return int(classifier[0]) if len(classifier) else 0
