"""The words of a row and their characters, put together from the pieces of a tokenizer.

    pieces   [CLS]  the  fer  ##ri  ##tin  [SEP]
    words    0      1    2    2     2      3
    spelled  <S>    the  ferritin          </S>     bytes of UTF-8, a mark before and behind each word

A piece may be any part of a word, so a word that the vocabulary lacks is read by its characters like any
other: which pieces it was cut into changes nothing. All shapes follow from those of the ids alone.

Character ids are those of the released ELMo: 0 to 255 are bytes, then begin and end of a sentence, begin and
end of a word, and what fills a word up. Axes: B rows, T tokens (and as many places for words), C characters
of a word, M of a piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, NO_CHARACTER = range(256, 261)
NUM_CHARACTERS = 261
STARTS, INSIDE, ALONE = range(3)
"""What a piece does: it starts a word, goes on with one, or is a special token and stands alone."""


@dataclass(frozen=True)
class Words:
    """Where the words of each row are; places after the last word stand for no word."""

    of_BT: Tensor
    """The word that a token is a piece of."""
    first_BT: Tensor
    """The token that each word starts with."""
    count_B: Tensor

    def take(self, tokens_BTD: Tensor) -> Tensor:
        """Return the vector of each word: that of its first token."""
        return _take(tokens_BTD, self.first_BT)

    def spread(self, words_BTD: Tensor) -> Tensor:
        """Give each token the vector of its word."""
        return _take(words_BTD, self.of_BT)

    def reversed(self, words_BTD: Tensor) -> Tensor:
        """Put the words of each row in opposite order; given twice, they stand as before."""
        place_T = torch.arange(words_BTD.shape[1], device=words_BTD.device)
        last_B = self.count_B[:, None] - 1
        return _take(words_BTD, torch.where(place_T <= last_B, last_B - place_T, place_T))


def _take(vectors_BTD: Tensor, places_BT: Tensor) -> Tensor:
    return vectors_BTD.gather(1, places_BT[..., None].expand(-1, -1, vectors_BTD.shape[-1]))


class Spelling(nn.Module):
    """A vocabulary's pieces as characters, in buffers that are saved with the weights.

    Until a vocabulary is given by `set_`, the piece of each id is its number in digits.
    """

    def __init__(self, num_pieces: int, num_characters: int) -> None:
        super().__init__()
        self.num_characters = num_characters
        room = num_characters - 2
        self.register_buffer("characters_VM", torch.zeros(num_pieces, room, dtype=torch.int16))
        self.register_buffer("length_V", torch.zeros(num_pieces, dtype=torch.int16))
        self.register_buffer("kind_V", torch.zeros(num_pieces, dtype=torch.int8))
        self.characters_VM: Tensor
        self.length_V: Tensor
        self.kind_V: Tensor

    def reset_parameters(self) -> None:
        """Spell each piece as its number."""
        numbers = [list(str(number).encode()) for number in range(len(self.length_V))]
        self.set_(numbers, [STARTS] * len(numbers))

    def set_(self, pieces: Sequence[Sequence[int]], kinds: Sequence[int]) -> None:
        """Take over what each piece is made of, and what it does; longer pieces are cut."""
        room = self.characters_VM.shape[1]
        self.characters_VM.fill_(NO_CHARACTER)
        for index, piece in enumerate(pieces):
            cut = list(piece[:room])
            self.characters_VM[index, : len(cut)] = torch.tensor(cut, dtype=torch.int16)
            self.length_V[index] = len(cut)
        self.kind_V.copy_(torch.tensor(list(kinds), dtype=torch.int8))

    def words(self, ids_BT: Tensor, mask_BT: Tensor) -> Words:
        """Find the words; padding belongs to none."""
        is_token_BT, kind_BT = mask_BT.bool(), self.kind_V[ids_BT]
        is_piece_BT = is_token_BT & (kind_BT != ALONE)
        has_before_BT = torch.cat([torch.zeros_like(is_piece_BT[:, :1]), is_piece_BT[:, :-1]], dim=1)
        starts_BT = is_token_BT & ~((kind_BT == INSIDE) & has_before_BT)
        number_BT = starts_BT.cumsum(1) - 1
        length = ids_BT.shape[1]
        place_BT = torch.arange(length, device=ids_BT.device).expand_as(ids_BT)
        # What starts no word is written behind the last place, and cut off.
        target_BT = torch.where(starts_BT, number_BT, length)
        first = place_BT.new_zeros(len(ids_BT), length + 1).scatter(1, target_BT, place_BT)
        return Words(number_BT.clamp(min=0), first[:, :length], number_BT[:, -1] + 1)

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, words: Words) -> Tensor:
        """Return the characters of each word, (B, T, C)."""
        size, room = self.num_characters, self.num_characters - 2
        length_BT = self.length_V[ids_BT].long() * mask_BT
        before_BT = length_BT.cumsum(1) - length_BT
        first_of_BT = words.first_BT.gather(1, words.of_BT)
        offset_BT = before_BT - before_BT.gather(1, first_of_BT)
        step_M = torch.arange(self.characters_VM.shape[1], device=ids_BT.device)
        column_BTM = offset_BT[..., None] + step_M
        is_read_BTM = (step_M < length_BT[..., None]) & (column_BTM < room)
        num_rows, length = ids_BT.shape
        trash = length * size
        index_BTM = torch.where(is_read_BTM, words.of_BT[..., None] * size + 1 + column_BTM, trash)
        flat = torch.full((num_rows, trash + 1), NO_CHARACTER, dtype=torch.long, device=ids_BT.device)
        flat = flat.scatter(1, index_BTM.flatten(1), self.characters_VM[ids_BT].long().flatten(1))
        spelled_BTC = flat[:, :trash].view(num_rows, length, size)
        total_BT = length_BT.new_zeros(num_rows, length).scatter_add(1, words.of_BT, length_BT)
        return _marked(spelled_BTC, total_BT.clamp(max=room), words.count_B)


def _marked(spelled_BTC: Tensor, total_BT: Tensor, count_B: Tensor) -> Tensor:
    """Put the marks around each word."""
    place_T, column_C = (torch.arange(n, device=spelled_BTC.device) for n in spelled_BTC.shape[1:])
    is_word_BT1 = (place_T < count_B[:, None])[..., None]
    spelled_BTC = torch.where(is_word_BT1 & (column_C == 0), BEGIN_WORD, spelled_BTC)
    return torch.where(is_word_BT1 & (column_C == total_BT[..., None] + 1), END_WORD, spelled_BTC)
