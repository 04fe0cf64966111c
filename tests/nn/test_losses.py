"""Each loss against a slow, obvious loop in double precision; padding; splitting; gradients."""

import math

import pytest
import torch
from torch import Tensor

from bermo.nn.losses import (
    divergence,
    even_map,
    hidden_distance,
    mean_over,
    relation_distance,
    relation_heads,
    soft_labels,
    soft_spans,
    soft_tags,
    soft_targets,
    soft_values,
)

MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 0]])
LABELS = torch.tensor([[-100, 1, 0, 2, -100], [-100, -100, -100, 1, -100], [-100] * 5])


def random(*shape: int, seed: int) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def slow_divergence(student: list[float], teacher: list[float], temperature: float) -> float:
    def softmax(logits: list[float]) -> list[float]:
        powers = [math.exp(x / temperature) for x in logits]
        return [power / sum(powers) for power in powers]

    pairs = zip(softmax(teacher), softmax(student), strict=True)
    return temperature**2 * sum(t * math.log(t / s) for t, s in pairs)


def test_soft_targets_equal_the_sum_over_labels() -> None:
    student, teacher = random(3, 4, seed=1), random(3, 4, seed=2)
    slow = [slow_divergence(s.tolist(), t.tolist(), 2.0) for s, t in zip(student, teacher, strict=True)]
    assert soft_targets(student, teacher, 2.0).tolist() == pytest.approx(slow, rel=1e-5)


def test_soft_targets_equal_torchs_batch_mean_of_the_reference_code() -> None:
    student, teacher = random(3, 4, seed=1), random(3, 4, seed=2)
    reference = 4 * torch.nn.functional.kl_div(
        (student / 2).log_softmax(-1), (teacher / 2).softmax(-1), reduction="batchmean"
    )
    ours = mean_over(soft_targets(student, teacher, 2.0), torch.ones(3))
    torch.testing.assert_close(ours, reference)


def test_soft_labels_are_the_divergence_of_a_yes_or_no_for_each_label() -> None:
    student, teacher = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).double()
    pairs = [torch.stack([logits, torch.zeros_like(logits)], -1) for logits in (student, teacher)]
    expected = divergence(*pairs, temperature=2.0).mean(-1)
    assert torch.allclose(soft_labels(student, teacher, 2.0), expected)
    assert soft_labels(teacher, teacher, 2.0).abs().max() < 1e-6


def test_soft_values_are_the_squared_error() -> None:
    student, teacher = torch.tensor([[1.0], [2.5]]), torch.tensor([[3.0], [2.0]])
    assert soft_values(student, teacher).tolist() == [4.0, 0.25]


def test_soft_tags_are_the_mean_over_labelled_tokens() -> None:
    student, teacher = random(3, 5, 4, seed=1), random(3, 5, 4, seed=2)
    tokens = [
        slow_divergence(student[b, t].tolist(), teacher[b, t].tolist(), 2.0)
        for b in range(3)
        for t in range(5)
        if LABELS[b, t] != -100
    ]
    counts = (LABELS != -100).sum(1)
    actual = mean_over(soft_tags(student, teacher, LABELS, 2.0), counts)
    assert actual.item() == pytest.approx(sum(tokens) / len(tokens), rel=1e-5)


def test_soft_spans_are_the_mean_of_start_and_end_over_real_tokens() -> None:
    student, teacher = random(3, 5, 2, seed=1), random(3, 5, 2, seed=2)
    slow = []
    for b in range(3):
        real = [t for t in range(5) if MASK[b, t]]
        ends = [
            slow_divergence(student[b, real, e].tolist(), teacher[b, real, e].tolist(), 2.0) for e in range(2)
        ]
        slow.append(sum(ends) / 2)
    actual = soft_spans(student, teacher, MASK, 2.0).tolist()
    assert actual == pytest.approx(slow, rel=1e-5, abs=1e-6)


