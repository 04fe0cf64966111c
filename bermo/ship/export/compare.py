"""How an export answers beside the model that it was made from: the logits' error, the decisions, the score.

relative error    ‖a − b‖ / ‖b‖ over all logits; must stay under the tolerance of the export's precision,
                  unless the form rounds on purpose and its score is known. Logits that are all but 0 on
                  average, those of a model that knows nothing, count as a tenth: their last digits decide
                  nothing.
noise             a fall of the score decides only where chance does not explain it: where 0 is not in the
                  middle 95 % of the fall over resamples of the rows.
moved             ½ Σ|p − q| of the probabilities, on average: logits that are all 1.3 times as large are far
                  off, and hardly move an answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bermo.data.answers import best_answers
from bermo.data.features import Features
from bermo.data.intervals import Indices, bootstrap
from bermo.data.ranking import unit
from bermo.data.rows import SpanRows
from bermo.data.scoring import score, sigmoid, softmax, total_variation
from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.printing import number_of
from bermo.ship.runtimes.candidate import Candidate, answer

TOLERANCES: Mapping[str, float] = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2, "int8": 0.25, "gobo": 0.5} | {
    "groups3": 0.75,
    "groups2": 1.0,
}
"""Largest relative error of the logits: sums in another order; 11 bits of a number; 8 bits; 8 bits with a
common step; 3 bits with centroids; 3 and 2 bits with steps of groups.
"""
ROUNDED = TOLERANCES["fp16"]
"""From this tolerance on a form rounds on purpose: logits may move far while the answers stay."""
DECIDED: tuple[Kind, ...] = ("classification", "multi-label", "tagging", "span", "choice")
"""Kinds of task whose logits become probabilities."""
RESAMPLED: tuple[Kind, ...] = ("classification", "multi-label", "regression", "choice")
"""Kinds of task whose score is that of rows with a target each, which can be drawn again."""
NUMBERS: tuple[Kind, ...] = ("regression", "reranker")
"""Kinds of task whose answer is a number."""
LEAST_LOGIT = 0.1
"""Logits of this size tell 52 from 48 percent."""
BATCH = 16
ONE_ROW = 100
"""Points of score of one row, times the rows: the one that tips over is no finding where rows are few."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """How an export answers beside the model it came from; scores in percent where there are answers."""

    texts: int
    on: str
    relative_error: float
    tolerance: float
    same_answers: float
    score_before: float | None = None
    score_after: float | None = None
    moved: float | None = None
    """How far probabilities moved on average; None where logits are no probabilities."""
    farthest: float | None = None
    """The largest difference of two answers where answers are numbers."""
    is_within_noise: bool = False
    """Whether the score fell by more than was allowed, and by no more than chance explains."""

    @property
    def is_judged_by_score(self) -> bool:
        """Whether the score alone decides, and the logits may be as far off as they are."""
        return self.score_before is not None and self.tolerance >= ROUNDED

    @property
    def loss(self) -> float:
        """Points of score that were lost; 0 where there is none."""
        return (self.score_before or 0.0) - (self.score_after or 0.0)

    @property
    def doubt(self) -> str:
        """What a fall of the score within the noise means."""
        rows = number_of(self.texts, "row")
        return (
            f"It lost {self.loss:.2f} points, which {rows} cannot tell from chance, so they decide nothing."
        )


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The model's own answers to the texts that exports of it are compared on."""

    features: Features
    on: str
    logits: list[np.ndarray]
    max_loss: float = 0.0
    """Points of score that an export may lose."""

    def accepts(self, compared: Compared) -> bool:
        return fault_of(compared, self.max_loss) is None

    def better(self, one: Compared, other: Compared) -> Compared:
        """Return which export to keep: one that is not refused, then the one that moves the answers less."""

        def rank(compared: Compared) -> tuple[bool, float]:
            distance = compared.relative_error if compared.moved is None else compared.moved
            return not self.accepts(compared), distance

        return min(one, other, key=rank)

    def compare(self, candidate: Candidate, precision: str) -> Compared:
        """Let a candidate answer the same texts."""
        after = answer(candidate, self.features, BATCH)
        has_answers, kind = self.features.targets is not None, self.features.task.kind
        least = LEAST_LOGIT if kind in DECIDED else 0.0
        compared = Compared(
            texts=len(self.features.rows) if isinstance(self.features.rows, SpanRows) else len(self.features),
            on=self.on,
            relative_error=relative_error(after, self.logits, least),
            tolerance=TOLERANCES[precision],
            same_answers=same_share(self.features, after, self.logits),
            score_before=score(self.features, self.logits).score if has_answers else None,
            score_after=score(self.features, after).score if has_answers else None,
            moved=moved(after, self.logits, kind) if kind in DECIDED else None,
            farthest=farthest(after, self.logits, kind) if kind in NUMBERS else None,
        )
        return replace(compared, is_within_noise=self._is_within_noise(compared, after))

    def _is_within_noise(self, compared: Compared, after: list[np.ndarray]) -> bool:
        """Tell whether a fall of the score that is too large may be chance."""
        is_drawn = self.features.targets is not None and self.features.task.kind in RESAMPLED
        if not is_drawn or compared.loss <= allowed_loss(compared, self.max_loss):
            return False

        def loss(rows: Indices) -> float:
            drawn = replace(self.features, targets=np.asarray(self.features.targets)[rows])
            before, now = ([logits[row] for row in rows] for logits in (self.logits, after))
            return score(drawn, before).score - score(drawn, now).score

        return bootstrap(loss, len(self.features))[0] <= 0


