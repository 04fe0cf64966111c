"""Sums of vectors' gradients at the end of the backward pass are those of each layer, to the bit."""

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="needs Triton")
dense = pytest.importorskip("bermo.nn.fast.dense")
fused = pytest.importorskip("bermo.nn.fast.residual")
late = pytest.importorskip("bermo.nn.fast.late")

SIZE = 12


class Layer:
    """A layer's vectors: of its norm, of a sum, of a gelu, and of three products in one memory."""

    def __init__(self, groups: int) -> None:
        self.gamma, self.beta, self.bias, self.inner = (
            nn.Parameter(torch.randn(groups, SIZE)) for _ in range(4)
        )
        three = torch.randn(3 * SIZE)
        self.biases = [part.detach().requires_grad_() for part in three.chunk(3)]
        matrices = torch.randn(3 * SIZE, SIZE)
        self.weights = [part.detach().requires_grad_() for part in matrices.chunk(3)]

    def vectors(self) -> list[Tensor]:
        return [self.gamma, self.beta, self.bias, self.inner, *self.biases]


def run(layers: list[Layer], x: Tensor, sums: object) -> list[Tensor | None]:
    """The gradients of all vectors, the first layer's norm being used twice."""
    seed = torch.tensor([3])
    for number, layer in enumerate([*layers, layers[0]]):
        three = dense.Joined.apply(x, None, sums, *layer.weights, *layer.biases)
        h = dense.Gelu.apply(sum(three), layer.inner, True, None, 0.0, sums)
        options = (seed + number, 0.2, 1e-5, layer.bias, x.dtype, True, None, sums)
        x, *_ = fused.residual(h, x, layer.gamma, layer.beta, *options)
    (x * torch.linspace(-1, 1, SIZE)).sum().backward()
    grads = [vector.grad for layer in layers for vector in layer.vectors()]
    for layer in layers:
        for vector in layer.vectors():
            vector.grad = None
    return grads


@pytest.mark.parametrize("groups", [1, 2])
def test_late_sums_are_those_of_each_layer_to_the_bit(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layers, x = [Layer(groups) for _ in range(2)], torch.randn(2, 6, SIZE)
    at_once = run(layers, x, None)
    launches: list[int] = []
    sum_parts = late.sum_parts
    monkeypatch.setattr(late, "sum_parts", lambda *given: launches.append(1) or sum_parts(*given))
    sums = late.Late()
    found = run(layers, x, sums)
    assert len(launches) == 3, "one for each kind of layer"
    for mine, expected in zip(found, at_once, strict=True):
        assert mine is not None
        assert torch.equal(mine, expected)
    assert not sums.done
    assert not sums.blocks


def test_a_gradient_that_is_watched_or_is_not_a_leafs_is_made_at_once() -> None:
    plain = torch.ones(3, requires_grad=True)
    watched = torch.ones(3, requires_grad=True)
    watched.register_hook(lambda grad: None)
    assert late.can_wait(plain, None)
    assert not late.can_wait(plain, watched)
    assert not late.can_wait(plain * 2)
    assert not late.can_wait(torch.ones(3))


def test_a_layer_without_a_gradient_leaves_the_others_theirs() -> None:
    torch.manual_seed(0)
    sums, seed = late.Late(), torch.tensor([3])
    vectors = [[nn.Parameter(torch.randn(SIZE)) for _ in range(2)] for _ in range(2)]
    x = torch.randn(2, 2, SIZE, requires_grad=True)
    outputs = [fused.residual(x, x, *pair, seed, late=sums)[0] for pair in vectors]
    outputs[1].sum().backward()
    assert vectors[0][0].grad is None
    torch.testing.assert_close(vectors[1][1].grad, torch.full((SIZE,), 4.0))
