"""A metric of the user's own: what it is asked for each kind, and what is refused before a training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bermo.data.evaluation import evaluate
from bermo.data.features import Features
from bermo.data.own_metric import own_metric, read_metric, truth_of
from bermo.data.scoring import decode, score
from bermo.data.tasks import scored_by, with_function
from bermo.errors import BermoError
from tests.methods.world import make_world

KINDS = ("classification", "multi-label", "regression", "tagging", "span", "choice")
WIDTHS = {"regression": 1, "choice": 2}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def logits(valid: Features, kind: str) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    lengths, width = np.asarray(valid.lengths), WIDTHS.get(kind, len(valid.labels))
    if kind == "tagging":
        return [random.normal(size=(length, width)) for length in lengths]
    if kind == "span":
        return [random.normal(size=(2, length)) for length in lengths]
    return [random.normal(size=width) for _ in range(len(valid))]


def with_own(valid: Features, function: Callable[..., Any]) -> Features:
    return replace(valid, task=with_function(valid.task, own_metric(function)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_gets_the_right_and_the_given_answer_of_each_row(kind: str, home: Path) -> None:
    seen: list[Any] = []

    def cost(truth: list[Any], answers: list[Any]) -> float:
        seen.append((truth, answers))
        return -7.5

    valid = make_world(home, kind).valid
    found = score(with_own(valid, cost), logits(valid, kind))
    assert (found.main, found.score) == ("cost", -7.5)
    assert found.values.keys() - {"cost"} == score(valid, logits(valid, kind)).values.keys()
    ((truth, answers),) = seen
    assert len(truth) == len(answers) == len(valid.rows)
    usual = decode(valid, logits(valid, kind))
    match kind:
        case "classification":
            assert truth == list(valid.rows.labels)  # type: ignore[union-attr]
            assert answers == [answer["label"] for answer in usual]
        case "multi-label":
            assert truth == [set(labels) for labels in valid.rows.labels]  # type: ignore[union-attr, arg-type]
            assert answers == [set(answer["labels"]) for answer in usual]
        case "regression":
            np.testing.assert_allclose(truth, np.asarray(valid.targets), rtol=1e-6)
            assert answers == [answer["value"] for answer in usual]
        case "tagging":
            assert answers == [answer["tags"] for answer in usual]
            assert list(map(len, truth)) == list(map(len, answers))
        case "span":
            assert answers == [answer["answer"] for answer in usual]
            assert all(isinstance(text, str) for texts in truth for text in texts)
        case "choice":
            assert {type(item) for item in (*truth, *answers)} == {int}


@pytest.mark.parametrize("kind", KINDS)
def test_right_answers_and_one_for_everything_are_tried_first(kind: str, home: Path) -> None:
    seen: list[Any] = []

    def cost(truth: list[Any], answers: list[Any]) -> float:
        seen.append([a in b if kind == "span" else a == b for a, b in zip(answers, truth, strict=True)])
        return 0.0

    scored_by(make_world(home, kind).data, own_metric(cost))
    right, alike = seen
    assert all(right)
    assert alike[0]
    assert not all(alike)


@pytest.mark.parametrize("kind", ["classification", "multi-label", "choice"])
def test_probabilities_are_those_of_each_rows_answer(kind: str, home: Path) -> None:
    def sureness(truth: list[Any], answers: list[Any], probabilities: list[dict[str, float]]) -> float:
        if kind == "classification":
            assert [max(row, key=row.__getitem__) for row in probabilities] == answers
        return sum(sum(row.values()) for row in probabilities) / len(truth)

    valid = make_world(home, kind).valid
    found = score(with_own(valid, sureness), logits(valid, kind)).score
    assert found == pytest.approx(1.0) if kind != "multi-label" else 0 < found < len(valid.labels)


def test_accuracy_written_by_the_user_is_accuracy_with_its_bootstrap(home: Path) -> None:
    def share(truth: list[str], answers: list[str]) -> float:
        return 100 * sum(a == b for a, b in zip(truth, answers, strict=True)) / len(truth)

    valid = make_world(home, "classification").valid
    usual, own = (evaluate(item, logits(valid, "classification")) for item in (valid, with_own(valid, share)))
    assert own.score == pytest.approx(usual.score)
    assert (own.metric, own.interval_by) == ("share", "bootstrap")
    np.testing.assert_allclose(own.interval, usual.interval, atol=6)
    assert own.confusion == usual.confusion


def test_labels_that_a_model_cannot_give_have_no_probability(home: Path) -> None:
    def known(truth: list[str], answers: list[str], probabilities: list[dict[str, float]]) -> float:
        return float(len(probabilities[0]))

    valid = make_world(home, "classification").valid
    wider = replace(valid, labels=(*valid.labels, "new"))
    assert score(with_own(wider, known), logits(valid, "classification")).score == len(valid.labels)


def test_answers_of_a_broken_training_are_scored(home: Path) -> None:
    valid = make_world(home, "regression").valid
    broken = [np.array([np.nan])] * len(valid)
    assert score(with_own(valid, lambda truth, answers: -sum(answers)), broken).score == 0


def test_labels_are_as_the_user_gave_them(home: Path) -> None:
    data = make_world(home, "classification").data
    classes = {name: index for index, name in enumerate(data.labels)}

    def numbers(truth: list[int], answers: list[int], probabilities: list[dict[int, float]]) -> float:
        assert {*truth, *answers, *probabilities[0]} <= set(classes.values())
        return 1.0

    scored = scored_by(data, replace(own_metric(numbers), classes=classes))
    assert scored.task.own_metric is not None
    assert scored.task.metric == data.task.metric


def test_another_text_is_another_metric(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    sums = []
    for body in ("1.0", "2.0", "1.0"):
        file.write_text(f"def cost(truth, answers):\n    return {body}\n")
        sums.append(read_metric(f"{file}:cost").digest)
    assert sums[0] == sums[2] != sums[1]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]  # no compiled copy beside it


def test_a_function_is_asked_for_one_answer_to_everything_before_a_training(home: Path) -> None:
    data = make_world(home, "classification").data
    first = truth_of(data.valid)[0]

    def precise(truth: list[str], answers: list[str]) -> float:
        given = [a == b for a, b in zip(truth, answers, strict=True) if b != first]
        return sum(given) / len(given)

    with pytest.raises(BermoError, match=r"precise raised ZeroDivisionError in line \d+: division by zero"):
        scored_by(data, own_metric(precise))


@pytest.mark.parametrize(
    ("text", "typed", "said"),
    [
        ("", "nobody.py:cost", "The file nobody.py of --metric cannot be read: No such file"),
        ("", "mine.py", "names no function. Give a Python file and a function in it, such as mine.py:cost"),
        ("", "mine.txt:cost", "names no function"),
        ("def coast(truth, answers): ...", "mine.py:cost", 'has no function "cost". Did you mean "coast"'),
        ("def cost(:", "mine.py:cost", "mine.py, line 1 of --metric cannot be run: SyntaxError"),
        ("import nothing_like_it", "mine.py:cost", "cannot be run: ModuleNotFoundError"),
        ("raise SystemExit(3)", "mine.py:cost", "cannot be run: SystemExit: 3"),
        ("def cost(answers): ...", "mine.py:cost", "cannot be called with truth and answers"),
        ("def cost(a, b, c): ...", "mine.py:cost", "Expected def cost(truth, answers) or"),
        ("def accuracy(a, b): ...", "mine.py:accuracy", "has the name of one of bermo's own"),
        ("def cost(a, b): ...", "mine.py:cost", "gave None, but a finite number was expected"),
        ("def cost(a, b): return 1e400", "mine.py:cost", "gave inf, but a finite number"),
        ("def cost(a, b): return a[99999]", "mine.py:cost", "raised IndexError in line 1"),
    ],
)
def test_a_wrong_function_is_one_sentence(
    text: str, typed: str, said: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(text + "\n")
    with pytest.raises(BermoError) as error:
        scored_by(make_world(home, "classification").data, read_metric(typed))
    assert said in str(error.value)


def test_probabilities_of_what_has_none_are_refused(home: Path) -> None:
    def cost(truth: Any, answers: Any, probabilities: Any) -> float:
        return 0.0

    with pytest.raises(BermoError, match=r"takes probabilities, but regression has none"):
        scored_by(make_world(home, "regression").data, own_metric(cost))
