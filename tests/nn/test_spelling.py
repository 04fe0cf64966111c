"""Words and their characters put together from pieces, beside a slow loop over every token."""

import pytest
import torch
from torch import Tensor

from bermo.nn.spelling import ALONE, INSIDE, STARTS, Spelling

PIECES = ["", "<", ">", "cat", "s", "un", "believ", "able", "a"]
KINDS = [ALONE, ALONE, ALONE, STARTS, INSIDE, STARTS, INSIDE, INSIDE, STARTS]


def make() -> Spelling:
    spelling = Spelling(len(PIECES), 9)
    spelling.set_([list(piece.encode()) for piece in PIECES], KINDS)
    return spelling


def slow(ids: Tensor, mask: Tensor) -> list[tuple[str, list[int]]]:
    """Return the words of a row with the places of their tokens."""
    words: list[tuple[str, list[int]]] = []
    is_open = False
    for place, (index, is_token) in enumerate(zip(ids.tolist(), mask.tolist(), strict=True)):
        if not is_token:
            is_open = False
            continue
        if KINDS[index] == INSIDE and is_open:
            words[-1] = (words[-1][0] + PIECES[index], [*words[-1][1], place])
        else:
            words.append((PIECES[index], [place]))
        is_open = KINDS[index] != ALONE
    return words


@pytest.mark.parametrize("side", ["right", "left"])
def test_words_are_those_of_a_slow_loop(side: str) -> None:
    spelling, generator = make(), torch.Generator().manual_seed(0)
    ids = torch.randint(1, len(PIECES), (40, 12), generator=generator)
    mask = (torch.arange(12) < torch.randint(1, 13, (40, 1), generator=generator)).long()
    mask = mask.flip(1) if side == "left" else mask
    words = spelling.words(ids, mask)
    spelled = spelling(ids, mask, words)
    places = torch.arange(12.0).expand(40, 12)[..., None]
    for row in range(40):
        expected = slow(ids[row], mask[row])
        assert words.count_B[row] == len(expected)
        for number, (word, tokens) in enumerate(expected):
            letters = [258, *word.encode()[:7], 259]
            assert spelled[row, number].tolist() == letters + [260] * (9 - len(letters))
            assert words.take(places)[row, number] == tokens[0]
            assert (words.of_BT[row, tokens] == number).all()
            assert words.reversed(places)[row, number] == len(expected) - 1 - number
        assert (spelled[row, len(expected) :] == 260).all()
    assert torch.equal(words.reversed(words.reversed(places)), places)


def test_a_vocabulary_that_nobody_gave_is_spelled_by_numbers() -> None:
    spelling = Spelling(12, 6)
    spelling.reset_parameters()
    ids = torch.tensor([[3, 11]])
    words = spelling.words(ids, torch.ones_like(ids))
    assert spelling(ids, torch.ones_like(ids), words)[0, 1].tolist() == [258, 49, 49, 259, 260, 260]
