"""The control task of a probe (Hewitt and Liang 2019): random classes of words, which only memorising solves.

    key of a text    its rarest word among those in at least 2 % of the training texts
    class of a key   drawn at random, so that classes are about as frequent as the task's

Every key of a test text was seen in training many times, so that a probe which memorises words can learn the
task: a bag of words reaches 84 to 89 % on X-Probe's tasks of 2 and 6 classes. A probe that does as well on
the control as on the task may have memorised the task's words, too.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import torch
from torch import Tensor

from bermo.data.probing import ProbeData
from bermo.methods.probing.bag import words_of

LEAST_SHARE, LEAST_TEXTS = 0.02, 2


def control_labels(data: ProbeData, seed: int) -> list[Tensor]:
    """Return the classes of the control task for the training, dev and test texts."""
    key_of = _key_of(data.train.first)
    keys = [[key_of(text) for text in rows.first] for rows in (data.train, data.valid, data.test)]
    wanted = Counter(data.labels.index(str(label)) for label in data.train.labels or ())
    classes = _draw_classes(Counter(keys[0]), wanted, Random(f"control-{data.task}-{seed}"))
    return [torch.tensor([classes.get(key, 0) for key in part]) for part in keys]


def _key_of(texts: Sequence[str]) -> Callable[[str], str]:
    """Return what finds a text's key; a text without a frequent word has the empty one."""
    counts = Counter(word for text in texts for word in set(words_of(text)))
    least = max(LEAST_TEXTS, LEAST_SHARE * len(texts))
    frequent = {word: (count, word) for word, count in counts.items() if count >= least}

    def key_of(text: str) -> str:
        return min((frequent[word] for word in words_of(text) if word in frequent), default=(0, ""))[1]

    return key_of


def _draw_classes(keys: Counter[str], wanted: Counter[int], random: Random) -> dict[str, int]:
    """Give each key, the most frequent first, a class that lacks the most texts; ties are drawn."""
    missing, classes = dict(wanted), dict[str, int]()
    for key in sorted(keys, key=lambda key: (-keys[key], random.random())):
        chosen = max(missing, key=lambda one: (missing[one], random.random()))
        classes[key] = chosen
        missing[chosen] -= keys[key]
    return classes
