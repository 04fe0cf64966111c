"""Weights of classes: as scikit-learn balances, equal to repeated rows, refused without classes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from bermo.cli import main
from bermo.data.features import Features, make_features
from bermo.data.load import load_task
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.methods.class_weights import check_class_weights, class_weights
from bermo.nn.heads import IGNORED, weighted_loss
from bermo.nn.linear_fit import fit_with_penalty
from bermo.spec import DataSpec

pytestmark = pytest.mark.usefixtures("shallow_box")

SMALL = "--max-length 16 --epochs 1 --batch-size 16 --device cpu"


def write(folder: Path, labels: list[str], header: str = "label") -> Path:
    path = folder / "my.csv"
    rows = [
        f"a {'good' if number % 2 else 'bad'} film {number},{label}" for number, label in enumerate(labels)
    ]
    path.write_text(f"text,{header}\n" + "\n".join(rows) + "\n")
    return path


def features(path: Path) -> Features:
    spec = DataSpec(train=str(path), valid=str(path), max_length=16)
    data = load_task(spec)
    return make_features(data.train, data.task, data.labels, load_tokenizer("box"), spec, True)


def test_balanced_weights_are_those_of_scikit_learn(tmp_path: Path) -> None:
    labels = ["a"] * 18 + ["b"] * 4 + ["c"] * 2
    found = class_weights("balanced", features(write(tmp_path, labels)))
    assert found is not None
    assert found.numpy() == pytest.approx([24 / (3 * 18), 24 / (3 * 4), 24 / (3 * 2)])
    named = class_weights("c=4", features(tmp_path / "my.csv"))
    assert named is not None
    # One over the mean, so that the rate keeps its meaning.
    assert named.numpy() == pytest.approx(np.array([1, 1, 4]) * 24 / (22 + 8))


def test_labels_weigh_the_rows_that_have_them(tmp_path: Path) -> None:
    path = write(tmp_path, ["x|y"] * 4 + ["x"] * 12 + ["y|x"] * 4)
    found = class_weights("balanced", features(path))
    assert found is not None
    assert found.numpy() == pytest.approx([0.0, 12 / 8])


def test_a_weight_of_two_is_a_row_that_stands_twice() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 2, 1])
    weights = torch.tensor([1.0, 1.0, 2.0])
    twice = functional.cross_entropy(logits[[0, 1, 2, 2, 3, 3, 4]], labels[[0, 1, 2, 2, 3, 3, 4]])
    assert weighted_loss(logits, labels, weights).item() * 5 == pytest.approx(twice.item() * 7, rel=1e-6)


def test_words_without_a_label_count_for_nothing() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 4), torch.tensor([[0, IGNORED, 3], [IGNORED, 2, IGNORED]])
    weights = torch.tensor([1.0, 1.0, 3.0, 0.5])
    each = [(0, 0, 0), (0, 2, 3), (1, 1, 2)]
    losses = [
        weights[c] * functional.cross_entropy(logits[i, j][None], torch.tensor([c])) for i, j, c in each
    ]
    assert weighted_loss(logits, labels, weights).item() == pytest.approx(sum(losses).item() / 3, rel=1e-6)  # type: ignore[union-attr]
    alike = weighted_loss(logits, torch.full_like(labels, IGNORED), weights)
    assert alike.item() == 0


def test_the_probe_of_weighted_classes_is_that_of_repeated_rows() -> None:
    torch.manual_seed(0)
    x_ND, targets = torch.randn(40, 3), torch.randint(0, 2, (40,))
    rows = [index for index in range(40) for _ in range(1 + int(targets[index]))]
    # The mean over repeated rows is over more of them: the weights are divided by their mean.
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64) * 40 / len(rows)
    # Standardising would differ between the two: it is undone by starting from standardised units.
    x_ND = (x_ND - x_ND[rows].mean(0)) / x_ND[rows].std(0, correction=0)
    weighted = fit_with_penalty(x_ND, targets, 2, 1e-9, weights_C=weights)
    repeated = fit_with_penalty(x_ND[rows], targets[rows], 2, 1e-9)
    assert torch.allclose(weighted.weight_CD, repeated.weight_CD, atol=1e-3)


@pytest.mark.usefixtures("whole_fits")
def test_a_rare_class_is_given_more_often(tmp_path: Path) -> None:
    path = write(tmp_path, ["common"] * 60 + ["rare"] * 20)
    counts = []
    for number, more in enumerate(([], ["--class-weights", "rare=50"])):
        out = tmp_path / f"run-{number}"
        words = [
            "train",
            "--train",
            str(path),
            "--valid",
            str(path),
            "--out",
            str(out),
            *SMALL.split(),
            *more,
        ]
        assert main(words) == 0
        answers = tmp_path / f"answers-{number}.csv"
        assert main(["predict", str(out), str(path), "--out", str(answers)]) == 0
        counts.append(answers.read_text().count("rare"))
    assert counts[0] < counts[1]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("balance", 'has "balance", which has no ='),
        ("god=2", 'names the class "god"'),
        ("good=x", '"x" of good is not a number'),
        ("good=0", "must be over 0"),
        ("good=nan", "must be over 0"),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path: Path, asked: str, said: str) -> None:
    path = write(tmp_path, ["good", "bad"] * 12)
    data = load_task(DataSpec(train=str(path), valid=str(path)))
    with pytest.raises(BermoError) as error:
        check_class_weights(asked, data)
    assert said in str(error.value)
    numbers = replace(data, task=replace(data.task, kind="regression"))
    with pytest.raises(BermoError, match="are of classes, not of regression"):
        check_class_weights("balanced", numbers)
