"""The contrast of classes equals its loop, and pairs that are not there do no harm."""

import pytest
import torch

from bermo.nn.contrast import contrast
from bermo.nn.heads import IGNORED


def test_contrast_equals_the_loop_over_pairs() -> None:
    torch.manual_seed(0)
    vectors, classes = torch.randn(7, 5), [0, 1, 0, 2, 1, 0, 3]
    alike, different = [], []
    for first in range(7):
        for second in range(7):
            cosine = torch.cosine_similarity(vectors[first], vectors[second], dim=0).item()
            if first != second and classes[first] == classes[second]:
                alike.append((cosine - 1) ** 2)
            elif first != second:
                different.append(cosine**2)
    expected = sum(alike) / len(alike) + sum(different) / len(different)
    assert contrast(vectors, torch.tensor(classes)).item() == pytest.approx(expected, rel=1e-5)
    padded = torch.cat([vectors, torch.zeros(2, 5)])
    assert contrast(padded, torch.tensor([*classes, IGNORED, IGNORED])).item() == pytest.approx(
        expected, rel=1e-5
    )


def test_contrast_of_a_batch_without_pairs_of_a_kind_is_finite_and_so_is_its_gradient() -> None:
    for classes in ([0, 0, 0], [0, 1, 2], [0]):
        vectors = torch.randn(len(classes), 4, requires_grad=True)
        loss = contrast(vectors, torch.tensor(classes))
        loss.backward()
        assert vectors.grad is not None
        assert torch.isfinite(loss)
        assert torch.isfinite(vectors.grad).all()
