"""An encoder inside another model: cut, put back, exported."""

import copy
from pathlib import Path

import onnxruntime
import pytest
import torch
from transformers import AutoModel

import bermo
from bermo.encoders.sites import layers_of
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from tests.ship.shrink.tagger import Tagger, batches, make
from tests.tiny import make_config


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "deberta-v2"])
def test_layers_heads_and_neurons_go_and_the_model_still_answers(family: str) -> None:
    config = make_config(family)
    torch.manual_seed(0)
    encoder = AutoModel.from_config(config).eval()
    before = {group.kind: group.count for group in groups_of(encoder)}
    small = bermo.cut_encoder(encoder, heads=0.5, neurons=0.25)
    after = {group.kind: group.count for group in groups_of(small)}
    assert after == {"heads": before["heads"] // 2, "neurons": before["neurons"] // 4}
    model = Tagger(encoder)
    bermo.replace_encoder_(model, "token_rep.encoder", small)
    assert model(**batches(1)[0]).isfinite().all()


def test_layers_that_stay_are_the_same() -> None:
    encoder = make().token_rep.encoder
    small = bermo.cut_encoder(encoder, layers=(1, 3))
    kept = zip(layers_of(small), (layers_of(encoder)[0], layers_of(encoder)[2]), strict=True)
    for ours, theirs in kept:
        pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    whole = bermo.cut_encoder(encoder, layers=(1, 2, 3))
    batch = batches(1)[0]
    assert torch.equal(whole(**batch).last_hidden_state, encoder(**batch).last_hidden_state)
    assert small.config.num_hidden_layers == 2
    assert encoder.config.num_hidden_layers == 3


def test_a_part_that_the_encoder_lacks_does_not_come_back() -> None:
    encoder = bermo.box()  # it has no pooler
    small = bermo.cut_encoder(encoder, layers=(1, 2))
    names = {name for name, child in encoder.named_children() if child is not None}
    assert {name for name, child in small.named_children() if child is not None} == names


def test_even_neurons_are_stock_and_other_shapes_come_back(tmp_path: Path) -> None:
    encoder, batch = make().token_rep.encoder, batches(1)[0]
    stock = bermo.cut_encoder(encoder, neurons=0.5)
    stock.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert torch.equal(again(**batch).last_hidden_state, stock(**batch).last_hidden_state)
    small = bermo.cut_encoder(encoder, layers=(2,), heads=0.5, neurons=0.5)
    built = AutoModel.from_config(copy.deepcopy(small.config)).eval()
    bermo.give_shape_(built)
    built.load_state_dict(small.state_dict())
    assert torch.equal(built(**batch).last_hidden_state, small(**batch).last_hidden_state)


def test_the_whole_model_is_exported_and_answers_other_sizes(tmp_path: Path) -> None:
    model = make(layers=1)
    encoder = bermo.cut_encoder(model.token_rep.encoder, heads=0.5)
    bermo.replace_encoder_(model, "token_rep.encoder", encoder)
    assert bermo.export_module(model, batches(1)[0], tmp_path / "model.onnx") < 1e-4
    batch = {name: value[:3, :7] for name, value in batches(1)[0].items()}
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(None, {name: value.numpy() for name, value in batch.items()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), model(**batch), rtol=1e-3, atol=1e-4)
    with pytest.raises(BermoError, match="is not overwritten"):
        bermo.export_module(model, batch, tmp_path / "model.onnx")


def test_what_does_not_fit_is_a_sentence() -> None:
    model = make()
    encoder = model.token_rep.encoder
    with pytest.raises(BermoError, match=r'no part "bert". Encoders are at: token_rep.encoder'):
        bermo.replace_encoder_(model, "bert", encoder)
    config = make_config("bert")
    config.hidden_size *= 2
    with pytest.raises(BermoError, match="Cut the encoder that is there: its width stays"):
        bermo.replace_encoder_(model, "token_rep.encoder", AutoModel.from_config(config))
    with pytest.raises(BermoError, match="heads must be a share over 0"):
        bermo.cut_encoder(encoder, heads=0)
    with pytest.raises(BermoError, match="was cut already"):
        bermo.cut_encoder(bermo.cut_encoder(encoder, heads=0.5), neurons=0.5)
    with pytest.raises(BermoError, match="rising numbers from 1 to 3"):
        bermo.cut_encoder(encoder, layers=(3, 1))
