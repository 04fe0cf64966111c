"""Words of one's own are one piece each in any tokenizer, and everything else is cut as before."""

from pathlib import Path

import pytest
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from bermo.data.pretrain.corpus import read_pieces
from bermo.data.pretrain.own_words import with_words
from bermo.data.pretrain.vocabulary import count_words, make_tokenizer, make_vocabulary
from bermo.encoders.backbone import load_tokenizer

TEXTS = ["The patient had a low level of iron.", "A covid test came back; ferns grew.", "Zinc was fine."]
WORDS = ["Ferritin", "ferritin", "covid-19", "patient", "##emia"]


def wordpiece() -> PreTrainedTokenizerFast:
    return make_tokenizer(make_vocabulary(count_words(TEXTS), 340, ["patient"]), 64)


def bytelevel() -> PreTrainedTokenizerFast:
    backend = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend.train_from_iterator(TEXTS, vocab_size=300, special_tokens=special, show_progress=False)
    names = ("cls", "pad", "sep", "unk", "mask")
    tokens = {f"{name}_token": token for name, token in zip(names, special, strict=True)}
    return PreTrainedTokenizerFast(tokenizer_object=backend._tokenizer, **tokens)


def test_a_word_is_a_piece_whose_endings_follow_it(tmp_path: Path) -> None:
    before = wordpiece()
    extended = with_words(before, WORDS)
    extended.tokenizer.save_pretrained(tmp_path)
    for after in (extended.tokenizer, load_tokenizer(tmp_path)):
        assert after.tokenize("Ferritin ferritins patient") == ["ferritin", "ferritin", "##s", "patient"]
        assert after.tokenize("a covid-19 test") == [
            *before.tokenize("a"),
            "covid-19",
            *before.tokenize("test"),
        ]
        assert "covid-19" not in after.tokenize("covid-194")
        assert after.tokenize("leukemia")[-1] == "##emia"
        assert len(after) == len(before) + 3
        for text in TEXTS:
            assert after(text)["input_ids"] == before(text)["input_ids"]
    cuts = {extended.tokenizer.convert_ids_to_tokens(new): old for new, old in extended.cuts.items()}
    assert set(cuts) == {"ferritin", "covid-19", "##emia"}
    assert before.convert_ids_to_tokens(cuts["ferritin"]) == before.tokenize("ferritin")


def test_a_tokenizer_of_bytes_takes_a_word_with_the_blank_before_it(tmp_path: Path) -> None:
    before = bytelevel()
    extended = with_words(before, ["ferritin", "covid-19"])
    extended.tokenizer.save_pretrained(tmp_path)
    after = load_tokenizer(tmp_path)
    text = "A test of ferritin and covid-19, not ferritins."
    pieces = after.convert_ids_to_tokens(after(text)["input_ids"])
    assert pieces.count("ferritin") == pieces.count("covid-19") == 1
    assert pieces[pieces.index("ferritin") + 1].startswith("Ġ")
    known = read_pieces(after)
    for word in ("ferritin", "covid-19"):
        assert not known.is_inside[after.convert_tokens_to_ids(word)]
    for other in TEXTS:
        assert after(other)["input_ids"] == before(other)["input_ids"]


@pytest.mark.parametrize("tokenizer", [wordpiece(), bytelevel()], ids=["wordpiece", "bytelevel"])
def test_without_a_new_word_nothing_changes(tokenizer: PreTrainedTokenizerBase) -> None:
    extended = with_words(tokenizer, [])
    assert extended.cuts == {}
    assert extended.tokenizer.get_vocab() == tokenizer.get_vocab()
