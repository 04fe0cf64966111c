"""Updates from the copies' gradients, in Triton's interpreter on the CPU, end where torch's AdamW ends."""

import pytest
import torch
from torch import Tensor

from tests.direct_steps import assert_alike, make_step, train

adam = pytest.importorskip("bermo.nn.fast.adam", reason="needs Triton")


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter walks through a whole chunk even where a tensor is small."""
    monkeypatch.setattr(adam, "CHUNK", adam.SPAN)


def test_matrices_with_an_axis_of_heads_are_updated_from_their_copies_too() -> None:
    direct, plain = (make_step(is_direct=is_direct, family="xlnet") for is_direct in (True, False))
    # Each of two layers has five of three axes.
    assert sum(weight.dim() == 3 for weight in direct.direct[0].adam.parameters) == 10
    for step in (direct, plain):
        train(step, 1)
    assert_alike(direct, plain)


@pytest.mark.parametrize(
    ("family", "is_pruned", "num_models"),
    [("bert", False, 1), ("bert", True, 1), ("bert", False, 2), ("gpt2", False, 1)],
)
def test_a_direct_step_ends_where_the_plain_one_ends(family: str, is_pruned: bool, num_models: int) -> None:
    direct, plain = (make_step(is_pruned, num_models, is_direct, family) for is_direct in (True, False))
    assert not plain.direct
    (one,) = direct.direct
    assert all(w.dim() == (2 if num_models == 1 else 3) for w in one.adam.parameters)
    # The head's two, and six of each of two layers, or GPT-2's four transposed ones.
    assert len(one.copies) == 2 + (0 if is_pruned else {"bert": 12, "gpt2": 8}[family])
    for step in (direct, plain):
        train(step)
    assert_alike(direct, plain)
    torch.testing.assert_close(direct.norms, plain.norms, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(direct.loss_sum, plain.loss_sum, rtol=1e-5, atol=1e-6)
    pairs = zip(one.adam.parameters, one.copies, strict=True)
    assert all(torch.equal(copy, weight) for weight, copy in pairs)


def test_a_run_goes_on_from_direct_to_plain_and_back() -> None:
    plain = make_step(is_direct=False)
    train(plain, 3)
    first, second = make_step(), make_step(is_direct=False)
    for step, before in ((first, None), (second, first), (make_step(), second)):
        if before is not None:
            step.model.load_state_dict(before.model.state_dict())
            step.optimizer.optimizer.load_state_dict(before.optimizer.optimizer.state_dict())
            step.start_()
        train(step, 1)
    assert_alike(step, plain)


def test_a_matrix_that_nothing_reads_is_left_alone_and_copies_stay_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = make_step()
    (one,) = step.direct
    idle = one.copies[3]
    weight = next(weight for weight, copy in step.shadow.pairs() if copy is idle)
    before = weight.detach().clone()
    backward = step._backward

    def without_idle(batches: object) -> Tensor:
        loss = backward(batches)
        idle.grad = None
        return loss

    monkeypatch.setattr(step, "_backward", without_idle)
    train(step, 1)
    assert torch.equal(weight, before)
    pairs = zip(one.adam.parameters, one.copies, strict=True)
    assert all(torch.equal(copy, weight) for weight, copy in pairs)
    monkeypatch.undo()
    train(step, 1)
    assert not torch.equal(weight, before)
    assert not step._grads()
