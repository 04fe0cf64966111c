"""Rows of zeros: what such units add is moved into a bias, and the logits stay."""

import pytest
import torch

import bermo
from bermo.encoders.structure import groups_of
from bermo.ship.shrink.constants import constant_units
from bermo.ship.shrink.delete import is_shrinkable, shrink, size_of
from tests.tiny import make_batch, make_config


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet", "gpt2", "deberta-v2", "modernbert"])
def test_units_with_rows_of_zeros_become_a_bias(family: str) -> None:
    torch.manual_seed(0)
    kind = bermo.BermoForSequenceClassification
    model = kind.from_backbone(make_config(family), num_labels=2, mix="raw").double()
    batch, groups = make_batch(family), groups_of(model)
    with torch.no_grad():
        for group in groups:
            for site in group.inputs:
                matrix = site.original.T if site.is_transposed else site.original
                for part in matrix.chunk(group.parts):
                    part[: group.size] = 0
                if (bias := getattr(site.module, "bias", None)) is not None:
                    bias.uniform_(0.5, 1)
        expected = model(**batch).logits
        assert all(int(constant_units(model, group).sum()) <= 1 for group in groups)
        assert is_shrinkable(model)
        small = shrink(model)
        torch.testing.assert_close(
            small(**batch).logits, expected, rtol=0, atol=1e-6 if family == "modernbert" else 1e-12
        )
    assert size_of(small).heads == 3
    # Its gated neurons are left alone.
    if family != "modernbert":
        assert size_of(small).neurons == size_of(model).neurons - 3


def test_a_run_pruned_by_rows_shrinks() -> None:
    model = bermo.BermoForSequenceClassification.from_backbone(make_config("bert"), num_labels=2)
    schedule = bermo.CubicSchedule(total_steps=10, warmup_steps=2)
    bermo.prune_(model, bermo.Magnitude(density=0.5, block=(1, 0)), schedule).at(10)
    bermo.fold_(model)
    small, batch = shrink(model), make_batch("bert")
    assert size_of(small).neurons == 36
    with torch.no_grad():
        torch.testing.assert_close(small(**batch).logits, model(**batch).logits, rtol=0, atol=1e-6)
