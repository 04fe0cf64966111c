"""The encoder in the box: its tokenizer knows all English text, its shape has layers to mix."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedTokenizerBase

import bermo
from bermo.data.sentences import TASKS, generate

BOX = Path(bermo.__file__).parent / "box"

ENGLISH = [
    "It was the best of times, it was the worst of times; it was the age of wisdom...",
    "Pruned to 10.5% in 2026: F1 = 88.31 (see p. 42, §3) -- not bad, eh?!",
    "E-mail jane_doe+test@example.org; cost: $1,299.99 & £5/€6 [approx.] {x|y} ~ <z> ^2 `code` #1 \\n",
    "“Naïve” café‑goers’ résumés — 25°C ± 2 × 3 ÷ 4 … • © ® ™ x² ≤ ½ «Æsir» Straße → ¿qué?",
    "QUICK BROWN FOXES JUMPED; zyzzyva, syzygy, xylophones' rhythms.",
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(BOX)


@pytest.mark.parametrize("text", ENGLISH)
def test_english_text_gives_no_unknown_token(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]


@pytest.mark.parametrize("task", sorted(TASKS))
def test_generated_words_are_a_stem_and_at_most_one_ending(
    tokenizer: PreTrainedTokenizerBase, task: str
) -> None:
    found = {word.strip(".,") for item in generate(task, 2000, seed=1) for word in item.text.split()}
    for word in found:
        stem, *rest = tokenizer.tokenize(word)
        assert rest in ([], ["##s"], ["##es"], ["##d"], ["##ed"]), word
        assert len(stem) > 1 or word.lower() == "a"


def test_text_comes_back_in_lower_case(tokenizer: PreTrainedTokenizerBase) -> None:
    text = "The mothers near Zanzibar rescued 17 quokkas, luckily."
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text.lower()


def test_special_tokens_frame_a_text_and_pad_is_zero(tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer.convert_tokens_to_ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]) == [*range(5)]
    batch = tokenizer(["A dog.", "A dog sleeps near the lake."], padding=True)
    short = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
    assert short[:5] == ["[CLS]", "a", "dog", ".", "[SEP]"]
    assert set(short[5:]) == {"[PAD]"}
    assert sum(batch["attention_mask"][0]) == 5
    assert tokenizer.tokenize("a [MASK] dog") == ["a", "[MASK]", "dog"]


def test_pairs_get_segment_ids(tokenizer: PreTrainedTokenizerBase) -> None:
    pair = tokenizer("A dog.", "Two cats.")
    pieces = tokenizer.convert_ids_to_tokens(pair["input_ids"])
    # A vocabulary made from text may hold "cats" whole.
    assert pieces[:6] == ["[CLS]", "a", "dog", ".", "[SEP]", "two"]
    assert "".join(pieces[6:]).replace("##", "") == "cats.[SEP]"
    assert pair["token_type_ids"] == [0] * 5 + [1] * (len(pieces) - 5)


def test_shape_fits_the_tokenizer_and_has_at_least_six_layers(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    config = AutoConfig.from_pretrained(BOX)
    assert config.vocab_size == len(tokenizer)
    assert config.max_position_embeddings == tokenizer.model_max_length
    assert config.num_hidden_layers >= 6
    model = AutoModel.from_config(config).eval()
    inputs = tokenizer("The dog sleeps.", return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
    assert len(states) == config.num_hidden_layers + 1


def test_the_tokenizer_file_is_small() -> None:
    assert (BOX / "tokenizer.json").stat().st_size < 300_000
