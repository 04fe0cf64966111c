"""Tokens are chosen by the attention that they receive; padding never is, and the batch does not matter."""

import math

import torch

from bermo.nn.tokens import FIRST, WHOLE, kept_count, parts_of, select, significance, soften


def slow_significance(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    texts, heads, tokens, size = query.shape
    result = torch.full((texts, tokens), -1.0)
    for b in range(texts):
        real = [t for t in range(tokens) if mask[b, t]]
        for t in real:
            total = 0.0
            for h in range(heads):
                for q in real:
                    if q == t:
                        continue
                    scores = {k: float(query[b, h, q] @ key[b, h, k]) / math.sqrt(size) for k in real}
                    total += math.exp(scores[t]) / sum(math.exp(s) for s in scores.values()) / heads
            result[b, t] = total
        result[b, 0] = FIRST
    return result


def some() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]])
    return torch.randn(2, 2, 7, 3), torch.randn(2, 2, 7, 3), torch.randn(2, 7, 5), mask


def test_significance_is_what_a_slow_loop_over_queries_and_heads_says() -> None:
    query, key, _, mask = some()
    torch.testing.assert_close(significance(query, key, mask), slow_significance(query, key, mask))


def test_the_most_significant_stay_in_their_order_and_padding_never_before_real_tokens() -> None:
    query, key, hidden, mask = some()
    received = slow_significance(query, key, mask)
    kept, own = select(hidden, received, mask, WHOLE // 2)
    assert own.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]] or own.sum(1).tolist() == [4, 2]
    for text in range(2):
        count = math.ceil(int(mask[text].sum()) / 2)
        best = sorted(sorted(range(7), key=lambda t: -float(received[text, t]))[:count])
        assert all(mask[text, t] for t in best)
        assert best[0] == 0
        real = kept[text][own[text].bool()]
        assert torch.equal(real, hidden[text, best])
        assert torch.equal(kept[text, 0], hidden[text, 0])


def test_a_text_keeps_the_same_tokens_whatever_the_batch_pads_it_to() -> None:
    query, key, hidden, mask = some()
    received = significance(query, key, mask)
    kept, own = select(hidden, received, mask, 100)
    alone, whole = select(hidden[1:, :4], received[1:, :4], mask[1:, :4], 100)
    assert torch.equal(kept[1][own[1].bool()], alone[0][whole[0].bool()])


def test_factors_of_one_change_nothing_and_each_rank_has_its_own() -> None:
    query, key, hidden, mask = some()
    received = significance(query, key, mask)
    assert torch.equal(soften(hidden, received, mask, torch.ones(7)), hidden)
    soft = torch.arange(7, 0, -1) / 7
    made = soften(hidden, received, mask, soft)
    order = received[0].argsort(descending=True).tolist()
    for rank, token in enumerate(order):
        factor = 1.0 if rank == 0 else float(soft[rank])
        torch.testing.assert_close(made[0, token], hidden[0, token] * factor)


def test_parts_fall_and_reach_the_wanted_share() -> None:
    soft = torch.tensor([[1.0, 0.9], [0.5, 0.6], [0.7, 0.8], [0.1, 0.2]])
    parts = parts_of(soft, 0.4)
    assert parts == sorted(parts, reverse=True)
    assert abs(sum(parts) / WHOLE / 4 - 0.4) < 0.02
    assert parts_of(torch.ones(3, 2), 0.5) == [128, 128, 128]
    assert kept_count(7, 128) == 4
