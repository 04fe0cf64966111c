"""Products with a pruned matrix are timed, and are products of that matrix."""

import importlib
from types import ModuleType

import pytest
import torch

from tests.benchmarks.tiny_step import BENCHMARKS

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("sparse_products")


def test_the_two_largest_of_four_neighbours_stay(sparse: ModuleType) -> None:
    kept = sparse.two_of_four(torch.tensor([[1.0, -4.0, 0.0, 2.0, 0.0, 0.0, 5.0, 0.0]]))
    assert kept.tolist() == [[0.0, -4.0, 0.0, 2.0, 0.0, 0.0, 5.0, 0.0]]


def test_every_way_gives_the_product_of_the_same_matrix(sparse: ModuleType) -> None:
    weight = torch.randn(8, 12) * (torch.rand(8, 12) < 0.3)
    ways = sparse.products(weight, torch.randn(5, 12))
    torch.testing.assert_close(ways["csr"]().T, ways["dense"]())


def test_a_row_says_what_blocks_and_two_of_four_would_save(
    sparse: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "SHAPES", {"small": (32, 48)})
    row = sparse.measure("small", 4, 0.1, torch.device("cpu"))
    assert row["us"]["dense"] > 0
    assert row["blocks"] == pytest.approx(100)
    assert 0 <= row["lost"] < 5
