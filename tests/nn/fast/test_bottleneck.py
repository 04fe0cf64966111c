"""What both halves of a layer between bottlenecks need: tensors side by side, and sums in one table."""

import pytest
import torch

bottleneck = pytest.importorskip("bermo.nn.fast.bottleneck", reason="needs Triton")


def test_neighbours_are_read_where_they_lie_and_others_are_joined() -> None:
    whole = torch.randn(6, 4)
    first, second = whole[:2], whole[2:4]
    assert bottleneck.beside([first, second]).data_ptr() == whole.data_ptr()
    apart = bottleneck.beside([second, first])
    assert torch.equal(apart, torch.cat([second, first]))


@pytest.mark.parametrize("has_target", [True, False])
def test_gradients_of_several_matrices_are_one_product(has_target: bool) -> None:
    torch.manual_seed(0)
    grads, inputs = torch.randn(3, 5, 4), torch.randn(3, 5, 2)
    target = torch.empty(12, 2) if has_target else None
    found = bottleneck.weight_grads(grads, inputs, target)
    for one, grad, x in zip(found, grads, inputs, strict=True):
        torch.testing.assert_close(one, grad.t() @ x)
    assert target is None or torch.equal(torch.cat(found), target)


@pytest.mark.parametrize("rows", [7, 2100])
def test_a_table_adds_up_its_rows_by_vector(rows: int) -> None:
    table = bottleneck.Table(rows, [3, 70], torch.empty(0))
    assert table.blocks == {7: 1, 2100: 66}[rows]
    table.parts.copy_(torch.randn_like(table.parts))
    wide, half = table.sums(torch.bfloat16)
    assert [one.shape for one in wide] == [(3,), (70,)]
    torch.testing.assert_close(torch.cat(wide), table.parts.sum(0), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(torch.cat(half).float(), table.parts.sum(0), rtol=1e-2, atol=1e-2)
