"""Answers to texts in memory, for every kind of task: those of the same model asked through its file."""

from pathlib import Path
from typing import Any, get_args

import pytest

import bermo
from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.estimators.predict import ANSWERS, predict
from tests.methods.world import make_world

ROWS: dict[str, list[Any]] = {
    "classification": ["the dog sees a cat", "a cat"],
    "multi-label": ["the dog sees a cat", "a cat"],
    "regression": ["the dog sees a cat", "a cat"],
    "tagging": ["the dog sees a cat", ["a", "cat"]],
    "span": [("who sees ?", "the dog sees a cat"), ("what ?", "a cat")],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


def test_every_kind_of_task_has_a_class_for_its_answers() -> None:
    assert set(ANSWERS) == set(get_args(Kind))


@pytest.mark.parametrize("kind", ROWS)
def test_texts_in_memory_are_answered_in_the_class_of_their_kind(kind: Kind, home: Path) -> None:
    folder = make_world(home, kind).folder
    answers = predict(str(folder), ROWS[kind], device="cpu")
    assert [type(answer) for answer in answers] == [ANSWERS[kind]] * 2
    if kind == "tagging":
        assert [answer.words for answer in answers] == [["the", "dog", "sees", "a", "cat"], ["a", "cat"]]
    if kind == "classification":
        assert sum(answers[0].probabilities.values()) == pytest.approx(1)
        assert max(answers[0].probabilities.values()) == answers[0].probability


def test_an_empty_text_has_an_empty_answer_and_one_text_is_refused(home: Path) -> None:
    folder = make_world(home, "classification").folder
    assert predict(folder, ["a cat", " "], device="cpu")[1].label is None
    with pytest.raises(BermoError, match="a list of texts was expected"):
        predict(folder, "a cat")


@pytest.mark.parametrize(
    ("folder", "texts", "options", "sentence"),
    [
        (None, ["a"], {}, "The folder is None, but a path was expected"),
        (["a"], "runs/mine", {}, r"The folder is \['a'\], but a path was expected"),
        ("", ["a"], {}, "The folder is '', but a path was expected"),
        ("nobody", ["a"], {}, "There is no folder nobody"),
        ("mine", ["a"], {"batch_size": 0}, "batch-size must be at least 1, but got 0"),
        ("mine", ["a"], {"batch_size": "many"}, "^batch_size must be a whole number"),
        ("mine", ["a"], {"device": "tpu"}, '^device cannot be "tpu"'),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    folder: Any, texts: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BermoError, match=sentence):
        bermo.predict(folder, texts, **options)
    if not options:
        with pytest.raises(BermoError, match=sentence):
            bermo.Classifier.load(folder)
