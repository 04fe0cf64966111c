"""Every row once an epoch, in an order of seed and epoch alone; padding is exact and undone exactly."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from bermo.data.batches import SPARE_TOKENS, BatchPlan, bucket, in_order, next_width, pad_rows, trim
from bermo.data.features import Features, make_features
from bermo.data.load import own_task
from bermo.data.rows import ChoiceRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.data.tasks import Task, find_task
from bermo.data.tensors import collate
from bermo.errors import BermoError
from bermo.spec import DataSpec

MakeTokenizer = Callable[..., PreTrainedTokenizerFast]
lengths = st.lists(st.integers(1, 50), min_size=1, max_size=300).map(
    lambda values: np.array(values, dtype=np.int32)
)


@given(lengths, st.integers(1, 9), st.integers(0, 99), st.integers(0, 99), st.booleans())
def test_every_row_comes_once_an_epoch(
    lengths: np.ndarray, size: int, seed: int, epoch: int, grouped: bool
) -> None:
    plan = BatchPlan(lengths, size, seed, grouped)
    batches = plan.epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert len(batches) == len(plan)
    assert sorted(len(batch) for batch in batches)[1:] == [size] * (len(batches) - 1)


@given(lengths, st.integers(1, 9), st.integers(0, 99), st.booleans())
def test_the_order_depends_on_seed_and_epoch_alone(
    lengths: np.ndarray, size: int, seed: int, grouped: bool
) -> None:
    one, other = (BatchPlan(lengths, size, seed, grouped) for _ in range(2))
    one.epoch(0)
    same = zip(one.epoch(3), other.epoch(3), strict=True)
    assert all(np.array_equal(a, b) for a, b in same)


def test_seeds_and_epochs_differ() -> None:
    lengths = np.full(64, 5, dtype=np.int32)
    orders = {
        tuple(np.concatenate(BatchPlan(lengths, 8, seed).epoch(epoch)).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


def test_grouping_wastes_little_padding() -> None:
    lengths = np.random.default_rng(0).integers(5, 100, 5000).astype(np.int32)
    grouped, mixed = BatchPlan(lengths, 16, 1), BatchPlan(lengths, 16, 1, grouped=False)
    assert grouped.padding_share() < 0.05
    assert mixed.padding_share() > 0.3
    firsts = [lengths[batch].max() for batch in grouped.epoch(0)[:50]]
    assert firsts != sorted(firsts, reverse=True)


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(BermoError, match="batch-size must be at least 1"):
        BatchPlan(np.ones(3, dtype=np.int32), 0, 1)


def _kinds() -> dict[str, tuple[Task, tuple[str, ...], Rows]]:
    text = ["a cat", "the old dog sees a red house .", "in berlin"]
    other = ["one", "two", "three cats"]
    spans = [[("dog", 8)], [], [("cat", 4)]]
    contexts = ["the old dog sees", "a house", "the cat " * 12]
    return {
        "single": (own_task("classification"), ("n", "y"), TextRows(text, None, ["y", "n", "y"])),
        "pair": (own_task("classification"), ("n", "y"), TextRows(text, other, ["y", "n", "y"])),
        "number": (own_task("regression"), (), TextRows(text, None, [0.5, 1.5, 2.0])),
        "tags": (
            find_task("conll2003"),
            ("O", "B-X"),
            TaggedRows([t.split() for t in text], [["B-X"] * len(t.split()) for t in text]),
        ),
        "span": (find_task("squad2"), (), SpanRows(["1", "2", "3"], ["who ?"] * 3, contexts, spans)),
        "choice": (
            find_task("swag"),
            ("0", "1"),
            ChoiceRows(text, [[o, f"{o} dogs"] for o in other], ["0", "1", "1"]),
        ),
    }


@pytest.fixture(params=list(_kinds()))
def kind(request: pytest.FixtureRequest) -> str:
    """Return each kind of rows in turn."""
    name: str = request.param
    return name


@pytest.fixture(params=["right", "left"])
def features(
    request: pytest.FixtureRequest, kind: str, make_tokenizer: MakeTokenizer, tmp_path: Path
) -> Features:
    """Return small features of every kind, padded on either side."""
    task, labels, rows = _kinds()[kind]
    by = make_tokenizer(padding_side=request.param)
    spec = DataSpec(cache=str(tmp_path), max_length=16, stride=4)
    return make_features(rows, task, labels, by, spec, has_segments=True)


def _padded_slowly(
    features: Features, values: np.ndarray, sequences: list[int], fill: int, width: int
) -> list[list[int]]:
    padded = []
    for sequence in sequences:
        row = [int(v) for v in values[features.starts[sequence] : features.starts[sequence + 1]]]
        filling = [fill] * (width - len(row))
        padded.append(filling + row if features.pads_left else row + filling)
    return padded


@pytest.mark.parametrize("longest", [None, 4, 11, 100])
def test_collating_equals_padding_token_by_token(features: Features, longest: int | None) -> None:
    indices = np.array([2, 0])
    choices = features.num_choices
    sequences = [int(i) * choices + c for i in indices for c in range(choices)]
    width = max(int(features.starts[s + 1] - features.starts[s]) for s in sequences)
    if longest is not None:
        width = max(width, min(bucket(width), longest))
    batch = pad_rows(features, indices, longest)
    shape = (2, choices, width) if choices > 1 else (2, width)
    ones = np.ones(len(features.ids), dtype=np.int64)
    assert features.segments is not None
    columns: list[tuple[str, np.ndarray, int]] = [
        ("input_ids", features.ids, features.pad_id),
        ("attention_mask", ones, 0),
        ("token_type_ids", features.segments, features.pad_segment),
    ]
    for name, values, fill in columns:
        assert batch[name].dtype == np.int64
        assert batch[name].shape == shape
        expected = _padded_slowly(features, values, sequences, fill, width)
        assert batch[name].reshape(-1, width).tolist() == expected, name


def test_buckets_are_few_and_pad_by_an_eighth_at_most() -> None:
    widths = {length: bucket(length) for length in range(1, 513)}
    assert all(length <= width for length, width in widths.items())
    assert all(width <= max(length + 7, 1.125 * length) for length, width in widths.items())
    assert all(width % 8 == 0 for width in widths.values())
    assert len(set(widths.values())) <= 32


def test_the_padding_of_buckets_is_counted() -> None:
    lengths = np.array([9, 9, 17, 30], dtype=np.int32)
    plan = BatchPlan(lengths, batch_size=2, seed=0)
    assert plan.padding_share() == pytest.approx(1 - 65 / 78)
    assert plan.padding_share(widths=plan.widths(epochs=1e9)) == pytest.approx(1 - 65 / 92)
    assert plan.padding_share(widths=plan.widths(epochs=1)) == pytest.approx(1 - 65 / 120)


def test_a_length_has_a_shape_of_its_own_unless_its_batches_are_padded_on_by_few_tokens() -> None:
    lengths = np.repeat(np.array([7, 24, 49, 60], dtype=np.int32), [4096, 2048, 512, 32])
    plan = BatchPlan(lengths, batch_size=32, seed=0)
    found = Counter(int(lengths[batch].max()) for batch in plan.epoch(0))
    extra = 32 * found[49] * (60 - 56)
    assert extra <= SPARE_TOKENS < 32 * min(found[24] * (60 - 24), found[7] * (24 - 8))
    assert plan.widths(epochs=1) == (8, 24, 60)
    assert plan.widths(epochs=SPARE_TOKENS // extra + 1) == (8, 24, 56, 60)
    widths = plan.widths(epochs=1)
    assert [next_width(length, widths) for length in (1, 8, 9, 25, 60, 61)] == [8, 8, 24, 60, 60, 61]


def test_batches_are_padded_to_the_next_of_the_widths(features: Features) -> None:
    longest = int(features.lengths.max())
    for widths, width in (((), longest), ((longest - 1, longest + 3), longest + 3), ((1,), longest)):
        assert collate(features, np.arange(len(features)), widths)["input_ids"].shape[-1] == width


def test_targets_follow_their_tokens(features: Features) -> None:
    indices = np.array([1, 2, 0])
    batch = collate(features, indices)
    width = batch["input_ids"].shape[-1]
    targets = np.asarray(features.targets)
    match features.task.kind:
        case "tagging":
            expected = _padded_slowly(features, targets, [1, 2, 0], -100, width)
            assert batch["labels"].tolist() == expected
        case "span":
            for row, index in enumerate(indices):
                ids = features.ids[features.starts[index] : features.starts[index + 1]]
                for place, name in enumerate(("start_positions", "end_positions")):
                    marked = batch["input_ids"][row, batch[name][row]]
                    assert marked == ids[targets[index, place]]
        case "regression":
            assert batch["labels"].dtype == torch.float32
            assert batch["labels"].tolist() == targets[indices].tolist()
        case _:
            assert batch["labels"].dtype == torch.int64
            assert batch["labels"].tolist() == targets[indices].tolist()


def test_trimming_undoes_the_padding(features: Features) -> None:
    indices = np.array([2, 0])
    batch = collate(features, indices)
    ids = batch["input_ids"].numpy().astype(np.float64)
    match features.task.kind:
        case "tagging":
            rows = [row[:, 0] for row in trim(features, indices, [ids[..., None]])]
        case "span":
            rows = [row[1] for row in trim(features, indices, [-ids, ids])]
        case _:
            assert len(trim(features, indices, [np.zeros((2, 3))])) == 2
            return
    for index, row in zip(indices, rows, strict=True):
        expected = features.ids[features.starts[index] : features.starts[index + 1]]
        assert row.tolist() == expected.tolist()


def test_batches_in_order_hold_every_feature_once_and_longest_first(features: Features) -> None:
    batches = in_order(features, 2)
    order = np.concatenate(batches)
    assert sorted(order.tolist()) == list(range(len(features)))
    assert features.lengths[order].tolist() == sorted(features.lengths.tolist(), reverse=True)


def test_full_batches_hold_every_feature_once_and_no_more_tokens_than_the_longest_take(
    features: Features,
) -> None:
    batches = in_order(features, 2, is_full=True)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(features)))
    most_tokens = 2 * int(features.lengths.max())
    assert all(len(batch) * int(features.lengths[batch].max()) <= most_tokens for batch in batches)
    assert len(batches) <= len(in_order(features, 2))
    assert in_order(features, 2, np.array([], dtype=np.int64), is_full=True) == []


def test_full_batches_grow_up_to_a_number_of_tokens_of_all_their_choices(features: Features) -> None:
    longest = int(features.lengths.max()) * features.num_choices
    one, all_of_them = (
        in_order(features, 1, is_full=True, num_tokens=count) for count in (1, longest * len(features))
    )
    assert [len(batch) for batch in all_of_them] == [len(features)]
    assert len(one) == len(in_order(features, 1, is_full=True)), "no fewer than the longest row has"
    two = in_order(features, 1, is_full=True, num_tokens=2 * longest)
    tokens = [len(batch) * int(features.lengths[batch].max()) * features.num_choices for batch in two]
    assert max(tokens) <= 2 * longest
