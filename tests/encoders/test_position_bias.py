"""The position bias of our own: transformers' numbers, laid out as torch's fast attention takes them."""

import torch
from torch import nn
from transformers import AutoModel, MPNetConfig, XLNetConfig, XLNetModel
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from bermo.encoders.position_bias import set_position_bias_
from tests.tiny import make_config


def encoder() -> MPNetEncoder:
    config = MPNetConfig(hidden_size=12, num_attention_heads=3, num_hidden_layers=1, intermediate_size=8)
    return MPNetEncoder(config)


def test_the_bias_is_that_of_transformers_and_lies_row_by_row() -> None:
    ours, hidden = encoder(), torch.zeros(4, 7, 12)
    expected = ours.compute_position_bias(hidden)
    set_position_bias_(ours)
    bias = ours.compute_position_bias(hidden)
    assert torch.equal(bias, expected)
    assert bias.stride()[-2:] == (7, 1), "torch's fast attention refuses a mask with another last stride"


def test_each_model_of_a_stack_has_its_own_bias() -> None:
    members = [encoder() for _ in range(2)]
    hidden = torch.zeros(2, 5, 12)
    expected = [member.compute_position_bias(hidden) for member in members]
    joint = encoder()
    tables = [member.relative_attention_bias.weight.detach() for member in members]
    joint.relative_attention_bias.weight = nn.Parameter(torch.stack(tables))
    set_position_bias_(joint)
    assert torch.equal(joint.compute_position_bias(hidden.repeat(2, 1, 1)), torch.cat(expected))


def test_waves_of_distances_are_those_of_transformers_and_made_once() -> None:
    config = XLNetConfig(vocab_size=20, d_model=8, n_layer=1, n_head=2, d_inner=8)
    model = XLNetModel(config).eval()
    ids = torch.arange(10).view(2, 5)
    expected = model(ids).last_hidden_state
    set_position_bias_(model)
    set_position_bias_(model)
    assert torch.equal(model(ids).last_hidden_state, expected)
    assert torch.equal(model(ids[:, :3]).last_hidden_state, XLNetModel.forward(model, ids[:, :3])[0])
    first, again = (model.relative_positional_encoding(5, 5, bsz=2) for _ in range(2))
    assert first is again


def test_waves_of_distances_lie_where_the_weights_are() -> None:
    model = XLNetModel(XLNetConfig(vocab_size=20, d_model=8, n_layer=1, n_head=2, d_inner=8))
    set_position_bias_(model)
    assert model.relative_positional_encoding(5, 5, bsz=2).device.type == "cpu"
    model.to("meta")
    assert model.relative_positional_encoding(5, 5, bsz=2).device.type == "meta"


def test_groups_of_distances_are_those_of_transformers_made_once_and_serve_a_training_step() -> None:
    model = AutoModel.from_config(make_config("deberta-v2")).eval()
    ids = torch.arange(5, 15).view(2, 5)
    expected = model(ids).last_hidden_state
    set_position_bias_(model)
    with torch.inference_mode():
        assert torch.equal(model(ids).last_hidden_state, expected)
    model(ids).last_hidden_state.sum().backward()
    first, again = (model.encoder.get_rel_pos(torch.zeros(2, 5, 16)) for _ in range(2))
    assert first is again
    assert model.encoder.get_rel_pos(torch.zeros(2, 3, 16)).shape == (1, 3, 3)
