"""Fit, predict and score on rows in memory: the bits of the command line, any labels, saved and loaded."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from transformers.utils import logging

import bermo
from bermo.cli import main
from bermo.errors import BermoError
from bermo.estimators.trained import without_bars

SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 8, "max_length": 16, "lr": 1e-3, "device": "cpu"}
WORDS = ("dog", "cat", "man", "woman", "child", "bird")
TEXTS = [f"the {a} sees the {b} {c}" for a in WORDS for b in WORDS for c in ("now", "again")]
LABELS = ["first" if text.split()[1] in WORDS[:3] else "second" for text in TEXTS]
VALID = (TEXTS[:20] + TEXTS[-20:], LABELS[:20] + LABELS[-20:])


# A few steps from random weights may end with one answer for everything, of which a fit warns.
# Validation rows here are training rows too, of which it warns as well.
pytestmark = pytest.mark.filterwarnings("ignore:Seed ", "ignore:Careful: ", "ignore:validation rows")


@pytest.fixture(scope="module")
def fitted() -> bermo.Classifier:
    return bermo.Classifier("box", seed=1, **SMALL).fit(TEXTS, LABELS, VALID)


def write_file(path: Path, rows: tuple[list[str], list[str]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([("text", "label"), *zip(*rows, strict=True)])
    return str(path)


def test_a_fit_gives_the_bits_of_the_command_line_on_the_same_rows(
    fitted: bermo.Classifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--train", write_file(tmp_path / "a.csv", (TEXTS, LABELS))]
    files += ["--valid", write_file(tmp_path / "b.csv", VALID), "--out", str(tmp_path / "run")]
    words = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["train", *files, *words]) == 0
    capsys.readouterr()
    ours, theirs = (
        load_file(folder / "model" / "model.safetensors") for folder in (fitted.folder_, tmp_path / "run")
    )
    assert ours.keys() == theirs.keys()
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:5]) + "\n", encoding="utf-8")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "texts.txt")]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    answers = bermo.predict(fitted.folder_, TEXTS[:5])
    for line, answer in zip(printed, answers, strict=True):
        assert f'"label": "{answer.label}", "probability": {answer.probability}' in line


def test_a_fitted_classifier_says_classes_shares_and_scores(fitted: bermo.Classifier) -> None:
    assert fitted.classes_.tolist() == ["first", "second"]
    assert fitted.mix_weights_.sum() == pytest.approx(1)
    assert fitted.result_.seeds[0].seed == 1
    shares = fitted.predict_proba(TEXTS)
    assert shares.shape == (len(TEXTS), 2)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (fitted.classes_[shares.argmax(1)] == fitted.predict(np.array(TEXTS))).all()
    right = np.mean(fitted.predict(VALID[0]) == np.array(VALID[1]))
    assert fitted.score(*VALID) == fitted.score({"text": VALID[0], "label": VALID[1]}) == right
    assert 100 * right == pytest.approx(fitted.result_.seeds[0].score)


def test_what_is_doubtful_about_rows_is_warned_of_once_with_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts, labels = [*TEXTS, TEXTS[0], "a\0b", ""], [*LABELS, "second", "First", "first"]
    with pytest.warns(UserWarning, match="rows:") as given:
        bermo.Classifier(verbose=True, **SMALL).fit(texts, labels, VALID)
    said, shown = [str(one.message) for one in given], capsys.readouterr().err
    wanted = {
        "1 of 75 rows has no text": "row 75",
        "1 of 74 texts holds control characters": "row 74: 'a\\x00b'",
        'the labels "first" (row 1), "First" (row 74) differ only in capitals': "2 classes",
        "1 text has several labels": '"first" in row 1, "second" in row 73',
        "validation rows: all 40 validation texts are also in training rows": "Leave valid out",
    }
    for start, example in wanted.items():
        found = [sentence for sentence in said if start in sentence]
        assert len(found) == 1, (start, said)
        assert example in found[0]
        assert start not in shown
    assert all(one.filename == __file__ for one in given if "rows:" in str(one.message))


def test_labels_of_any_type_come_back_as_they_were_given(tmp_path: Path) -> None:
    numbers = [int(label == "first") for label in LABELS]
    classifier = bermo.Classifier(out=str(tmp_path / "run"), split=0.3, **SMALL)
    classifier.fit(np.array(TEXTS), np.array(numbers))
    assert classifier.classes_.tolist() == [0, 1]
    assert classifier.folder_ == tmp_path / "run"
    assert classifier.predict(TEXTS[:3]).dtype == np.int64
    classifier.save(tmp_path / "saved")
    again = bermo.Classifier.load(str(tmp_path / "saved"))
    assert again.predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()
    assert again.get_params() == classifier.get_params()
    run = bermo.Classifier.load(tmp_path / "run")
    assert run.classes_.tolist() == ["0", "1"]
    assert run.score(TEXTS, numbers) == classifier.score(TEXTS, numbers)
    with pytest.raises(BermoError, match="exists and is not overwritten"):
        classifier.save(tmp_path / "saved")
    with pytest.raises(BermoError, match="holds a model for classification, not for regression"):
        bermo.Regressor.load(tmp_path / "run")


def test_pairs_are_read_and_a_single_text_is_then_refused() -> None:
    pairs = [tuple(text.split(" sees ")) for text in TEXTS]
    classifier = bermo.Classifier(**SMALL).fit(
        pairs, LABELS, (pairs[:12] + pairs[-12:], VALID[1][:12] + VALID[1][-12:])
    )
    assert set(classifier.predict(pairs[:4])) <= {"first", "second"}
    with pytest.raises(BermoError, match="2 texts were expected in every row"):
        classifier.predict(["the dog"])


def test_several_labels_a_text_are_lists_in_and_out(tmp_path: Path) -> None:
    labels: list[list[Any]] = [[word for word in ("dog", "cat") if word in text] for text in TEXTS]
    classifier = bermo.Classifier(out=tmp_path / "run", **SMALL).fit(TEXTS, labels, (TEXTS, labels))
    assert classifier.classes_.tolist() == ["cat", "dog"]
    shares, answers = classifier.predict_proba(TEXTS), classifier.predict(TEXTS)
    for share, answer in zip(shares, answers, strict=True):
        assert set(answer) == set(classifier.classes_[share > 0.5])
    right = np.mean([set(a) == set(b) for a, b in zip(answers, labels, strict=True)])
    frame = {"text": TEXTS, "label": [set(row) for row in labels]}
    assert classifier.score(TEXTS, labels) == classifier.score(frame) == right
    classifier.save(tmp_path / "saved")
    again = bermo.Classifier.load(tmp_path / "saved")
    assert again.predict(TEXTS).tolist() == answers.tolist()
    assert again.score(TEXTS, ["|".join(row) for row in labels]) == right


def test_a_temporary_folder_lives_as_long_as_its_classifier() -> None:
    classifier = bermo.Classifier(**SMALL).fit(TEXTS, LABELS, VALID)
    folder = classifier.folder_
    assert folder.is_dir()
    del classifier
    assert not folder.exists()


def test_a_regressor_predicts_numbers(tmp_path: Path) -> None:
    numbers = [len(text) / 7 for text in TEXTS]
    regressor = bermo.Regressor(**SMALL).fit(TEXTS, numbers, (TEXTS, numbers))
    predicted = regressor.predict(TEXTS)
    assert predicted.shape == (len(TEXTS),)
    left = (
        np.square(np.array(numbers) - predicted).sum() / np.square(np.array(numbers) - np.mean(numbers)).sum()
    )
    assert regressor.score(TEXTS, numbers) == pytest.approx(1 - left)
    with pytest.raises(BermoError, match="The label is 3, but R² is"):
        regressor.score(TEXTS[:1], [3])
    regressor.save(tmp_path / "saved")
    assert bermo.Regressor.load(tmp_path / "saved").predict(TEXTS).tolist() == predicted.tolist()


def test_bars_of_transformers_are_off_while_we_load_and_then_as_they_were() -> None:
    logging.enable_progress_bar()
    with without_bars():
        assert not logging.is_progress_bar_enabled()
    assert logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    with without_bars():
        pass
    assert not logging.is_progress_bar_enabled()


def test_a_fit_that_learned_nothing_warns() -> None:
    with pytest.warns(UserWarning, match="Seed 1 diverged: "):
        bermo.Classifier(**SMALL | {"lr": 50.0, "head": "random"}).fit(TEXTS, LABELS, VALID)


def test_scikit_learn_knows_the_estimators() -> None:
    classifier = bermo.Classifier("box", seed=3, **SMALL)
    copy = clone(classifier).set_params(epochs=2)
    assert is_classifier(copy)
    assert is_regressor(bermo.Regressor())
    assert copy.get_params() == classifier.get_params() | {"epochs": 2}
    assert eval(repr(copy), {"Classifier": bermo.Classifier}).get_params() == copy.get_params()
    scores = cross_val_score(classifier.set_params(split=0.3), TEXTS, LABELS, cv=2)
    assert ((scores >= 0) & (scores <= 1)).all()


def test_a_clone_learns_from_the_same_fitted_teacher(fitted: bermo.Classifier) -> None:
    for kind in (bermo.Classifier, bermo.Regressor):
        student = kind(teacher=fitted, **SMALL)
        assert clone(student).get_params()["teacher"] is fitted
        assert clone(make_pipeline(student))[0].get_params() == student.get_params()


def test_what_cannot_be_answered_is_a_sentence(fitted: bermo.Classifier) -> None:
    with pytest.raises(BermoError, match="This Classifier is not fitted"):
        bermo.Classifier().predict(TEXTS)
    with pytest.raises(BermoError, match=r"texts\[1\] is empty"):
        fitted.predict(["a dog", " "])
    with pytest.raises(BermoError, match="a list of texts was expected"):
        fitted.predict("a dog")
    with pytest.raises(BermoError, match="The folder is None"):
        fitted.save(None)  # type: ignore[arg-type]
    with pytest.raises(BermoError, match="The folder is \\['a'\\]"):
        bermo.Classifier(out=["a"], **SMALL).fit(TEXTS, LABELS)
    with pytest.raises(BermoError, match="Call it one of text, sentence"):
        fitted.predict({"first": ["a"], "second": ["b"]})
    with pytest.raises(BermoError, match="first_layers and keep_layers both choose layers"):
        bermo.Classifier(**SMALL, first_layers=1, keep_layers=1).fit(TEXTS, LABELS)
    with pytest.raises(BermoError, match=r"with label, or take bermo\.Regressor if they are numbers"):
        bermo.Classifier(**SMALL).fit(TEXTS, [number / 7 for number in range(len(TEXTS))])
    with pytest.raises(BermoError, match="a larger split, or other rows with valid"):
        bermo.Classifier(**SMALL).fit(TEXTS[:3], LABELS[:3])
    with pytest.raises(BermoError, match="training rows, row 2: the label"):
        bermo.Classifier(**SMALL).fit(TEXTS[:2], ["first", None])
    with pytest.raises(BermoError, match='label "third"'):
        bermo.Classifier(**SMALL).fit(TEXTS, LABELS, (TEXTS[:2], ["first", "third"]))
