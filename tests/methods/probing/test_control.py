"""The control task: random classes of words that a memoriser can learn, and that say nothing of the task."""

from collections import Counter

import pytest
import torch

from bermo.data.probing import ProbeData, read_probe
from bermo.methods.probing.bag import bag_accuracy, words_of
from bermo.methods.probing.control import control_labels


@pytest.fixture(scope="module")
def data() -> ProbeData:
    return read_probe("tense", None, limit=1500)


def test_classes_follow_from_the_rarest_frequent_word_alone(data: ProbeData) -> None:
    first, again = (control_labels(data, 0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], control_labels(data, 1)[0])
    counts = Counter(word for text in data.train.first for word in set(words_of(text)))
    known: dict[str, int] = {}
    for rows, labels in zip((data.train, data.valid, data.test), first, strict=True):
        for text, label in zip(rows.first, labels.tolist(), strict=True):
            frequent = [(counts[word], word) for word in words_of(text) if counts[word] >= 30]
            assert known.setdefault(min(frequent, default=(0, ""))[1], label) == label
    assert len(known) > 20


def test_classes_are_as_frequent_as_the_task_s(data: ProbeData) -> None:
    control = control_labels(data, 0)[0].bincount().float() / len(data.train)
    own = Counter(map(str, data.train.labels or ()))
    for at, label in enumerate(data.labels):
        assert float(control[at]) == pytest.approx(own[label] / len(data.train), abs=0.1)


def test_a_memoriser_learns_it(data: ProbeData) -> None:
    labels = control_labels(data, 0)
    texts = [list(rows.first) for rows in (data.train, data.valid, data.test)]
    largest = float(labels[2].bincount().max()) / len(labels[2])
    assert bag_accuracy(texts, labels, 2) > largest + 0.2
