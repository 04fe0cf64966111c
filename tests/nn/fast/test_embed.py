"""Sums of tables' rows with norm and dropout by kernels, in Triton's interpreter, equal plain torch."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

embed = pytest.importorskip("bermo.nn.fast.embed", reason="needs Triton")
rows = pytest.importorskip("bermo.nn.fast.rows", reason="needs Triton")
TEXTS, TOKENS, SIZE, HEIGHT = 4, 5, 12, 7


def given(num_models: int, num_tables: int) -> tuple[list[Tensor], list[nn.Parameter]]:
    """Ids of words, of one kind for all tokens, and of positions; the tables, γ and β."""
    torch.manual_seed(0)
    ids = [
        torch.randint(0, HEIGHT, (TEXTS, TOKENS)),
        torch.zeros(1, TOKENS).long(),
        torch.arange(TOKENS)[None],
    ]
    first = () if num_models == 1 else (num_models,)
    shapes = [*[(*first, HEIGHT, SIZE)] * num_tables, (*first, SIZE), (*first, SIZE)]
    return ids[:num_tables], [nn.Parameter(torch.randn(shape)) for shape in shapes]


def slow(ids: list[Tensor], parameters: list[nn.Parameter], num_models: int, kept: Tensor) -> Tensor:
    *tables, gamma, beta = parameters
    shift = torch.arange(num_models).repeat_interleave(TEXTS // num_models)[:, None] * HEIGHT
    z = sum(
        functional.embedding(one.expand(TEXTS, TOKENS) + shift, table.view(-1, SIZE))
        for one, table in zip(ids, tables, strict=True)
    )
    normal = functional.layer_norm(z, (SIZE,), eps=1e-5).view(num_models, -1, SIZE)
    return (normal * gamma.view(-1, 1, SIZE) + beta.view(-1, 1, SIZE)).view(TEXTS, TOKENS, SIZE) * kept


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("num_models", "num_tables"), [(1, 3), (1, 1), (2, 2)])
def test_output_and_all_gradients_equal_plain_torch(num_models: int, num_tables: int, p: float) -> None:
    ids, mine = given(num_models, num_tables)
    *weights, gamma, beta = mine
    tables = rows.Tables(weights, [None] * num_tables)
    plan = embed.Plan(tables, ids, ids[0].shape, p, 1e-5, torch.float32, None)
    y, copy = embed.Embed.apply(plan, torch.tensor([7]), gamma, beta, *weights)
    assert torch.equal(y, copy)
    kept = (y != 0).float() * 65536 / (65536 - round(p * 65536))
    assert p == 0 or 0 < (kept == 0).float().mean() < 2 * p
    grads = torch.randn(2, TEXTS, TOKENS, SIZE).unbind()
    torch.autograd.backward([y, copy], grads)
    _, other = given(num_models, num_tables)
    expected = slow(ids, other, num_models, kept)
    expected.backward(grads[0] + grads[1])
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_frozen_tables_take_no_gradient_and_one_of_two_gradients_is_enough() -> None:
    ids, (words, gamma, beta) = given(1, 1)
    words.requires_grad_(False)
    plan = embed.Plan(rows.Tables([words], [None]), ids, ids[0].shape, 0.3, 1e-5, torch.float32, None)
    grad, found = torch.randn(TEXTS, TOKENS, SIZE), []
    for index in (0, 1):
        outputs = embed.Embed.apply(plan, torch.tensor([7]), gamma, beta, words)
        found.append(torch.autograd.grad(outputs[index], (gamma, beta), grad))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert not plan.tables.found


@pytest.mark.parametrize("keeps_rows", [True, False])
def test_a_table_that_is_looked_up_by_itself_gets_its_gradient(keeps_rows: bool) -> None:
    ids, (words, *_) = given(1, 1)
    _, (other, *_) = given(1, 1)
    tables = rows.Tables([words], [2])
    tables.keeps_rows = keeps_rows
    found = embed.Lookup.apply(ids[0], words, tables)
    expected = functional.embedding(ids[0], other, padding_idx=2)
    assert torch.equal(found, expected)
    for each in (found, expected):
        each.square().sum().backward()
    assert (words.grad is None) == keeps_rows
    tables.spread_()
    torch.testing.assert_close(words.grad, other.grad)
