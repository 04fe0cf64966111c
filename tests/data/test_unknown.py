"""Text that the tokenizer does not know is refused with its cause."""

from collections.abc import Callable

import pytest
from transformers import PreTrainedTokenizerFast

from bermo.data.features import Features
from bermo.data.rows import TextRows
from bermo.errors import BermoError

MakeTokenizer = Callable[..., PreTrainedTokenizerFast]
CASED = ["Mark Lives In Berlin", "The Old Dog", "A Cat Sees Germany", "THE BIG HOUSE"] * 5


def test_cased_text_on_an_uncased_vocabulary_is_refused_with_its_cause(
    make: Callable[..., Features], make_tokenizer: MakeTokenizer
) -> None:
    rows = TextRows(CASED, None, ["yes", "no"] * 10)
    assert make(rows).unknown_share == 0.0
    with pytest.raises(BermoError) as error:
        make(rows, by=make_tokenizer(lowercase=False))
    message = str(error.value)
    assert "100.0% of the tokens are unknown" in message
    assert "cased text on an uncased vocabulary: the tokenizer does not lower-case" in message
    assert '"Mark Lives In Berlin": unknown are Mark, Lives, In, Berlin' in message
    assert message.count("unknown are") == 3


def test_a_tokenizer_file_without_words_is_named(
    make: Callable[..., Features], make_tokenizer: MakeTokenizer
) -> None:
    with pytest.raises(BermoError, match="wrong tokenizer file: its vocabulary has 1 entries"):
        make(TextRows(CASED), by=make_tokenizer(words=["a"]))


def test_another_language_is_named(make: Callable[..., Features]) -> None:
    with pytest.raises(BermoError, match="another language or script"):
        make(TextRows(["das haus ist alt", "der hund"]))


def test_a_word_without_end_is_cut_in_the_message(make: Callable[..., Features]) -> None:
    with pytest.raises(BermoError) as error:
        make(TextRows(["x" * 100_000]))
    assert len(str(error.value)) < 500
    assert "xxx…" in str(error.value)


def test_the_limit_of_unknown_tokens_is_the_users(make: Callable[..., Features]) -> None:
    rows = TextRows(["the cat sees a zebra"])
    with pytest.raises(BermoError, match=r"20\.0% of the tokens are unknown.*at most 5\.0%"):
        make(rows)
    assert make(rows, max_unknown=0.2).unknown_share == pytest.approx(0.2)
