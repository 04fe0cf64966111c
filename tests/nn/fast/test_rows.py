"""Gradients of tables by the rows that were read, in Triton's interpreter, equal plain sums."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

rows = pytest.importorskip("bermo.nn.fast.rows", reason="needs Triton")


@pytest.fixture(autouse=True)
def short_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs for the columns of a small row, and several turns for what is long."""
    monkeypatch.setattr(rows, "WIDTH", 4)
    monkeypatch.setattr(rows, "TILE", 2)
    monkeypatch.setattr(rows, "SPAN", 32)


def slow(grads: Tensor, keys: Tensor, table: Tensor, padding: int | None) -> Tensor:
    whole = torch.zeros_like(table).view(-1, table.shape[-1])
    for key, grad in zip(keys.tolist(), grads, strict=True):
        if key != padding:
            whole[key] += grad
    return whole.view_as(table)


@pytest.mark.parametrize("num_models", [1, 2])
def test_each_table_gets_the_sums_of_its_rows(num_models: int) -> None:
    torch.manual_seed(0)
    texts, tokens, size = 3 * num_models, 10, 6
    num, height = texts * tokens, 7
    shape = (height, size) if num_models == 1 else (num_models, height, size)
    tables = rows.Tables([nn.Parameter(torch.randn(shape)) for _ in range(3)], [3, None, None])
    shift = torch.arange(num_models).repeat_interleave(num // num_models) * height
    words = torch.randint(0, height, (num,))
    words[:28] = 2  # a run of two blocks
    keys = torch.stack([words, torch.zeros_like(words), torch.arange(num) % tokens % height]) + shift
    grads = torch.randn(num, size)
    periods = [num // num_models, 1, tokens]
    found = tables.grads(grads, keys.int(), periods, num_models)
    paddings = (3, None, None)
    truth = [slow(grads, *each) for each in zip(keys, tables.weights, paddings, strict=True)]
    for mine, expected in zip(tables.dense(found), truth, strict=True):
        torch.testing.assert_close(mine, expected)
    by_model = found.norms.view(-1, 3, num_models, num // num_models).norm(dim=(0, 3))
    torch.testing.assert_close(by_model, torch.stack([t.view(num_models, -1).norm(dim=1) for t in truth]))
    again = tables.grads(grads, keys.int(), periods, num_models)
    assert all(torch.equal(a, b) for a, b in zip(tables.dense(found), tables.dense(again), strict=True))


def test_runs_of_any_length_at_any_place_are_summed() -> None:
    """Runs that end with a block, begin with one, fill one, and go through several."""
    bounds = [0, 5, 16, 17, 32, 48, 50, 85, 96, 97]
    keys = torch.cat([torch.full((b - a,), i) for i, (a, b) in enumerate(pairwise(bounds))])
    keys = keys[torch.randperm(97, generator=torch.Generator().manual_seed(0))]
    tables = rows.Tables([nn.Parameter(torch.randn(9, 6))], [None])
    grads = torch.randn(97, 6)
    (mine,) = tables.dense(tables.grads(grads, keys[None].int(), [97], 1))
    torch.testing.assert_close(mine, slow(grads, keys, tables.weights[0], None))


def test_an_update_reads_rows_of_this_batch_alone() -> None:
    """Slots that were written for another batch, of more positions, do not count."""
    from bermo.nn.fast.row_adam import RowAdam

    torch.manual_seed(0)
    mine, slow_table = (nn.Parameter(torch.ones(40, 6)) for _ in range(2))
    optimizers = []
    for weight in (mine, slow_table):
        group = {"params": [weight], "lr": torch.tensor(1e-2), "weight_decay": 0.1}
        optimizers.append(torch.optim.AdamW([group], lr=torch.tensor(1e-2), fused=True))
        zeros = (torch.zeros(40, 6), torch.zeros(40, 6), torch.zeros(()))
        optimizers[-1].state[weight] = dict(zip(("exp_avg", "exp_avg_sq", "step"), zeros, strict=True))
    tables = rows.Tables([mine], [None])
    adam = RowAdam(tables, optimizers[0])
    for num in (20, 9, 12):
        keys, grads = torch.randint(0, 40, (num,)), torch.randn(num, 6)
        slow_table.grad = slow(grads, keys, slow_table, None)
        tables.found.append(tables.grads(grads, keys[None].int(), [num], 1))
        torch.testing.assert_close(adam.norms()[0, 0], slow_table.grad.norm())
        slow_table.grad *= 0.7
        adam.step(torch.tensor([0.7]))
        optimizers[1].step()
        torch.testing.assert_close(mine, slow_table)
        for name, value in optimizers[1].state[slow_table].items():
            torch.testing.assert_close(optimizers[0].state[mine][name], value)
