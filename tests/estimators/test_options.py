"""The options of an estimator are those of `bermo train`, read in the same way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import bermo
from bermo.errors import BermoError
from bermo.estimators.options import LEFT_OUT, read_options
from bermo.fields import leaves
from bermo.spec import RunSpec
from bermo.values import from_texts


def test_options_make_the_spec_of_the_command_line() -> None:
    given = {
        "model": Path("encoder"),
        "out": None,
        "mix": "raw",
        "layers": (0, -1),
        "epochs": np.float64(2),
        "prune": "movement",
        "density": 0.1,
        "score_lr": 2e-2,
        "teacher": SimpleNamespace(folder_=Path("big")),
        "first_layers": None,
        "seed": 7,
    }
    texts = {
        "data.task": "own/classification",
        "model.backbone": "encoder",
        "model.mix.kind": "raw",
        "model.mix.layers": "0,-1",
        "train.epochs": "2",
        "prune.method": "movement",
        "prune.density": "0.1",
        "prune.lr": "2e-2",
        "distill.teacher": "big",
        "seeds": "7,",
    }
    options = read_options("own/classification", given)
    assert options.spec == from_texts(RunSpec, texts)
    assert options.given == given


def test_every_option_of_training_is_one_of_estimators_but_those_of_files() -> None:
    names = {leaf.flag.replace("-", "_") for leaf in leaves(RunSpec)}
    assert set(LEFT_OUT) <= names
    defaults: dict[str, Any] = {}
    for leaf in leaves(RunSpec):
        name = leaf.flag.replace("-", "_")
        if name not in LEFT_OUT:
            defaults[name] = leaf.default
    assert read_options("own", defaults).spec == RunSpec()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"epoch": 3}, 'There is no option "epoch". Did you mean "epochs"'),
        ({"train": "my.csv"}, 'There is no option "train"'),
        ({"mix": "acros"}, 'mix cannot be "acros". Did you mean "across"'),
        ({"epochs": "many"}, 'epochs must be a number, but got "many"'),
        ({"batch_size": 0}, "batch-size must be at least 1, but got 0"),
    ],
)
def test_a_wrong_option_is_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        read_options("own/classification", given)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("learning_rate", '"lr"'),
        ("num_train_epochs", '"epochs"'),
        ("fp16", "\"precision='fp16'\""),
        ("random_state", '"seeds"'),
        ("epoch", '"epochs"'),
    ],
)
def test_what_other_tools_call_an_option_is_told_as_ours(option: str, meant: str) -> None:
    with pytest.raises(BermoError, match=f'There is no option "{option}". Did you mean {meant}'):
        read_options("own/classification", {option: 1})


@pytest.mark.parametrize("kind", [bermo.Classifier, LogisticRegression])
def test_a_teacher_without_a_model_of_ours_is_refused(kind: type) -> None:
    with pytest.raises(
        BermoError, match=f"teacher is a {kind.__name__} without a model of bermo. Call its fit"
    ):
        read_options("own/classification", {"teacher": kind()})


def test_none_is_no_model() -> None:
    with pytest.raises(BermoError, match="model is None"):
        read_options("own/classification", {"model": None})
