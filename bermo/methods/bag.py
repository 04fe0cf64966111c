"""What the words alone tell: logistic regression on the counts of a text's words, the baseline under every probe.

    softmax(W c(x) + b),   c(x) the counts of the 20,000 most frequent words of training, in lower case

A task that a bag of words solves says little about order, grammar or the encoder.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

MOST_WORDS = 20_000
BATCH, RATE, DECAY, EPOCHS, PATIENCE = 128, 1e-2, 1e-5, 30, 3
_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Cut a text into words and marks, in lower case."""
    return _WORD.findall(text.lower())


class _Bags:
    """Texts as lists of word numbers, end to end."""

    def __init__(self, texts: Sequence[str], index: dict[str, int]) -> None:
        rows = [[index[word] for word in words_of(text) if word in index] for text in texts]
        self.lengths = np.array([len(row) for row in rows])
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.words = np.fromiter((word for row in rows for word in row), dtype=np.int64)

    def take(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the words of some rows, and where each row begins among them."""
        parts = [self.words[self.starts[row] : self.starts[row + 1]] for row in rows]
        begins = np.cumsum([0, *(len(part) for part in parts[:-1])])
        return torch.from_numpy(np.concatenate(parts)), torch.from_numpy(begins)


def bag_accuracy(
    texts: Sequence[Sequence[str]], labels: Sequence[Tensor], classes: int, seed: int = 0
) -> float:
    """Train on the first part, stop by the second, return the share of right answers on the third."""
    counts = Counter(word for text in texts[0] for word in words_of(text))
    index = {word: at for at, (word, _) in enumerate(counts.most_common(MOST_WORDS))}
    bags = [_Bags(part, index) for part in texts]
    weight = nn.EmbeddingBag(len(index), classes, mode="sum")
    nn.init.zeros_(weight.weight)
    bias = nn.Parameter(torch.zeros(classes))
    optimizer = torch.optim.Adam([*weight.parameters(), bias], lr=RATE, weight_decay=DECAY)
    rng, best, idle, result = np.random.default_rng(seed), -1.0, 0, 0.0
    for _ in range(EPOCHS):
        order = rng.permutation(len(labels[0]))
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            loss = nn.functional.cross_entropy(weight(*bags[0].take(rows)) + bias, labels[0][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = _right(weight, bias, bags[1], labels[1])
        idle = 0 if found > best else idle + 1
        if found > best:
            best, result = found, _right(weight, bias, bags[2], labels[2])
        if idle >= PATIENCE:
            break
    return result


@torch.no_grad()
def _right(weight: nn.EmbeddingBag, bias: Tensor, bags: _Bags, labels: Tensor) -> float:
    every = np.arange(len(labels))
    answers = (weight(*bags.take(every)) + bias).argmax(-1)
    return float((answers == labels).float().mean())
