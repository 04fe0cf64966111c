"""A student's words and its teacher's are the same stretches of text, whatever the two tokenizers are."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from bermo.data.pretrain import documents, writing
from bermo.data.pretrain.corpus import Corpus, load_corpus
from bermo.data.pretrain.masking import Masker
from bermo.data.pretrain.packing import PackedBatches, Stream
from bermo.data.pretrain.taught import IDS, MASK, OWN_WORDS, WORDS, TaughtBatches
from bermo.data.pretrain.vocabulary import count_words, make_tokenizer, make_vocabulary
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.pretrain_spec import TextSpec

DOCUMENTS = [
    "The waitress wouldn't serve café crème, and nobody — not even Zoë — asked why; they'd walked.",
    "Unbelievable prices: $3.50 for a “small” cup (250ml). The unhappiest customers re-ordered it.",
    "Ünwillkommen visitors went away 東京 quickly. Others stayed on, overwhelmed by kindness!",
    "A short one.",
] * 3


def wordpiece(size: int) -> PreTrainedTokenizerFast:
    return make_tokenizer(make_vocabulary(count_words(DOCUMENTS), size), 64)


def bytelevel() -> PreTrainedTokenizerFast:
    backend = ByteLevelBPETokenizer()
    backend.train_from_iterator(
        DOCUMENTS, vocab_size=330, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False
    )
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend._tokenizer, **names)


def load(folder: Path, teacher: PreTrainedTokenizerBase) -> Corpus:
    (folder / "text.txt").write_text("\n\n".join(DOCUMENTS), encoding="utf-8")
    teacher.save_pretrained(folder / "teacher")
    spec = TextSpec(
        files=(str(folder / "text.txt"),),
        vocabulary=360,
        length=24,
        held_out=0.25,
        cache=str(folder / "cache"),
    )
    return load_corpus(spec, 64, lambda sentence: None, str(folder / "teacher"))


def taught(corpus: Corpus, length: int) -> TaughtBatches:
    masker = Masker(corpus.pieces, "token", 0.15, 1)
    packed = PackedBatches(Stream(corpus.train, corpus.pieces, 24, 1), masker, 4, 1)
    assert corpus.frame is not None
    return TaughtBatches(packed, corpus.frame, length)


def slow_owners(document: str, own: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> list[int]:
    """The token of ours in which the last character of each of the teacher's tokens lies, searched for."""
    spans = own(document, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    owners = []
    for start, end in other(document, add_special_tokens=False, return_offsets_mapping=True)[
        "offset_mapping"
    ]:
        before = [k for k, (first, _) in enumerate(spans) if first <= max(start, end - 1)]
        owners.append(before[-1])
    return owners


@pytest.mark.parametrize("teacher", [wordpiece(420), bytelevel()], ids=["wordpiece", "bytelevel"])
@pytest.mark.parametrize("length", [40, 12])
def test_words_have_the_teachers_tokens_of_a_slow_search_by_characters(
    teacher: PreTrainedTokenizerBase, length: int, tmp_path: Path
) -> None:
    corpus = load(tmp_path, teacher)
    own, other = corpus.tokenizer, load_tokenizer(tmp_path / "teacher")
    stream: list[tuple[int, int]] = []
    start = 0
    for document in [d for k, d in enumerate(DOCUMENTS) if k % 4 != 3]:
        ids = other(document, add_special_tokens=False)["input_ids"]
        owners = slow_owners(document, own, other)
        size = len(own(document, add_special_tokens=False)["input_ids"])
        stream += [(token, start + owner) for token, owner in zip(ids, owners, strict=True)]
        stream.append((other.sep_token_id, start + size))
        start += size + 1
    batches = taught(corpus, length)
    rows = batches.epoch(1)[0]
    batch = {name: value.numpy() for name, value in batches.collate(rows).items()}
    ids_BT = batches.source.cut(rows)["input_ids"]
    for row, first in enumerate(batches.source.first(rows)):
        mine = [(token, owner) for token, owner in stream if first <= owner < first + 22][: length - 2]
        expected = [other.cls_token_id, *(token for token, _ in mine), other.sep_token_id]
        count = len(expected)
        assert batch[IDS][row].tolist() == expected + [other.pad_token_id] * (length - count)
        assert batch[MASK][row].tolist() == [1] * count + [0] * (length - count)
        words, last = [], -1
        for place, token in enumerate(ids_BT[row]):
            piece = own.convert_ids_to_tokens(int(token))
            special = piece in ("[CLS]", "[SEP]")
            follows = piece.startswith("##") and place > 1 and words[-1] >= 0
            last = -1 if special else last if follows else place
            words.append(last)
        assert batch[OWN_WORDS][row].tolist() == words
        theirs = [words[owner - first + 1] for _, owner in mine]
        assert batch[WORDS][row].tolist() == [-1, *theirs, *[-1] * (length - 1 - len(theirs))]


def test_a_teachers_tokenizer_that_cuts_long_texts_cuts_none_here(tmp_path: Path) -> None:
    teacher = wordpiece(420)
    whole = load(tmp_path, teacher).train.other
    teacher._tokenizer.enable_truncation(4)
    teacher._tokenizer.enable_padding(length=4)
    cut = load(tmp_path, teacher).train.other
    assert whole is not None
    assert cut is not None
    assert np.array_equal(whole.ids, cut.ids)
    assert np.array_equal(whole.owners, cut.owners)


@pytest.mark.usefixtures("warm_python")
def test_fragments_of_a_document_keep_their_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load(tmp_path, wordpiece(420)).train
    monkeypatch.setattr(documents, "LONGEST_FRAGMENT", 20)
    monkeypatch.setattr(writing, "ENCODED", 30)
    monkeypatch.setattr(
        "tests.data.pretrain.test_taught.DOCUMENTS", [d.replace(" ", "\n") for d in DOCUMENTS]
    )
    (tmp_path / "parts").mkdir()
    parts = load(tmp_path / "parts", wordpiece(420)).train
    assert np.array_equal(whole.ids, parts.ids)
    assert whole.other is not None
    assert parts.other is not None
    assert np.array_equal(whole.other.owners, parts.other.owners)


def test_a_tokenizer_without_a_frame_cannot_teach(tmp_path: Path) -> None:
    teacher = wordpiece(420)
    teacher.sep_token = None
    with pytest.raises(BermoError, match="cannot teach: its tokenizer lacks sep"):
        load(tmp_path, teacher)
