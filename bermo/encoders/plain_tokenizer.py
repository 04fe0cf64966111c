"""A tokenizer as rows are read by it: its backend, and the few facts that stand beside it.

plain(tokenizer) -> PlainTokenizer              of a tokenizer of transformers
PlainTokenizer(read_backend(folder), facts)     of tokenizer.json alone; transformers is not imported
facts_in_file(folder, tokenizer) -> facts       where both give the same tokenizer, else None
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, cast

from tokenizers import Tokenizer

from bermo.encoders.failures import loading
from bermo.errors import BermoError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

AnyTokenizer: TypeAlias = Union["PlainTokenizer", "PreTrainedTokenizerBase"]
Side = Literal["left", "right"]
BACKEND_FILE = "tokenizer.json"
OF_A_CALL = ("truncation", "padding")
"""What each call sets in a backend: arguments, not what the tokenizer is."""


@dataclass(frozen=True, kw_only=True)
class TokenizerFacts:
    """What a tokenizer's class and its other files add to its backend."""

    max_length: float
    """The tokens of a text that the tokenizer, or the encoder beside it, reads at most."""
    padding_side: Side
    truncation_side: Side
    pad_id: int
    """The padding token, or for a family without one any token: the mask hides it."""
    pad_segment: int
    classifier_id: int | None
    unknown_id: int | None
    special_ids: tuple[int, ...]
    splits_special: bool
    """Whether the name of a special token in a text is read as any other text."""


@dataclass(frozen=True, eq=False)
class PlainTokenizer:
    """A fast tokenizer without transformers: `backend` is one of the tokenizers' library."""

    backend: Any
    facts: TokenizerFacts


def plain(tokenizer: AnyTokenizer) -> PlainTokenizer:
    """Return what reads rows; a slow tokenizer is refused."""
    if isinstance(tokenizer, PlainTokenizer):
        return tokenizer
    if not tokenizer.is_fast:
        raise BermoError(
            f"{type(tokenizer).__name__} is a slow tokenizer, but one with a tokenizer.json is needed."
            " Load the tokenizer from a folder that holds tokenizer.json."
        )
    return PlainTokenizer(tokenizer.backend_tokenizer, facts_of(tokenizer))


def facts_of(tokenizer: AnyTokenizer) -> TokenizerFacts:
    """Return the facts of any tokenizer."""
    if isinstance(tokenizer, PlainTokenizer):
        return tokenizer.facts
    pads = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return TokenizerFacts(
        max_length=tokenizer.model_max_length,
        padding_side=cast(Side, tokenizer.padding_side),
        truncation_side=cast(Side, tokenizer.truncation_side),
        pad_id=next(int(token) for token in pads if token is not None),
        pad_segment=tokenizer.pad_token_type_id,
        classifier_id=tokenizer.cls_token_id,
        unknown_id=tokenizer.unk_token_id,
        special_ids=tuple(tokenizer.all_special_ids),
        splits_special=bool(getattr(tokenizer, "split_special_tokens", False)),
    )


def read_backend(folder: Path) -> Any:
    """Read the backend of a tokenizer from its own file."""
    with loading("tokenizer", folder):
        return Tokenizer.from_file(str(folder / BACKEND_FILE))


def facts_in_file(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> TokenizerFacts | None:
    """Return the facts of a folder's tokenizer where its backend is what tokenizer.json alone gives: a class
    of transformers may change it when it loads.
    """
    if not tokenizer.is_fast or not (folder / BACKEND_FILE).is_file():
        return None
    is_same = backend_content(read_backend(folder)) == backend_content(tokenizer.backend_tokenizer)
    return facts_of(tokenizer) if is_same else None


def backend_content(backend: Any) -> dict[str, Any]:
    """Return what a backend is, whatever was called before."""
    content: dict[str, Any] = json.loads(backend.to_str())
    return {name: value for name, value in content.items() if name not in OF_A_CALL}
