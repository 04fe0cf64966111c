"""The contrast of classes equals its loop, and pairs that are not there do no harm."""

import pytest
import torch

from bermo.nn.contrast import contrast
from bermo.nn.heads import IGNORED


def test_contrast_equals_the_loop_over_texts_and_their_partners() -> None:
    torch.manual_seed(0)
    vectors, classes = torch.randn(7, 5), [0, 1, 0, 2, 1, 0, 3]
    alike, different = [], []
    for first in range(7):
        cosines = [torch.cosine_similarity(vectors[first], other, dim=0).item() for other in vectors]
        same = [(cosines[k] - 1) ** 2 for k in range(7) if k != first and classes[k] == classes[first]]
        others = [cosines[k] ** 2 for k in range(7) if classes[k] != classes[first]]
        alike += [sum(same) / len(same)] if same else []
        different += [sum(others) / len(others)]
    expected = sum(alike) / len(alike) + sum(different) / len(different)
    assert len(alike) == 5
    assert contrast(vectors, torch.tensor(classes)).item() == pytest.approx(expected, rel=1e-5)
    padded = torch.cat([vectors, torch.zeros(2, 5)])
    assert contrast(padded, torch.tensor([*classes, IGNORED, IGNORED])).item() == pytest.approx(
        expected, rel=1e-5
    )


def test_a_text_of_a_rare_class_counts_as_much_as_one_of_a_common_class() -> None:
    """Two opposite texts of the rare class are two texts of eight, though one pair of sixteen."""
    common, rare = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    vectors = torch.stack([common] * 6 + [rare, -rare])
    assert contrast(vectors, torch.tensor([0] * 6 + [1, 1])).item() == pytest.approx(2 / 8 * 4)


def test_contrast_of_a_batch_without_pairs_of_a_kind_is_finite_and_so_is_its_gradient() -> None:
    for classes in ([0, 0, 0], [0, 1, 2], [0]):
        vectors = torch.randn(len(classes), 4, requires_grad=True)
        loss = contrast(vectors, torch.tensor(classes))
        loss.backward()
        assert vectors.grad is not None
        assert torch.isfinite(loss)
        assert torch.isfinite(vectors.grad).all()
