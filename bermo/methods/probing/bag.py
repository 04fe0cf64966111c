"""The baseline of every probe: logistic regression on the counts of a text's words.

    min  mean cross-entropy of softmax(W c(x) + b) + λ ‖W‖²,
    c(x) the counts of the 20,000 most frequent words, in lower case

Solved by L-BFGS over all rows at once, on the GPU where there is one, λ chosen on dev (with hundreds of
classes, where W is large, one λ must do). (Adam, which makes rare and frequent words move alike, stays far
below on word-content.) A task that a bag of words solves says little about order, grammar or the encoder.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

MOST_WORDS = 20_000
PENALTIES = (1e-3, 1e-4, 1e-5)
MANY_CLASSES = 100
ITERATIONS = 40
HISTORY = 3
"""Few, since each of L-BFGS's memories is as large as W."""
_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Cut a text into words and marks, in lower case."""
    return _WORD.findall(text.lower())


class _Bags:
    """Texts as lists of word numbers, end to end, and where each begins."""

    def __init__(self, texts: Sequence[str], index: dict[str, int], device: str) -> None:
        rows = [[index[word] for word in words_of(text) if word in index] for text in texts]
        self.words = torch.tensor([word for row in rows for word in row], dtype=torch.long, device=device)
        starts = [0, *accumulate(len(row) for row in rows[:-1])]
        self.starts = torch.tensor(starts, device=device)

    def sums(self, weight_VC: Tensor) -> Tensor:
        """Return W c(x) for every text, (N, C)."""
        return nn.functional.embedding_bag(self.words, weight_VC, self.starts, mode="sum")


def bag_accuracy(texts: Sequence[Sequence[str]], labels: Sequence[Tensor], classes: int) -> float:
    """Fit the first part, choose the penalty by the second, return the accuracy on the third."""
    counts = Counter(word for text in texts[0] for word in words_of(text))
    index = {word: at for at, (word, _) in enumerate(counts.most_common(MOST_WORDS))}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bags = [_Bags(part, index, device) for part in texts]
    labels = [part.to(device) for part in labels]
    weight = torch.zeros(len(index), classes, device=device, requires_grad=True)
    bias = torch.zeros(classes, device=device, requires_grad=True)
    best, result = -1.0, 0.0
    # From the largest penalty down, each starting where the last one ended.
    for penalty in PENALTIES if classes <= MANY_CLASSES else PENALTIES[1:2]:
        _solve_(weight, bias, bags[0], labels[0], penalty)
        share = _right(weight, bias, bags[1], labels[1])
        if share > best:
            best, result = share, _right(weight, bias, bags[2], labels[2])
    return result


def _solve_(weight: Tensor, bias: Tensor, bags: _Bags, labels: Tensor, penalty: float) -> None:
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, history_size=HISTORY, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(bags.sums(weight) + bias, labels)
        loss = loss + penalty * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


@torch.no_grad()
def _right(weight: Tensor, bias: Tensor, bags: _Bags, labels: Tensor) -> float:
    answers = (bags.sums(weight) + bias).argmax(-1)
    return float((answers == labels).float().mean())
