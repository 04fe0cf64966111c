"""Features equal tokenising row by row, for every kind of task."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bermo.data import features as features_module
from bermo.data.features import Features, fingerprint
from bermo.data.load import own_task
from bermo.data.rows import ChoiceRows, SpanRows, TaggedRows, TextRows
from bermo.data.tasks import find_task
from bermo.errors import BermoError

MakeTokenizer = Callable[..., PreTrainedTokenizerFast]


def _sequences(features: Features, values: Any) -> list[list[int]]:
    return [part.tolist() for part in np.split(np.asarray(values), features.starts[1:-1])]


@pytest.mark.parametrize("max_length", [8, 64])
def test_text_features_equal_tokenising_row_by_row(
    make: Callable[..., Features],
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
    max_length: int,
) -> None:
    monkeypatch.setattr(features_module, "CHUNK_ROWS", 2)
    first = ["The cat sees the dog.", "a dog", "playing cats in the old red house"]
    second = ["The old dog saw one.", "two", "in a big house"]
    rows = TextRows(first, second, ["yes", "no", "yes"])
    features = make(rows, max_length=max_length)
    one_by_one = [
        tokenizer(a, b, truncation="longest_first", max_length=max_length, return_token_type_ids=True)
        for a, b in zip(first, second, strict=True)
    ]
    whole = [len(tokenizer(a, b)["input_ids"]) for a, b in zip(first, second, strict=True)]
    assert _sequences(features, features.ids) == [one["input_ids"] for one in one_by_one]
    assert _sequences(features, features.segments) == [one["token_type_ids"] for one in one_by_one]
    assert features.targets is not None
    assert features.targets.tolist() == [1, 0, 1]
    assert features.lengths.tolist() == [min(length, max_length) for length in whole]
    assert features.truncated_share == sum(length > max_length for length in whole) / 3
    assert isinstance(features.ids, np.memmap)


def test_a_text_that_just_fits_is_not_called_truncated(make: Callable[..., Features]) -> None:
    features = make(TextRows(["a cat sees a big dog", "a cat sees a big dog ."]), max_length=8)
    assert features.lengths.tolist() == [8, 8]
    assert features.truncated_share == 0.5
    assert features.targets is None


def test_families_without_segments_keep_none(make: Callable[..., Features]) -> None:
    assert make(TextRows(["a cat"]), has_segments=False).segments is None


def test_numbers_stay_numbers(make: Callable[..., Features]) -> None:
    features = make(TextRows(["a", "the"], None, [0.5, 2.25]), own_task("regression"), ())
    assert features.targets is not None
    assert features.targets.tolist() == [0.5, 2.25]


def test_tags_stand_on_first_pieces_and_lost_words_are_counted(
    make: Callable[..., Features], tokenizer: PreTrainedTokenizerFast
) -> None:
    words = [
        ["Mark", "playing", "in", "Berlin"],
        ["cats", "playing", "a", "dog", "sees", "dogs", "."],
    ]
    tags = [["B-PER", "O", "O", "B-LOC"], ["O", "O", "O", "O", "O", "B-PER", "O"]]
    labels = ("O", "B-LOC", "B-PER")
    features = make(TaggedRows(words, tags), find_task("conll2003"), labels, max_length=8)
    assert _sequences(features, features.words) == [
        [-1, 0, 1, -1, 2, 3, -1],
        [-1, 0, -1, 1, -1, 2, 3, -1],
    ]
    assert _sequences(features, features.targets) == [
        [-100, 2, 0, -100, 0, 1, -100],
        [-100, 0, -100, 0, -100, 0, 0, -100],
    ]
    assert features.facts.lost_words == 3
    assert features.truncated_share == 0.5


def test_byte_level_words_keep_the_space_before_them(make: Callable[..., Features]) -> None:
    vocabulary = {"<unk>": 0, "Ġ": 1, "a": 2, "b": 3, "Ġa": 4, "Ġb": 5}
    backend = Tokenizer(models.BPE(vocabulary, [("Ġ", "a"), ("Ġ", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    rows = TaggedRows([["a"], ["b", "ba"]], [["O"], ["O", "O"]])
    features = make(rows, find_task("conll2003"), ("O",), byte_level, has_segments=False)
    assert features.ids.tolist() == [4, 5, 5, 2]
    # No special token stands between the rows, and both first words have the number 0.
    assert np.asarray(features.words).tolist() == [0, 0, 1, -1]
    assert features.pad_id == 0


CONTEXT = "The old dog lives in Berlin . " * 6 + "Mark sees a big red cat in the house ."


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_answers_of_long_passages_are_marked_where_a_piece_holds_them(
    make: Callable[..., Features], make_tokenizer: MakeTokenizer, padding_side: str
) -> None:
    answer = ("big red cat", CONTEXT.index("big red cat"))
    rows = SpanRows(["1", "2"], ["who is ?", "what ?"], [CONTEXT] * 2, [[answer], []])
    by = make_tokenizer(padding_side=padding_side)
    features = make(rows, find_task("squad2"), (), by, max_length=24, stride=8)
    assert features.targets is not None
    assert features.row_of is not None
    assert features.spans is not None
    assert features.lengths.max() <= 24
    found = 0
    for piece, (start, end) in enumerate(features.targets):
        part = slice(features.starts[piece], features.starts[piece + 1])
        spans, ids = features.spans[part], features.ids[part]
        inside = spans[spans[:, 0] >= 0]
        holds = inside[0, 0] <= answer[1] and inside[-1, 1] >= answer[1] + len(answer[0])
        if features.row_of[piece] == 0 and holds:
            assert CONTEXT[spans[start, 0] : spans[end, 1]] == "big red cat"
            found += 1
        else:
            assert ids[start] == ids[end] == by.cls_token_id
    assert found >= 1
    assert features.row_of.tolist() == sorted(features.row_of.tolist())
    covered = {
        c
        for (a, b), row in zip(features.spans, np.repeat(features.row_of, features.lengths), strict=True)
        if row == 0
        for c in range(a, b)
    }
    assert {place for place, sign in enumerate(CONTEXT) if sign != " "} <= covered


def test_an_answer_between_signs_without_spaces_is_marked_exactly(
    make: Callable[..., Features],
) -> None:
    rows = SpanRows(["1"], ["who ?"], ["one,cat,two"], [[("cat", 4)]])
    features = make(rows, find_task("squad"), ())
    assert features.targets is not None
    assert features.spans is not None
    (start, end), spans = features.targets[0], features.spans
    assert (spans[start, 0], spans[end, 1]) == (4, 7)


def test_a_question_longer_than_the_input_is_cut(make: Callable[..., Features]) -> None:
    rows = SpanRows(["1"], ["who is the cat " * 30], ["Mark sees a dog ."], [[("dog", 12)]])
    features = make(rows, find_task("squad"), (), max_length=24, stride=128)
    assert features.lengths.max() <= 24
    assert features.truncated_share == 1.0


def test_choices_are_paired_with_each_ending(
    make: Callable[..., Features], tokenizer: PreTrainedTokenizerFast
) -> None:
    rows = ChoiceRows(["a cat", "two"], [["one", "two dogs"], ["the house", "in"]], ["1", "0"])
    features = make(rows, find_task("swag"), ("0", "1"))
    assert len(features) == 2
    assert features.num_choices == 2
    expected = [
        tokenizer(a, b)["input_ids"] for a, bs in zip(rows.first, rows.endings, strict=True) for b in bs
    ]
    assert _sequences(features, features.ids) == expected
    assert features.lengths.tolist() == [8, 6]


def test_tokenising_happens_once(make: Callable[..., Features], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = TextRows(["a cat", "a dog"], None, ["yes", "no"])
    first = make(rows)
    monkeypatch.setattr(features_module, "encode", lambda *_: pytest.fail("tokenised again"))
    again = make(TextRows(("a cat", "a dog"), None, ("yes", "no")))
    assert again.ids.tolist() == first.ids.tolist()
    assert again.facts == first.facts


def test_the_cache_is_not_shared_where_the_content_would_differ(
    make: Callable[..., Features], make_tokenizer: MakeTokenizer, tmp_path: Path
) -> None:
    rows = TextRows(["a cat sees the old red house ."], None, ["yes"])
    make(rows)
    make(rows, max_length=8)
    make(rows, labels=("yes", "no"))
    make(rows, has_segments=False)
    make(rows, by=make_tokenizer(lowercase=False))
    make(TextRows(rows.first, None, ["no"]))
    assert len(list((tmp_path / "tokens").iterdir())) == 6


def test_the_fingerprint_does_not_depend_on_earlier_calls(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    before = fingerprint(tokenizer)
    tokenizer(["a cat"], truncation=True, max_length=5, padding="max_length")
    assert fingerprint(tokenizer) == before


def test_tokenising_leaves_the_file_of_the_tokenizer_as_it_was(
    make: Callable[..., Features], tokenizer: PreTrainedTokenizerFast
) -> None:
    tokenizer.backend_tokenizer.enable_padding(length=9)
    before = tokenizer.backend_tokenizer.to_str()
    make(TextRows(["a cat", "the dog sees"]), max_length=6)
    assert tokenizer.backend_tokenizer.to_str() == before


def test_a_text_without_any_token_is_refused(make: Callable[..., Features]) -> None:
    bare = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]")),
        unk_token="[UNK]",
    )
    bare.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(BermoError, match="near row 2 has no tokens"):
        make(TextRows(["a", "\n"]), by=bare, has_segments=False)


def test_a_label_that_the_task_lacks_is_refused(make: Callable[..., Features]) -> None:
    with pytest.raises(BermoError, match=r'no label "yess".*"yes"'):
        make(TextRows(["a"], None, ["yess"]))
