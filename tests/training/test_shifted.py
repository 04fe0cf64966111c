"""XLNet's fused pass, in Triton's interpreter on the CPU, equals the plain one."""

import pytest
import torch
from torch import Tensor, nn

from bermo.training.fuse import NOTHING, Fused, Fusion
from bermo.training.gradient_gap import gradient_gap
from bermo.training.shifted import is_feed_forward, is_shifted
from tests.fused_pass import CPU, Pass, assert_equal, fused_loss, fused_pass, kept_gradients
from tests.small_models import without_dropout
from tests.tiny import make_batch

pytest.importorskip("triton", reason="needs Triton")


def batch_of(length: int, has_segments: bool) -> dict[str, Tensor]:
    """Two texts, the second with padding on the left."""
    batch = make_batch("xlnet", texts=2, length=length)
    if has_segments:
        batch["token_type_ids"] = (torch.arange(length) > 2).long().expand(2, length)
    return batch | {"labels": torch.tensor([0, 1])}


def passes(
    length: int, has_segments: bool, is_pruned: bool = False, dtype: torch.dtype = torch.float32
) -> tuple[Pass, Pass]:
    """The fused and the plain pass."""
    batch = batch_of(length, has_segments)
    fused, plain = (
        fused_pass(without_dropout("xlnet"), batch, parts, is_pruned, dtype) for parts in (Fused(), NOTHING)
    )
    return fused, plain


@pytest.mark.parametrize(
    ("length", "has_segments", "is_pruned"), [(6, False, False), (5, True, False), (5, True, True)]
)
def test_the_fused_pass_gives_the_plain_loss_and_gradients(
    length: int, has_segments: bool, is_pruned: bool
) -> None:
    assert_equal(*passes(length, has_segments, is_pruned))


def test_gradients_in_bfloat16_are_those_of_the_plain_pass_but_for_rounding() -> None:
    fused, plain = passes(6, has_segments=True, dtype=torch.bfloat16)
    names = list(plain.gradients)
    assert set(fused.gradients) == set(names)
    both = [[found.gradients[name] for name in names] for found in (plain, fused)]
    assert gradient_gap(names, *both) < 0.1


def test_both_blocks_of_each_layer_are_known_and_hooks_keep_them_as_they_are() -> None:
    model = without_dropout("xlnet")
    assert sum(map(is_shifted, model.modules())) == sum(map(is_feed_forward, model.modules())) == 2
    layer = model.core.backbone.layer[0]
    layer.rel_attn.layer_norm.register_forward_hook(lambda *_: None)
    layer.ff.layer_1.register_forward_hook(lambda *_: None)
    assert not is_shifted(layer.rel_attn)
    assert not is_feed_forward(layer.ff)


def test_two_streams_and_attentions_that_are_asked_for_are_the_modules_own() -> None:
    model = without_dropout("xlnet").eval()
    attention: nn.Module = model.core.backbone.layer[0].rel_attn
    h, rows = torch.randn(4, 2, 16), torch.randn(8, 2, 16)
    cases = [(None, True), (torch.randn(4, 2, 16), False)]
    for stream, wants in cases:
        given = (h, stream, None, None, rows, None, None, None, wants)
        expected = attention(*given)
        with Fusion(model, None, Fused()).active(CPU):
            found = attention(*given)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_every_dropout_of_both_blocks_is_drawn_in_each_pass() -> None:
    model, batch = without_dropout("xlnet", layers=1), batch_of(3, False)
    layer, plain = model.core.backbone.layer[0], fused_loss(model, batch)
    for dropout in (layer.rel_attn.dropout, layer.ff.dropout):
        dropout.p = 0.5
        assert fused_loss(model, batch) == fused_loss(model, batch) != plain
        dropout.p = 0.0


def test_matrices_of_attention_get_their_gradients_where_the_optimiser_reads_them() -> None:
    batch = batch_of(5, False)
    found = kept_gradients(without_dropout("xlnet"), batch, Fused())
    plain = fused_pass(without_dropout("xlnet"), batch, NOTHING).gradients
    assert all(any(key.endswith(f"rel_attn.{name}") for key in found) for name in "qkvor")
    for name, grad in found.items():
        torch.testing.assert_close(grad, plain[name], rtol=1e-3, atol=1e-4)
