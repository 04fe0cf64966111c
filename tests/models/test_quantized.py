"""Fake quantisers round what they should, and a model's weights stay what they are."""

import torch

from bermo.models.quantized import attach_quantizers_, switch_of, without_quantizers
from bermo.pruning.fold import folded_state
from tests import tiny
from tests.ship.folders import make_model


def test_weights_are_saved_as_they_are_under_their_own_names() -> None:
    model, other = make_model(), make_model()
    attach_quantizers_(model).set_(True)
    with without_quantizers(model):
        state = folded_state(model)
    expected = other.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    assert switch_of(model).is_on


def test_quantisers_that_are_off_change_no_bit_and_on_they_round_tables_and_all_but_the_head() -> None:
    model, batch = make_model(), tiny.make_batch("bert")
    before = {name: module.weight.clone() for name, module in model.named_modules() if _is_weighty(module)}
    with torch.no_grad():
        logits = model(**batch).logits
        switch = attach_quantizers_(model)
        assert torch.equal(model(**batch).logits, logits)
        switch.set_(True)
        assert not torch.equal(model(**batch).logits, logits)
    changed = {n for n, weight in before.items() if not torch.equal(model.get_submodule(n).weight, weight)}
    small = {name for name, weight in before.items() if len(weight) < 16 or "head." in name}
    assert changed == before.keys() - small - {"bermo.backbone.embeddings.word_embeddings"}, "60 words"
    assert "bermo.backbone.embeddings.position_embeddings" in changed


def _is_weighty(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear | torch.nn.Embedding)
