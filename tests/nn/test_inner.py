"""The mix inside: equal to the plain encoder where it must be, to a slow sum elsewhere; saved and copied."""

import copy
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from transformers import AutoModel

from bermo.encoders.backbone import hidden_states, load_encoder
from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoModel
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.inner import InnerMix
from tests import tiny


def mixed_inside(kind: str, family: str = "bert") -> BermoModel:
    torch.manual_seed(0)
    config = BermoConfig(tiny.make_config(family), mix=None, inner_mix=kind)
    return BermoModel(config).eval()


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "modernbert"])
def test_one_hot_shares_on_the_layer_below_give_the_plain_encoder_to_the_bit(family: str) -> None:
    mixed = mixed_inside("raw", family)
    plain = BermoModel(BermoConfig(tiny.make_config(family), mix=None)).eval()
    plain.load_state_dict(mixed.state_dict(), strict=False)
    inner = mixed.backbone.inner_mix
    assert isinstance(inner, InnerMix)
    with torch.no_grad():
        inner.logits.fill_(-torch.inf)
        inner.logits[range(2), range(1, 3)] = 0.0
    batch = tiny.make_batch(family)
    with torch.no_grad():
        assert torch.equal(mixed(**batch)[0], plain(**batch)[0])


def test_each_layer_reads_the_scaled_sum_of_the_normalised_layers_below() -> None:
    mix = InnerMix(4, "within")
    torch.nn.init.normal_(mix.logits)
    torch.nn.init.normal_(mix.scale)
    hidden = torch.randn(4, 2, 3, 8)
    assert torch.equal(mix.read(0, hidden[0]), hidden[0])
    for k in range(1, 4):
        shares = torch.softmax(mix.logits[k - 1, : k + 1], dim=0)
        expected = sum(shares[j] * functional.layer_norm(hidden[j], (8,)) for j in range(k + 1))
        torch.testing.assert_close(mix.read(k, hidden[k]), mix.scale[k - 1] * expected)
        torch.testing.assert_close(mix.weights[k - 1, : k + 1], shares.detach())
    assert mix.weights[0, 2:].eq(0).all()


def test_streaming_sees_the_layers_that_stacking_sees() -> None:
    model = BermoModel(BermoConfig(tiny.make_config("bert"), mix="within", inner_mix="within"))
    model.eval()
    batch = tiny.make_batch("bert")
    with torch.no_grad():
        streamed = model(**batch)[0]
    torch.testing.assert_close(streamed, model(**batch)[0].detach())


def test_gradients_reach_every_share() -> None:
    mixed = mixed_inside("within")
    hidden_states(mixed.backbone, tiny.make_batch("bert")).last_hidden_state.square().sum().backward()  # type: ignore[union-attr]
    inner = mixed.backbone.inner_mix
    assert (inner.logits.grad != 0).sum() == 2 + 3
    assert (inner.scale.grad != 0).all()


def test_it_is_saved_loaded_and_fine_tuned_from_its_folder(tmp_path: Path) -> None:
    mixed = mixed_inside("within")
    torch.nn.init.normal_(mixed.backbone.inner_mix.logits)
    mixed.save_pretrained(tmp_path)
    batch = tiny.make_batch("bert")
    again = AutoModel.from_pretrained(tmp_path).eval()
    bare = load_encoder(tmp_path).encoder.eval()
    with torch.no_grad():
        expected = mixed(**batch)[0]
        assert torch.equal(again(**batch)[0], expected)
        assert torch.equal(bare(**batch)[0], expected)
    tuned = BermoForSequenceClassification.from_backbone(tmp_path, num_labels=2)
    tuned.save_pretrained(tmp_path / "tuned")
    back = BermoForSequenceClassification.from_pretrained(tmp_path / "tuned").eval()
    with torch.no_grad():
        assert torch.equal(back(**batch).logits, tuned(**batch).logits)
        assert torch.equal(back.core.backbone.inner_mix.logits, mixed.backbone.inner_mix.logits)


def test_a_copy_reads_its_own_mix() -> None:
    mixed = mixed_inside("raw")
    batch = tiny.make_batch("bert")
    with torch.no_grad():
        before = mixed(**batch)[0]
        copied = copy.deepcopy(mixed)
        copied.backbone.inner_mix.scale.fill_(3.0)
        assert torch.equal(mixed(**batch)[0], before)
        assert not torch.equal(copied(**batch)[0], before)


def test_shared_layers_and_repeated_ones_are_refused() -> None:
    with pytest.raises(BermoError, match="which albert does not have"):
        mixed_inside("within", "albert")
    mix = InnerMix(3)
    mix.read(0, torch.zeros(1, 1, 4))
    with pytest.raises(BermoError, match="given h_2 after 1 layers"):
        mix.read(2, torch.zeros(1, 1, 4))
