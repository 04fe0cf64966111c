"""A vocabulary from counted words: the merges of the obvious slow way, the same bytes every time."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from bermo.data.pretrain import vocabulary
from bermo.data.pretrain.vocabulary import (
    SPECIALS,
    _alphabet,
    add_counts_,
    count_words,
    make_tokenizer,
    make_vocabulary,
)
from bermo.errors import BermoError

TEXT = (
    "The cats sat on the mats, and the bats chatted. A hat is flatter than that platter! "
    "She sells sea shells on the sea shore; the shells she sells are sea shells. Café – naïve."
)
COUNTS = count_words([TEXT] * 3 + ["the theatre then there"])
SIZE = len(SPECIALS) + len(_alphabet(COUNTS)) + 40


def slow_merges(counts: Counter[str], number: int) -> list[str]:
    """Count all pairs anew before each merge."""
    words = {word: [word[0], *(f"##{letter}" for letter in word[1:])] for word in counts}
    merged: list[str] = []
    while len(merged) < number:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        piece = best[0] + best[1][2:]
        if piece not in merged:
            merged.append(piece)
        for word, pieces in words.items():
            place = 0
            while place < len(pieces) - 1:
                if (pieces[place], pieces[place + 1]) == best:
                    words[word] = pieces = [*pieces[:place], piece, *pieces[place + 2 :]]
                place += 1
    return merged


def test_merges_are_those_of_counting_anew_each_time() -> None:
    found = list(make_vocabulary(COUNTS, SIZE))[-40:]
    assert found == slow_merges(COUNTS, 40)


def test_words_are_counted_as_the_tokenizer_cuts_them() -> None:
    tokenizer = make_tokenizer(make_vocabulary(COUNTS, SIZE), 64)
    backend = tokenizer._tokenizer
    pieces = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(TEXT))
    assert count_words([TEXT]) == Counter(piece for piece, _ in pieces)


def test_another_process_makes_the_same_vocabulary() -> None:
    """Python's hashes of strings differ between processes; the vocabulary must not."""
    code = (
        "import sys; sys.argv = ['bermo'];"  # as the command does: no models are registered
        "from bermo.data.pretrain.vocabulary import count_words, make_vocabulary;"
        f"print(list(make_vocabulary(count_words([{TEXT!r}] * 3), {SIZE})))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    here = make_vocabulary(count_words([TEXT] * 3), SIZE)
    assert answer.stdout.strip() == str(list(here))


def test_given_words_are_whole_and_no_english_is_unknown() -> None:
    tokenizer = make_tokenizer(make_vocabulary(COUNTS, SIZE, ["zebra", "##ish"]), 64)
    assert tokenizer.tokenize("Zebraish zebra") == ["zebra", "##ish", "zebra"]
    assert tokenizer.unk_token_id not in tokenizer("Quick! £5 & naïve “x²”…")["input_ids"]


def test_a_vocabulary_without_room_is_refused() -> None:
    with pytest.raises(BermoError, match="has no room"):
        make_vocabulary(COUNTS, 200, [f"w{k}" for k in range(50)])


def test_where_words_become_too_many_the_rarest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counter({"often": 5, "twice": 2, "once": 1})
    add_counts_(counts, {"once": 1, "new": 1})
    assert counts == {"often": 5, "twice": 2, "once": 2, "new": 1}
    monkeypatch.setattr(vocabulary, "MAX_DIFFERENT", 2)
    add_counts_(counts, {"twice": 1})
    assert counts == {"often": 5, "twice": 3}


def test_a_word_without_end_is_kept_by_its_first_letters() -> None:
    counts = count_words(["a" * 5000 + " b", "a" * 6000])
    assert counts == {"a" * vocabulary.LONGEST_KEPT: 2, "b": 1}
