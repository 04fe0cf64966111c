"""Scores are official and in percent; answers come back one for each row the user gave."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from bermo.data.answers import LONGEST_ANSWER, best_answers
from bermo.data.features import Features, make_features
from bermo.data.load import own_task
from bermo.data.rows import ChoiceRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.data.scoring import decode, score
from bermo.data.tasks import Task, find_task
from bermo.errors import BermoError
from bermo.spec import DataSpec

Make = Callable[..., Features]


@pytest.fixture
def make(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Make:
    """Return a maker of features that caches in the test's folder."""

    def maker(
        rows: Rows, task: Task, labels: tuple[str, ...] = (), max_length: int = 32, stride: int = 8
    ) -> Features:
        spec = DataSpec(cache=str(tmp_path), max_length=max_length, stride=stride)
        return make_features(rows, task, labels, tokenizer, spec, has_segments=True)

    return maker


def test_two_classes_get_their_metrics_in_percent(make: Make) -> None:
    rows = TextRows(["a", "the", "cat", "dog"], None, ["1", "0", "1", "1"])
    features = make(rows, find_task("mrpc"), ("0", "1"))
    logits = [np.array(row) for row in ([0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [2.0, 1.0])]
    scores = score(features, logits)
    assert scores.values["accuracy"] == pytest.approx(50.0)
    assert scores.values["f1"] == pytest.approx(100 * 4 / 6)
    assert scores.main == "mean"
    assert scores.score == pytest.approx((50 + 100 * 4 / 6) / 2)
    assert scores.predicted == {"1": 3, "0": 1}
    answers = decode(features, logits)
    assert answers[3]["label"] == "0"
    assert answers[3]["probability"] == pytest.approx(1 / (1 + np.exp(-1)))


def test_many_classes_have_no_binary_f1(make: Make) -> None:
    rows = TextRows(["a", "the", "cat"], None, ["x", "y", "z"])
    features = make(rows, own_task("classification"), ("x", "y", "z"))
    scores = score(features, list(np.eye(3)))
    assert scores.score == 100.0
    assert set(scores.values) == {"accuracy", "macro_f1", "matthews"}


def test_numbers_get_correlations(make: Make) -> None:
    rows = TextRows(["a", "the", "cat"], None, [1.0, 2.0, 5.0])
    features = make(rows, find_task("stsb"))
    scores = score(features, [np.array([value]) for value in (1.0, 2.0, 3.0)])
    assert scores.values["spearman"] == pytest.approx(100)
    assert scores.values["pearson"] == pytest.approx(100 * np.corrcoef([1, 2, 5], [1, 2, 3])[0, 1])
    assert scores.score == pytest.approx((100 + scores.values["pearson"]) / 2)
    assert decode(features, [np.array([1.5])] * 3) == [{"value": 1.5}] * 3


def test_words_lost_to_truncation_count_as_outside(make: Make) -> None:
    words = [["mark", "lives", "in", "berlin"], ["a", "dog", "sees", "a", "cat", "in", "germany"]]
    tags = [["B-PER", "O", "O", "B-LOC"], ["O", "O", "O", "O", "O", "O", "B-LOC"]]
    labels = ("O", "B-LOC", "B-PER")
    features = make(TaggedRows(words, tags), find_task("conll2003"), labels, max_length=8)
    logits = []
    for row in range(2):
        part = slice(features.starts[row], features.starts[row + 1])
        assert features.targets is not None
        logits.append(np.eye(3)[np.maximum(features.targets[part], 0)])
    scores = score(features, logits)
    assert scores.values["precision"] == pytest.approx(100)
    assert scores.values["recall"] == pytest.approx(100 * 2 / 3)
    assert scores.main == "f1"
    assert scores.predicted == {"O": 9, "B-PER": 1, "B-LOC": 1}
    assert decode(features, logits)[0] == {"words": words[0], "tags": tags[0]}


def test_choices_are_scored_and_named_by_place(make: Make) -> None:
    rows = ChoiceRows(["a", "the"], [["cat", "dog"], ["one", "two"]], ["1", "0"])
    features = make(rows, find_task("swag"), ("0", "1"))
    logits = [np.array([0.0, 2.0]), np.array([0.0, 2.0])]
    assert score(features, logits).score == pytest.approx(50.0)
    assert [answer["choice"] for answer in decode(features, logits)] == [1, 1]


CONTEXT = "The  old dog lives in Berlin . " * 6 + "Mark sees a big, red cat in the house ."


def _spans(make: Make, task: str) -> Features:
    answer = ("big, red cat", CONTEXT.index("big, red cat"))
    rows = SpanRows(["q1", "q2"], ["who is ?", "what ?"], [CONTEXT, CONTEXT], [[answer], []])
    return make(rows, find_task(task))


def _marked(features: Features) -> list[np.ndarray]:
    logits = []
    assert features.targets is not None
    for piece, (start, end) in enumerate(features.targets):
        row = np.full((2, features.lengths[piece]), -5.0)
        row[0, start] = row[1, end] = 5.0
        logits.append(row)
    return logits


def test_a_perfect_model_gets_full_marks_on_spans(make: Make) -> None:
    features = _spans(make, "squad2")
    assert len(features) > len(features.rows)
    logits = _marked(features)
    scores = score(features, logits)
    assert scores.score == scores.values["exact_match"] == 100.0
    assert scores.values["no_answer_f1"] == scores.values["answerable_f1"] == 100.0
    assert scores.predicted == {"answer": 1, "no answer": 1}
    assert decode(features, logits)[0] == {"answer": "big, red cat"}


def test_version_one_always_answers(make: Make) -> None:
    features = _spans(make, "squad")
    assert all(best_answers(features, _marked(features)))


def test_best_answers_equal_trying_every_span(make: Make) -> None:
    features = _spans(make, "squad2")
    assert features.row_of is not None
    assert features.spans is not None
    rng = np.random.default_rng(0)
    for _ in range(20):
        logits = [rng.normal(size=(2, length)) for length in features.lengths]
        expected = []
        for row in range(2):
            best, text, null = -np.inf, "", np.inf
            for piece in np.flatnonzero(features.row_of == row):
                spans = features.spans[features.starts[piece] : features.starts[piece + 1]]
                start, end = logits[piece]
                null = min(null, start[0] + end[0])
                for a in range(len(start)):
                    for b in range(a, min(a + LONGEST_ANSWER, len(start))):
                        inside = spans[a, 0] >= 0 and spans[b, 0] >= 0
                        if inside and start[a] + end[b] > best:
                            best, text = start[a] + end[b], CONTEXT[spans[a, 0] : spans[b, 1]]
            expected.append("" if null > best else text)
        assert best_answers(features, logits) == expected


def test_a_wrong_number_of_predictions_is_refused(make: Make) -> None:
    features = make(TextRows(["a"], None, ["x"]), own_task("classification"), ("x", "y"))
    with pytest.raises(BermoError, match="There are 2 predictions, but 1 features"):
        score(features, [np.zeros(2)] * 2)


def test_rows_without_answers_are_decoded_but_not_scored(make: Make) -> None:
    features = make(TextRows(["a"]), own_task("classification"), ("x", "y"))
    answers = decode(features, [np.array([0.0, 3.0], dtype=np.float32)])
    assert json.loads(json.dumps(answers))[0]["label"] == "y"
    with pytest.raises(BermoError, match="no answers to score"):
        score(features, [np.zeros(2)])
