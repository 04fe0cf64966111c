"""Students without a Transformer against a slow, obvious reading of one text at a time."""

import pytest
import torch
from torch import Tensor

from bermo.nn.students import DROPOUT, HEAD_UNITS, LSTM_UNITS, Reading, WordStudent

VECTORS = torch.randn(11, 6, generator=torch.Generator().manual_seed(0))
TEXTS = ([3, 1, 4], [5], [2, 6, 5, 3, 5])


def padded(texts: tuple[list[int], ...]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[9] * (longest - len(text))] for text in texts])
    return ids, torch.tensor([len(text) for text in texts])


def slow_cell(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    gates = weights[0] @ x + weights[2] + weights[1] @ h + weights[3]
    i, f, g, o = gates.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def slow_reading(model: WordStudent, text: list[int], reading: Reading) -> Tensor:
    words = [model.words.weight[word] for word in text]
    if reading == "mean":
        return torch.stack(words).mean(0)
    ends = []
    for suffix, order in (("", words), ("_reverse", words[::-1])):
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(model.reader.lstm, name + suffix) for name in names]
        h = c = torch.zeros(LSTM_UNITS)
        for x in order:
            h, c = slow_cell(x, h, c, weights)
        ends.append(h)
    return torch.cat(ends)


@pytest.mark.parametrize("reading", ["bilstm", "mean"])
@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_batch_answers_as_each_text_alone_does(reading: Reading, has_pairs: bool) -> None:
    torch.manual_seed(1)
    model = WordStudent(reading, VECTORS, 3, has_pairs).eval()
    sides = [TEXTS, TEXTS[::-1]] if has_pairs else [TEXTS]
    read = [torch.stack([slow_reading(model, text, reading) for text in side]) for side in sides]
    joined = read[0]
    if has_pairs:
        u, v = read
        joined = torch.cat([u, v, u * v, abs(u - v)], dim=1)
    expected = (joined @ model.dense.weight.T + model.dense.bias).clamp(min=0) @ model.out.weight.T
    actual = model([padded(side) for side in sides])
    torch.testing.assert_close(actual, expected + model.out.bias, rtol=1e-4, atol=1e-5)


def test_the_sizes_are_those_of_the_paper_and_words_are_trained() -> None:
    model = WordStudent("bilstm", VECTORS, 2, has_pairs=False)
    assert model.dense.weight.shape == (HEAD_UNITS, 2 * LSTM_UNITS) == (200, 300)
    assert model.dropout.p == DROPOUT == 0.1
    model([padded(TEXTS)]).sum().backward()
    assert model.words.weight.grad is not None
    assert not torch.equal(model.words.weight.grad, torch.zeros_like(VECTORS))
