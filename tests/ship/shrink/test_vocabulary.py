"""A smaller vocabulary: the same pieces for the user's texts, nothing newly unknown, the same logits."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

import bermo
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.ship.shrink.vocabulary import cut_embeddings_, cut_tokenizer, plan_cut
from tests.tiny import make_config, make_tokenizer

CORPUS = [
    "the cats sees a good film",
    "bad dogs saw the films",
    "walking and talking, singing and ringing",
    "a newspaper of the unbelievable kind",
    "undo the unkind thing",
] * 3
MINE = ["the unkind film", "a singing dog"]
OTHERS = ["talking newspapers", "believable cats", "xyz walking-dogs unseen"]
SPECIAL = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"]


def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    options = {"vocab_size": 150, "special_tokens": SPECIAL, "show_progress": False}
    match kind:
        case "wordpiece":
            tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
            trainer = trainers.WordPieceTrainer(**options)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        case "bpe":
            tokenizer = Tokenizer(models.BPE())
            trainer = trainers.BpeTrainer(
                **{**options, "vocab_size": 400},
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            )
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        case _:
            tokenizer = Tokenizer(models.Unigram())
            trainer = trainers.UnigramTrainer(**options, unk_token="<unk>")
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.train_from_iterator(CORPUS, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("<cls>", "<sep>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<cls> $A <sep>", pair="<cls> $A <sep> $B:1 <sep>:1", special_tokens=ids
    )
    names = ("pad", "unk", "cls", "sep", "mask")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": f"<{name}>" for name in names}
    )


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_texts_keep_their_pieces_and_other_texts_get_no_new_unknowns(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind)
    cut = plan_cut(tokenizer, make_config("bert"), MINE)
    assert len(cut.ids) < cut.old_size
    small = cut_tokenizer(tokenizer, cut, tmp_path, MINE)
    assert len(small) == len(cut.ids)
    for text in MINE:
        assert small.tokenize(text) == tokenizer.tokenize(text)
    for text in OTHERS + CORPUS:
        unknown = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]).count("<unk>")
        assert small.convert_ids_to_tokens(small(text)["input_ids"]).count("<unk>") <= unknown
        assert _plain(small, text) == _plain(tokenizer, text)
    assert [small.convert_tokens_to_ids(token) for token in SPECIAL] == sorted(small.all_special_ids)
    pair = small("the film", "a dog")["input_ids"]
    assert small.convert_ids_to_tokens(pair).count("<sep>") == 2


def _plain(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """The letters of a text's pieces, without the marks of where words begin or go on."""
    pieces = (piece.removeprefix("##").strip("Ġ▁") for piece in tokenizer.tokenize(text))
    return "".join(pieces)


@pytest.mark.parametrize("kind", [bermo.BermoForSequenceClassification, bermo.BermoForMaskedLM])
@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_the_model_gives_the_same_logits_for_the_new_numbers(family: str, kind: type, tmp_path: Path) -> None:
    tokenizer = tokenizer_of("wordpiece")
    config = make_config(family)
    config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
    torch.manual_seed(0)
    model = kind.from_backbone(config)
    cut = plan_cut(tokenizer, config, MINE)
    small_tokenizer = cut_tokenizer(tokenizer, cut, tmp_path, MINE)
    batch = tokenizer(MINE, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        before = model(**batch).logits
    cut_embeddings_(model, cut)
    model.save_pretrained(tmp_path)
    again = kind.from_pretrained(tmp_path)
    batch = small_tokenizer(MINE, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        after = again(**batch).logits
    if kind is bermo.BermoForMaskedLM:
        before = before[..., list(cut.ids)]
    torch.testing.assert_close(after, before)
    assert again.config.vocab_size == len(cut.ids)


def test_the_box_reads_english_with_a_tenth_of_its_words(tmp_path: Path) -> None:
    tokenizer = load_tokenizer("box")
    cut = plan_cut(tokenizer, make_config("bert"), MINE)
    small = cut_tokenizer(tokenizer, cut, tmp_path, MINE)
    assert len(cut.ids) < 0.2 * cut.old_size
    assert small.unk_token not in small.tokenize("Quite another sentence: 17 zebras (or so)!")


def test_whole_words_cannot_be_cut() -> None:
    with pytest.raises(BermoError, match="WordLevel"):
        plan_cut(make_tokenizer(), make_config("bert"), MINE)
