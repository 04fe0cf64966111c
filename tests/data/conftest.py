"""Tiny tokenizers and makers of features for the tests of `data/`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from bermo.data.features import Features, make_features
from bermo.data.load import own_task
from bermo.data.rows import Rows
from bermo.data.tasks import Task
from bermo.spec import DataSpec

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
    vocabulary = {word: index for index, word in enumerate((*SPECIALS, *words))}
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


OWN = own_task("classification")


@pytest.fixture
def make(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Callable[..., Features]:
    """Return a maker of features that caches in the test's folder."""

    def maker(
        rows: Rows,
        task: Task = OWN,
        labels: tuple[str, ...] = ("no", "yes"),
        by: PreTrainedTokenizerFast = tokenizer,
        has_segments: bool = True,
        **options: Any,
    ) -> Features:
        spec = DataSpec(cache=str(tmp_path), **options)
        return make_features(rows, task, labels, by, spec, has_segments)

    return maker
