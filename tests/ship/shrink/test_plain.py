"""Plain models of transformers with the words of some texts only: the same bits, loaded by stock classes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import bermo
from bermo.cli import main
from bermo.encoders.sentence import SentenceSettings, write_settings
from bermo.errors import BermoError
from tests.tiny import make_config, make_tokenizer

CORPUS = [
    "the cats sees a good film",
    "bad dogs saw the films",
    "walking and talking, singing and ringing",
    "eine Zeitung der unglaublichen Art",
    "un film très bon et une chanson",
] * 3
MINE = ["the good film", "a singing dog"]
OTHERS = ["talking Zeitungen", "chansons très bonnes", "xyz 17 €"]
FAMILIES = {"wordpiece": "bert", "bpe": "roberta", "unigram": "xlm-roberta"}


def own_tokenizer(kind: str) -> PreTrainedTokenizerBase:
    """Train a tokenizer of transformers' own class for a family."""
    options: dict[str, Any] = {"vocab_size": 160, "show_progress": False}
    match kind:
        case "wordpiece":
            special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
            trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
            trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            trained.train_from_iterator(CORPUS, trainers.WordPieceTrainer(special_tokens=special, **options))
            return transformers.BertTokenizer(vocab=trained.get_vocab())
        case "bpe":
            special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
            trained = Tokenizer(models.BPE())
            trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(
                special_tokens=special, initial_alphabet=alphabet, **{**options, "vocab_size": 400}
            )
            trained.train_from_iterator(CORPUS, trainer)
            state = _state(trained)
            merges = [tuple(pair) for pair in state["model"]["merges"]]
            return transformers.RobertaTokenizer(vocab=state["model"]["vocab"], merges=merges)
        case _:
            special = ["<s>", "<pad>", "</s>", "<unk>"]
            trained = Tokenizer(models.Unigram())
            trained.pre_tokenizer = pre_tokenizers.Metaspace()
            trainer = trainers.UnigramTrainer(special_tokens=special, unk_token="<unk>", **options)
            trained.train_from_iterator(CORPUS, trainer)
            vocab = [tuple(item) for item in _state(trained)["model"]["vocab"]]
            return transformers.XLMRobertaTokenizer(vocab=[*vocab, ("<mask>", 0.0)])


def _state(tokenizer: Tokenizer) -> dict[str, Any]:
    return dict(json.loads(tokenizer.to_str()))


def make(kind: str, folder: Path, name: str = "Model") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    tokenizer = own_tokenizer(kind)
    config = make_config(FAMILIES[kind])
    config.vocab_size = len(tokenizer) + 8  # models often have more rows than words
    for key in ("pad", "bos", "eos"):
        setattr(config, f"{key}_token_id", getattr(tokenizer, f"{key}_token_id"))
    torch.manual_seed(0)
    family = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}[FAMILIES[kind]]
    model = getattr(transformers, family + name)(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def hidden(folder: Path, texts: list[str]) -> torch.Tensor:
    """Ask stock transformers."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(**tokenizer(texts, padding=True, return_tensors="pt")).last_hidden_state


def shrink(folder: Path, out: Path, texts: list[str]) -> int:
    words = out.parent / "words.txt"
    words.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return main(["shrink", str(folder), "--vocabulary", str(words), "--out", str(out)])


@pytest.mark.parametrize("kind", FAMILIES)
def test_an_encoder_without_a_head_keeps_its_bits(kind: str, tmp_path: Path) -> None:
    _, tokenizer = make(kind, tmp_path / "plain")
    assert shrink(tmp_path / "plain", tmp_path / "small", MINE) == 0
    assert torch.equal(hidden(tmp_path / "small", MINE), hidden(tmp_path / "plain", MINE))
    small = AutoTokenizer.from_pretrained(tmp_path / "small")
    assert len(small) < len(tokenizer)
    assert AutoModel.from_pretrained(tmp_path / "small").config.vocab_size == len(small)
    assert small.special_tokens_map == tokenizer.special_tokens_map
    for text in OTHERS:  # nothing becomes unknown, for every letter or byte is still there
        unknown = [t.tokenize(text).count(t.unk_token) for t in (tokenizer, small)]
        assert unknown[1] <= unknown[0]


def test_an_encoder_that_was_saved_without_its_pooler_keeps_its_bits(tmp_path: Path) -> None:
    model, _ = make("wordpiece", tmp_path / "plain")
    model.pooler = None
    model.save_pretrained(tmp_path / "plain")
    assert shrink(tmp_path / "plain", tmp_path / "small", MINE) == 0
    assert torch.equal(hidden(tmp_path / "small", MINE), hidden(tmp_path / "plain", MINE))


@pytest.mark.parametrize("name", ["ForSequenceClassification", "ForMaskedLM"])
def test_heads_come_along(name: str, tmp_path: Path) -> None:
    model, tokenizer = make("unigram", tmp_path / "plain", name)
    assert shrink(tmp_path / "plain", tmp_path / "small", MINE) == 0
    small = type(model).from_pretrained(tmp_path / "small").eval()
    words = AutoTokenizer.from_pretrained(tmp_path / "small")
    with torch.no_grad():
        before = model(**tokenizer(MINE, padding=True, return_tensors="pt")).logits
        after = small(**words(MINE, padding=True, return_tensors="pt")).logits
    if name == "ForMaskedLM":
        before = before[..., [tokenizer.convert_tokens_to_ids(word) for word in _words(words)]]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


def _words(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    return [tokenizer.convert_ids_to_tokens(number) for number in range(len(tokenizer))]


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_sentence_encoder_keeps_its_bits_and_its_modules(kind: str, tmp_path: Path) -> None:
    model, _ = make(kind, tmp_path / "plain")
    write_settings(tmp_path / "plain", SentenceSettings(pooling="mean"), model.config.hidden_size)
    assert shrink(tmp_path / "plain", tmp_path / "small", MINE) == 0
    assert torch.equal(hidden(tmp_path / "small", MINE), hidden(tmp_path / "plain", MINE))
    for name in ("modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "small" / name).is_file()


def test_half_precision_stays_half_precision(tmp_path: Path) -> None:
    model, _ = make("wordpiece", tmp_path / "full")
    model.bfloat16().save_pretrained(tmp_path / "plain")
    AutoTokenizer.from_pretrained(tmp_path / "full").save_pretrained(tmp_path / "plain")
    assert shrink(tmp_path / "plain", tmp_path / "small", MINE) == 0
    assert AutoModel.from_pretrained(tmp_path / "small", dtype="auto").dtype == torch.bfloat16


def test_a_function_cuts_a_model_in_memory(tmp_path: Path) -> None:
    model, tokenizer = make("bpe", tmp_path / "plain")
    small, words = bermo.cut_vocabulary(model, tokenizer, MINE)
    with torch.no_grad():
        before = model(**tokenizer(MINE, padding=True, return_tensors="pt")).last_hidden_state
        after = small(**words(MINE, padding=True, return_tensors="pt")).last_hidden_state
    assert torch.equal(after, before)
    assert model.config.vocab_size > small.config.vocab_size


def test_a_tokenizer_of_another_model_and_one_of_whole_words_are_refused(tmp_path: Path) -> None:
    model, tokenizer = make("bpe", tmp_path / "plain")
    config = make_config("roberta")
    config.vocab_size = 20
    with pytest.raises(BermoError, match="Give the tokenizer that belongs to the model"):
        bermo.cut_vocabulary(transformers.RobertaModel(config), tokenizer, MINE)
    with pytest.raises(BermoError, match="WordLevel"):
        bermo.cut_vocabulary(model, make_tokenizer(), MINE)
