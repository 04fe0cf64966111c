"""DeBERTa's fused pass, in Triton's interpreter on the CPU, equals the plain one."""

import pytest
import torch
from torch import nn

import bermo
from bermo.encoders.position_bias import set_position_bias_
from bermo.nn.fast.shadow import Shadow
from bermo.training.disentangled import is_disentangled
from bermo.training.fuse import NOTHING, Fused, Fusion
from bermo.training.gradient_gap import gradient_gap
from tests.fused_pass import (
    CPU,
    Pass,
    assert_equal,
    fused_loss,
    fused_pass,
    kept_gradients,
    round_as_gpus,
)
from tests.small_models import without_dropout
from tests.tiny import make_batch, make_config

pytest.importorskip("triton", reason="needs Triton")
LABELS = torch.tensor([0, 1])


def one_layer(family: str, **options: object) -> nn.Module:
    """A model of one layer without dropout; the options are its encoder's."""
    torch.manual_seed(0)
    config = make_config(family)
    config.update({"num_hidden_layers": 1, **options})
    model = bermo.BermoForSequenceClassification.from_backbone(config, num_labels=2).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.mix.dropout = 0.0
    return model


def passes(
    family: str, length: int, is_pruned: bool = False, dtype: torch.dtype = torch.float32, **options: object
) -> tuple[Pass, Pass]:
    """The fused and the plain pass over two texts, the second with padding."""
    batch = make_batch(family, texts=2, length=length) | {"labels": LABELS}
    fused, plain = (
        fused_pass(one_layer(family, **options), batch, parts, is_pruned, dtype)
        for parts in (Fused(), NOTHING)
    )
    return fused, plain


@pytest.mark.parametrize(
    ("family", "is_pruned", "options"),
    [
        ("deberta", True, {}),
        ("deberta", True, {"num_hidden_layers": 3}),
        ("deberta", False, {"max_relative_positions": 5}),
        ("deberta-v2", True, {}),
        ("deberta-v2", False, {"share_att_key": True, "conv_kernel_size": 0}),
        ("deberta-v2", False, {"share_att_key": True, "conv_kernel_size": 0, "num_hidden_layers": 3}),
        ("deberta-v2", False, {"conv_kernel_size": 0, "num_hidden_layers": 2}),
        ("deberta-v2", False, {"position_buckets": -1, "norm_rel_ebd": "none"}),
    ],
)
def test_the_fused_pass_gives_the_plain_loss_and_gradients(
    family: str, is_pruned: bool, options: dict[str, object]
) -> None:
    assert_equal(*passes(family, 4, is_pruned, **options))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("deberta", {"max_relative_positions": 5}),
        ("deberta-v2", {"max_position_embeddings": 12}),
        ("deberta-v2", {"position_buckets": -1, "max_relative_positions": 5, "share_att_key": True}),
    ],
)
def test_distances_that_share_a_row_of_the_table_are_right_too(
    family: str, options: dict[str, object]
) -> None:
    assert_equal(*passes(family, 11, **options))


# At other lengths, and with v2's convolution, the two texts' gradients cancel, and all rounding is large.
@pytest.mark.parametrize(
    ("family", "length", "options"), [("deberta", 8, {}), ("deberta-v2", 6, {"conv_kernel_size": 0})]
)
def test_gradients_in_bfloat16_are_those_of_the_plain_pass_but_for_rounding(
    family: str, length: int, options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    round_as_gpus(monkeypatch)
    fused, plain = passes(family, length, dtype=torch.bfloat16, **options)
    names = list(plain.gradients)
    assert set(fused.gradients) == set(names)
    both = [[found.gradients[name] for name in names] for found in (plain, fused)]
    assert gradient_gap(names, *both) < 0.1


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
def test_dropout_of_attention_and_of_the_table_is_drawn_in_each_pass(family: str) -> None:
    model = one_layer(family)
    core = next(module for module in model.modules() if is_disentangled(module))
    batch = make_batch(family, texts=2, length=4) | {"labels": LABELS}
    plain = fused_loss(model, batch)
    for dropout in (core.dropout, core.pos_dropout):
        dropout.p = 0.5
        assert fused_loss(model, batch) == fused_loss(model, batch) != plain
        dropout.p = 0.0


def test_attentions_that_are_asked_for_are_the_modules_own() -> None:
    model = one_layer("deberta-v2").eval()
    core = next(module for module in model.modules() if is_disentangled(module))
    x, table = torch.randn(2, 4, 16), torch.randn(16, 16)
    mask = torch.ones(2, 1, 4, 4)
    distances = model.core.backbone.encoder.get_rel_pos(x)
    given = {"relative_pos": distances, "rel_embeddings": table}
    expected, shares = core(x, mask, output_attentions=True, **given)
    wide = Shadow((), {}, torch.float32)
    with Fusion(model, wide, Fused()).active(CPU):
        found, same = core(x, mask, output_attentions=True, **given)
        fused, none = core(x, mask, **given)
    assert torch.equal(found, expected)
    assert torch.equal(same, shares)
    assert none is None
    torch.testing.assert_close(fused, expected, rtol=1e-4, atol=1e-5)


def test_what_torch_computes_otherwise_is_not_taken() -> None:
    for options in ({"talking_head": True}, {"pos_att_type": ["c2p"]}, {"relative_attention": False}):
        assert not any(is_disentangled(module) for module in one_layer("deberta", **options).modules())
    model = one_layer("deberta")
    core = next(module for module in model.modules() if is_disentangled(module))
    core.in_proj.register_forward_hook(lambda *_: None)
    assert not is_disentangled(core)


def test_kept_distances_serve_one_pass_after_another() -> None:
    batch = make_batch("deberta-v2", texts=2, length=4) | {"labels": LABELS}
    model = without_dropout("deberta-v2")
    set_position_bias_(model)
    assert fused_loss(model, batch) == fused_loss(model, batch)


@pytest.mark.parametrize(
    ("family", "options", "names"),
    [
        ("deberta", {}, ("in_proj", "pos_proj", "pos_q_proj")),
        ("deberta", {"num_hidden_layers": 2}, ("0.attention.self.pos_proj", "1.attention.self.pos_q_proj")),
        ("deberta-v2", {"share_att_key": True}, ("query_proj", "key_proj", "value_proj")),
        (
            "deberta-v2",
            {"share_att_key": True, "num_hidden_layers": 3},
            ("query_proj", "2.attention.self.key_proj"),
        ),
        ("deberta-v2", {}, ("query_proj", "key_proj", "value_proj", "pos_key_proj", "pos_query_proj")),
    ],
)
def test_matrices_of_attention_get_their_gradients_where_the_optimiser_reads_them(
    family: str, options: dict[str, object], names: tuple[str, ...]
) -> None:
    batch = make_batch(family, texts=2, length=5) | {"labels": LABELS}
    found = kept_gradients(one_layer(family, **options), batch, Fused())
    plain = fused_pass(one_layer(family, **options), batch, NOTHING).gradients
    assert all(any(f".{name}.weight" in key for key in found) for name in names)
    for name, grad in found.items():
        torch.testing.assert_close(grad, plain[name], rtol=1e-3, atol=1e-4)