def check_accepted(compared: Compared, form: str, max_loss: float) -> None:
    """Refuse an export that answers something else than its model."""
    if fault := fault_of(compared, max_loss):
        raise BermoError(f"The {form} model{fault}")


def fault_of(compared: Compared, max_loss: float) -> str | None:
    """Say why an export is refused: its logits, or the points of score that it lost; None if it is not."""
    limit = math.inf if compared.is_judged_by_score else compared.tolerance
    # Written so that an error that is no number is refused too.
    if not (compared.relative_error <= limit and math.isfinite(compared.relative_error)):
        return (
            f"'s logits differ by {compared.relative_error:.2%} from the original's on {compared.on}"
            f" (tolerance {compared.tolerance:.2%}). Nothing was written. Try another form."
        )
    if compared.score_before is None or compared.score_after is None:
        return None
    if compared.loss <= allowed_loss(compared, max_loss) or (max_loss and compared.is_within_noise):
        return None
    return (
        f" scores {compared.score_after:.2f} on {compared.on}, {compared.loss:.2f} points less than the"
        f" original's {compared.score_before:.2f}. Nothing was written. Allow it with --max-loss"
        f" {np.ceil(compared.loss * 10) / 10:g}, or calibrate with --calibrate FILE."
    )


def allowed_loss(compared: Compared, max_loss: float) -> float:
    """Return the points that may be lost: one row may tip over, unless none may."""
    return (max(max_loss, ONE_ROW / compared.texts) if max_loss else 0.0) + 1e-9


def agreement(same: float, farthest: float | None) -> str:
    """Say how many answers stayed the same, or of numbers how far they are apart."""
    if farthest is None:
        return f"{same:.1%} of answers are the same"
    return f"no answer is off by more than {farthest:.2g}"


def farthest(after: list[np.ndarray], before: list[np.ndarray], kind: Kind) -> float:
    """Return the largest difference of two numbers that are answers."""
    a, b = (np.concatenate([np.ravel(row)[:1] for row in rows]) for rows in (after, before))
    return float(np.abs(sigmoid(a) - sigmoid(b) if kind == "reranker" else a - b).max())


def relative_error(after: list[np.ndarray], before: list[np.ndarray], least: float = 0.0) -> float:
    """‖a − b‖ / ‖b‖ over all logits together; those of b count as `least` on average, if not as more."""
    a, b = (np.concatenate([np.ravel(row) for row in rows]).astype(np.float64) for rows in (after, before))
    size = max(float(np.linalg.norm(b)), least * math.sqrt(len(b)), 1e-12)
    return float(np.linalg.norm(a - b)) / size


def moved(after: list[np.ndarray], before: list[np.ndarray], kind: Kind) -> float:
    """½ Σ|p − q| over the classes of each decision, on average; of labels that may be several, |p − q|."""
    distances = []
    for a, b in zip(after, before, strict=True):
        if kind == "multi-label":
            distances.append(np.abs(sigmoid(a) - sigmoid(b)).ravel())
        else:
            distances.append(total_variation(softmax(a), softmax(b)).ravel())
    return float(np.concatenate(distances).mean())


def same_share(features: Features, after: list[np.ndarray], before: list[np.ndarray]) -> float:
    """The share of answers that stayed the same; of questions, of the texts that answer them.

    The largest logits of a piece of a passage often stand where training puts "not in this piece", and an
    answer is the best span of words in all pieces.
    """
    if features.task.kind != "span":
        return same_answers(after, before, features.task.kind)
    pairs = zip(best_answers(features, after), best_answers(features, before), strict=True)
    return float(np.mean([a == b for a, b in pairs]))


def same_answers(after: list[np.ndarray], before: list[np.ndarray], kind: Kind) -> float:
    """The share of decisions (one for each row, tag, or label of a row that may have several) that stayed
    the same; 1 for numbers. The decision of a vector is which text is its nearest.
    """
    if kind == "embedding":
        return float(np.mean(nearest_of(np.stack(after)) == nearest_of(np.stack(before))))
    pairs = [(_decisions(a, kind), _decisions(b, kind)) for a, b in zip(after, before, strict=True)]
    same = sum(int((a == b).sum()) for a, b in pairs)
    return same / sum(len(a) for a, _ in pairs)


def nearest_of(vectors_ND: np.ndarray) -> np.ndarray:
    """Return the number of the row that is most similar to each row, by cosine."""
    units_ND = unit(vectors_ND.reshape(-1, vectors_ND.shape[-1]))
    scores_NN = units_ND @ units_ND.T
    np.fill_diagonal(scores_NN, -np.inf)
    return np.asarray(scores_NN.argmax(-1))


def _decisions(logits: np.ndarray, kind: Kind) -> np.ndarray:
    return logits > 0 if kind == "multi-label" else np.atleast_1d(logits.argmax(-1))