def test_hidden_distance_is_the_mean_square_over_real_tokens_and_units() -> None:
    student, teacher = random(3, 5, 6, seed=1), random(3, 5, 6, seed=2)
    slow = []
    for b in range(3):
        squares = [
            (student[b, t, d].item() - teacher[b, t, d].item()) ** 2
            for t in range(5)
            if MASK[b, t]
            for d in range(6)
        ]
        slow.append(sum(squares) / len(squares))
    assert hidden_distance(student, teacher, MASK).tolist() == pytest.approx(slow, rel=1e-5)


def slow_relation(student: Tensor, teacher: Tensor, mask: Tensor, heads: int) -> float:
    """One text, one of queries, keys and values: the mean over relation heads and real tokens."""
    real = [t for t in range(len(mask)) if mask[t]]
    actual = []
    for head in range(heads):
        for t in real:
            rows = []
            for vectors in (student, teacher):
                size = vectors.shape[-1] // heads
                part = vectors[:, head * size : (head + 1) * size].double()
                rows.append([(part[t] @ part[u]).item() / math.sqrt(size) for u in real])
            actual.append(slow_divergence(rows[0], rows[1], 1.0))
    return sum(actual) / len(actual)


def test_relations_equal_the_loop_for_different_widths() -> None:
    student = [random(3, 5, 24, seed=k) / 3 for k in (1, 2, 3)]
    teacher = [random(3, 5, 48, seed=k) / 3 for k in (4, 5, 6)]
    assert relation_heads(24, 48) == 3
    slow = [
        sum(slow_relation(s[b], t[b], MASK[b], 3) for s, t in zip(student, teacher, strict=True))
        for b in range(3)
    ]
    actual = relation_distance(student, teacher, MASK).tolist()
    assert actual == pytest.approx(slow, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("student", "teacher", "heads"), [(384, 768, 48), (1024, 1024, 64), (312, 768, 24), (7, 16, 1)]
)
def test_relation_heads_cut_both_widths_as_in_minilm(student: int, teacher: int, heads: int) -> None:
    assert relation_heads(student, teacher) == heads
    assert student % heads == teacher % heads == 0


def test_equal_sides_are_at_distance_zero_and_no_gradient_is_nan() -> None:
    same = random(3, 5, 2, seed=1).requires_grad_()
    losses = [
        divergence(same, same.detach(), 2.0).sum(1),
        soft_spans(same, same.detach(), MASK, 2.0),
        relation_distance([same] * 3, [same.detach()] * 3, MASK),
        hidden_distance(same, same.detach(), MASK),
    ]
    for loss in losses:
        assert loss.abs().max() < 1e-5
        (gradient,) = torch.autograd.grad(loss.sum(), same)
        assert gradient.isfinite().all()


def test_padding_changes_no_loss_and_gets_no_gradient() -> None:
    student, teacher = random(3, 5, 2, seed=1).requires_grad_(), random(3, 5, 2, seed=2)
    other = torch.where(MASK[..., None].bool(), teacher, 1e4)
    for loss in (
        lambda given: soft_spans(student, given, MASK, 2.0),
        lambda given: hidden_distance(student, given, MASK),
        lambda given: relation_distance([student], [given], MASK),
    ):
        assert torch.equal(loss(teacher), loss(other))
        (gradient,) = torch.autograd.grad(loss(teacher).sum(), student)
        assert gradient[MASK == 0].abs().max() == 0


def test_the_mean_over_counts_survives_any_split_of_the_batch() -> None:
    losses, counts = random(6, seed=1), torch.tensor([3, 0, 1, 5, 2, 0])
    parts = [slice(0, 2), slice(2, 3), slice(3, 6)]
    summed = sum(mean_over(losses[p], counts[p]) * counts[p].sum() for p in parts)
    torch.testing.assert_close(summed / counts.sum(), mean_over(losses, counts))
    assert mean_over(losses[1:2], counts[1:2]) == 0


@pytest.mark.parametrize(
    ("student", "teacher", "expected"),
    [(6, 12, (2, 4, 6, 8, 10, 12)), (3, 3, (1, 2, 3)), (2, 5, (3, 5)), (4, 2, (1, 1, 2, 2))],
)
def test_an_even_map_ends_at_the_last_layer(student: int, teacher: int, expected: tuple[int, ...]) -> None:
    assert even_map(student, teacher) == expected
