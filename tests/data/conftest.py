"""Tiny tokenizers, built here, for the tests of `data/`."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (
    "a",
    "the",
    "cat",
    "dog",
    "sees",
    "saw",
    "old",
    "big",
    "red",
    "house",
    "in",
    "is",
    "who",
    "what",
    "play",
    "##ing",
    "##s",
    "berlin",
    "germany",
    "mark",
    "lives",
    ".",
    ",",
    "?",
    "one",
    "two",
    "three",
)

MakeTokenizer = Callable[..., PreTrainedTokenizerFast]


def _make(
    words: Iterable[str] = WORDS, lowercase: bool = True, padding_side: str = "right"
) -> PreTrainedTokenizerFast:
    vocabulary = {word: place for place, word in enumerate((*SPECIALS, *words))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
    if padding_side == "left":
        single, pair = "$A [SEP] [CLS]:2", "$A [SEP] $B:1 [SEP]:1 [CLS]:2"
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side=padding_side,
        model_max_length=512,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


@pytest.fixture
def make_tokenizer() -> MakeTokenizer:
    """Return a maker of WordPiece tokenizers over a few words."""
    return _make


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Return an uncased tokenizer that lower-cases."""
    return _make()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a writer of small files."""

    def writer(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    return writer
