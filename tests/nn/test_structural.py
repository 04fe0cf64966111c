"""Structural probes: their distances and losses by a slow loop, and a tree that is there is found."""

import pytest
import torch

from bermo.nn.structural import StructuralProbes, TreeBatch, TreeSettings, fit_structural


def batch(seed: int, layers: int = 2) -> TreeBatch:
    generator = torch.Generator().manual_seed(seed)
    is_word = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    distances = torch.randint(1, 4, (2, 5, 5), generator=generator).float()
    return TreeBatch(
        x_LSTD=torch.randn(layers, 2, 5, 6, generator=generator),
        is_word_ST=is_word,
        distances_STT=distances + distances.transpose(1, 2),
        depths_ST=torch.randint(0, 3, (2, 5), generator=generator).float(),
    )


def test_losses_are_those_of_a_slow_loop() -> None:
    probes, data = StructuralProbes(2, 6, 3, seed=1).requires_grad_(False), batch(0)
    far, deep = (probes.losses(data, target) for target in ("distance", "depth"))
    for layer in range(2):
        for at, count in enumerate((5, 3)):
            z = data.x_LSTD[layer, at, :count] @ probes.weight[layer]
            gaps = [
                abs(float((z[i] - z[j]).square().sum()) - float(data.distances_STT[at, i, j]))
                for i in range(count)
                for j in range(count)
            ]
            assert float(far[layer, at]) == pytest.approx(sum(gaps) / count**2, rel=1e-4)
            depths = [abs(float(z[i].square().sum()) - float(data.depths_ST[at, i])) for i in range(count)]
            assert float(deep[layer, at]) == pytest.approx(sum(depths) / count, rel=1e-4)


def test_layers_trained_together_are_those_trained_alone() -> None:
    data, settings = batch(0), TreeSettings(rank=2, epochs=2)
    both = fit_structural([data], [data], "distance", settings)
    one = TreeBatch(
        x_LSTD=data.x_LSTD[:1],
        is_word_ST=data.is_word_ST,
        distances_STT=data.distances_STT,
        depths_ST=data.depths_ST,
    )
    alone = fit_structural([one], [one], "distance", settings)
    torch.testing.assert_close(both.weight[0], alone.weight[0], atol=1e-5, rtol=1e-4)


def test_distances_that_are_in_the_vectors_are_found() -> None:
    # A star: the words stand on axes of their own, the root at zero.
    x = torch.zeros(1, 1, 5, 6)
    x[0, 0, 1:, 1:5] = torch.eye(4)
    depths = torch.tensor([[0.0, 1, 1, 1, 1]])
    distances = (depths[0][:, None] + depths[0])[None] * (1 - torch.eye(5))
    data = TreeBatch(x_LSTD=x, is_word_ST=torch.ones(1, 5).bool(), distances_STT=distances, depths_ST=depths)
    for target in ("distance", "depth"):
        probes = fit_structural([data], [data], target, TreeSettings(rank=6, epochs=6, rate=5e-2))
        assert float(probes.losses(data, target).detach().mean()) < 0.1
