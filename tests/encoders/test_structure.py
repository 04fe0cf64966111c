"""Heads and neurons of every family: whose columns are which, and taking them out changes no number."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, DebertaConfig

import bermo
from bermo.encoders.sites import layers_of, prunable_sites
from bermo.encoders.structure import ClosedAttention, Structure, groups_of, structure_of
from bermo.errors import BermoError
from bermo.pruning.fold import count
from bermo.ship.shrink.delete import shrink, size_of
from tests.tiny import CONFIGS, SIZES, make_batch, make_config


def model_of(family: str) -> bermo.BermoForSequenceClassification:
    """A model in double precision, so that only a wrong row or column shows, and no rounding."""
    torch.manual_seed(0)
    kind = bermo.BermoForSequenceClassification
    return kind.from_backbone(make_config(family), num_labels=2, mix="raw").double()


def kill_(model: bermo.BermoForSequenceClassification, whole_layer: int | None) -> None:
    """Zero the columns of the first head and of every third neuron, or of all units of one layer."""
    with torch.no_grad():
        for group in groups_of(model):
            gone = torch.arange(group.count) % 3 == 0
            group.zero_units_(gone | (group.layer == whole_layer))


def logits(model: torch.nn.Module, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return model(**batch).logits


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert", "deberta", "mobilebert", "distilbert"])
def test_a_unit_is_the_columns_that_its_activations_meet(family: str) -> None:
    """Parity with the slow way: set a unit's activations to zero, where the reading matrix is a module."""
    model, batch = model_of(family), make_batch(family)
    for group in [g for g in groups_of(model) if g.layer == len(layers_of(model))]:
        if group.output.parameter != "weight":
            continue

        def silence(module: torch.nn.Module, args: tuple[Tensor], size: int = group.size) -> Tensor:
            inputs = args[0].clone()
            inputs[..., :size] = 0
            return inputs

        handle = group.output.module.register_forward_pre_hook(silence)
        expected = logits(model, batch)
        handle.remove()
        changed = copy.deepcopy(model)
        twin = next(g for g in groups_of(changed) if g.name == group.name)
        with torch.no_grad():
            twin.zero_units_(torch.arange(group.count) == 0)
        assert not torch.equal(logits(model, batch), expected), group.name
        torch.testing.assert_close(logits(changed, batch), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_shrinks_saves_reloads_and_trains_with_the_same_logits(
    family: str, tmp_path: Path
) -> None:
    """A part of layers 1 and 3 goes, and all of layer 2; ALBERT has one layer for all."""
    model, batch = model_of(family), make_batch(family)
    dense = logits(model, batch)
    kill_(model, whole_layer=2)
    expected = logits(model, batch)
    assert not torch.allclose(dense, expected, atol=1e-3), "the pruned units mattered"
    small = shrink(model)
    torch.testing.assert_close(logits(small, batch), expected, rtol=0, atol=1e-12)
    assert torch.equal(logits(model, batch), expected), "the model itself is unchanged"
    before, after = size_of(model), size_of(small)
    assert after.parameters < before.parameters
    assert after.heads < before.heads
    assert after.neurons < before.neurons
    small.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).double()
    assert structure_of(again) == structure_of(small)
    assert torch.equal(logits(again, batch), logits(small, batch))
    again.float().train()(**batch, labels=torch.tensor([0, 1, 1])).loss.backward()
    assert all(site.original.grad is not None for site in prunable_sites(again) if site.layer != 2)


def test_a_shrunk_model_is_counted_by_what_it_has() -> None:
    model = model_of("bert")
    kill_(model, None)
    small = shrink(model)
    counted = count(small)
    assert counted.model_total == counted.model_kept == sum(p.numel() for p in small.parameters())
    assert {site.original.shape[0] for site in prunable_sites(small)} == {8, 16}


def test_a_model_is_shrunk_again_after_more_pruning() -> None:
    """MPNet hands one bias a head to all layers, so the numbers of the first heads must survive two cuts."""
    config = make_config("mpnet")
    config.num_attention_heads = 4
    torch.manual_seed(0)
    kind = bermo.BermoForSequenceClassification
    model = kind.from_backbone(config, num_labels=2, mix="raw").double()
    batch = make_batch("mpnet")
    for dead in (1, 0):
        with torch.no_grad():
            for group in groups_of(model):
                group.zero_units_(torch.arange(group.count) == dead)
        expected = logits(model, batch)
        model = shrink(model)
        torch.testing.assert_close(logits(model, batch), expected, rtol=0, atol=1e-12)
    assert structure_of(model).layers[0].heads == (2, 3)


def test_an_attention_without_heads_is_its_bias() -> None:
    model = model_of("bert")
    kill_(model, 2)
    small = shrink(model)
    attention = layers_of(small)[1].attention
    assert isinstance(attention.self, ClosedAttention)
    assert attention.output.dense.weight.shape == (16, 0)
    assert size_of(small).layers == 2


def test_a_structure_survives_the_config() -> None:
    structure = structure_of(model_of("mobilebert"))
    assert Structure.from_dict(structure.to_dict()) == structure
    assert structure.layers[0].neurons == (24, 24)


def test_heads_that_are_mixed_with_each_other_are_refused() -> None:
    config = DebertaConfig(**SIZES, talking_head=True)
    model = bermo.BermoForSequenceClassification.from_backbone(config, num_labels=2)
    with pytest.raises(BermoError, match="mixed with each other"):
        groups_of(model)


def test_a_config_with_shapes_for_other_layers_is_refused() -> None:
    model = model_of("bert")
    kill_(model, None)
    config = shrink(model).config
    config.structure["layers"] = config.structure["layers"][:2]
    with pytest.raises(BermoError, match="records 2 layer shapes"):
        bermo.BermoForSequenceClassification(config)
