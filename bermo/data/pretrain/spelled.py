"""The pieces of a vocabulary as characters that ELMo reads, and what each piece does in a word."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from bermo.errors import BermoError
from bermo.nn.spelling import ALONE, BEGIN_TEXT, END_TEXT, INSIDE, STARTS

CONTINUES = "##"


@dataclass(frozen=True)
class Spelled:
    """For each id, the characters of its piece and what the piece does."""

    pieces: list[list[int]]
    kinds: list[int]


def spell(tokenizer: PreTrainedTokenizerBase) -> Spelled:
    """Spell the pieces of a WordPiece vocabulary; those of another kind are no parts of a word's letters."""
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    if not any(name.startswith(CONTINUES) for name in names):
        raise BermoError(
            "ELMo needs a WordPiece vocabulary, whose pieces are letters of words, and this tokenizer has no"
            ' piece that starts with "##". Leave --tokenizer out, and one is made from the text.'
        )
    inside = [name.startswith(CONTINUES) and len(name) > len(CONTINUES) for name in names]
    pieces = [list(name.encode()[2 * is_in :]) for name, is_in in zip(names, inside, strict=True)]
    kinds = [INSIDE if is_in else STARTS for is_in in inside]
    for index in tokenizer.all_special_ids:
        kinds[index] = ALONE
    # An unknown or masked word is read as the letters of its special token.
    pieces[tokenizer.cls_token_id], pieces[tokenizer.sep_token_id] = [BEGIN_TEXT], [END_TEXT]
    pieces[tokenizer.pad_token_id] = []
    return Spelled(pieces, kinds)
