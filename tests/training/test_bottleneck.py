"""MobileBERT's fused pass, in Triton's interpreter on the CPU, equals the plain one."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bermo
from bermo.nn.fast.shadow import Shadow, are_side_by_side
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.training.bottleneck import in_order_of_products, is_bottlenecked, products
from bermo.training.fuse import NOTHING, Fused, Fusion
from bermo.training.gradient_gap import gradient_gap, nearly_no_dropout
from bermo.training.step import call_with_copies, linear_parameters
from tests.fused_pass import CPU, Pass, assert_equal, fused_loss, fused_pass, round_as_gpus
from tests.small_models import model_of, small_batch, without_dropout
from tests.tiny import make_config

pytest.importorskip("triton", reason="needs Triton")
BOTTLENECK = Fused(**{name: False for name in vars(Fused()) if name != "bottleneck"})


def wide_model(layers: int = 2) -> nn.Module:
    """A model whose vectors are of 16 elements, so that those of neighbouring layers lie side by side."""
    config = make_config("mobilebert")
    config.num_hidden_layers, config.intra_bottleneck_size, config.num_feedforward_networks = layers, 16, 3
    config.true_hidden_size, config.intermediate_size = 16, 32
    torch.manual_seed(0)
    model = bermo.BermoForSequenceClassification.from_backbone(config, num_labels=2).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.mix.dropout = 0.0
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "narrow": lambda: without_dropout("mobilebert"),
    "wide": wide_model,
}


def passes(model: str, is_pruned: bool = False, dtype: torch.dtype = torch.float32) -> tuple[Pass, Pass]:
    """The fused and the plain pass."""
    fused, plain = (
        fused_pass(one, small_batch(one), parts, is_pruned, dtype)
        for one, parts in ((MODELS[model](), Fused()), (MODELS[model](), NOTHING))
    )
    return fused, plain


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("is_pruned", [False, True])
def test_the_fused_pass_gives_the_plain_loss_and_gradients(model: str, is_pruned: bool) -> None:
    assert_equal(*passes(model, is_pruned))


def test_gradients_in_half_precision_are_rounded_as_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    round_as_gpus(monkeypatch)
    fused, plain = passes("wide", dtype=torch.bfloat16)
    names = list(plain.gradients)
    both = [[found.gradients[name] for name in names] for found in (plain, fused)]
    assert gradient_gap(names, *both) < 2e-2


def test_layers_are_fused_alone_or_left_out() -> None:
    model = without_dropout("mobilebert")
    plain = fused_pass(model, small_batch(model), NOTHING)
    for parts, count in ((BOTTLENECK, 8), (Fused(bottleneck=False, mix=False), 0)):
        model = without_dropout("mobilebert")
        found = fused_pass(model, small_batch(model), parts)
        assert found.num_overrides == count
        assert_equal(found, plain)


@pytest.mark.parametrize("is_pruned", [False, True])
def test_matrices_of_one_product_are_neighbours_and_so_are_their_gradients(is_pruned: bool) -> None:
    model, masked = wide_model(), ()
    if is_pruned:
        schedule = CubicSchedule(total_steps=9, warmup_steps=1)
        pruner = prune_(model, Movement(density=0.5, rank="score"), schedule)
        pruner.at(5)
        masked = pruner.simple_masks()
    shadow = Shadow(
        in_order_of_products(model, masked, itemgetter(1)), linear_parameters(model), torch.float32
    )
    plain = [c for name, c in shadow.plain.items() if name.endswith("weight") and "layer" in name]
    copies = shadow.masked_copies() if is_pruned else plain
    shadow.keep_grads_(copies)
    shadow.refresh()
    layer: Any = model.core.backbone.encoder.layer[1]
    with Fusion(model, shadow, BOTTLENECK).active(CPU), torch.enable_grad():
        loss = call_with_copies(model, shadow.plain, small_batch(model)).loss
    loss.backward()
    direct = [copy.grad.data_ptr() == shadow.grad_views[id(copy)].data_ptr() for copy in copies]
    assert len(copies) == 2 * 13
    assert all(direct)
    for linears in products(layer):
        names = [name for name, module in model.named_modules() if any(module is one for one in linears)]
        biases = [shadow.plain[f"{name}.bias"] for name in names]
        assert {b.shape for b in biases} == {linears[0].bias.shape}
        assert are_side_by_side(sorted(biases, key=Tensor.data_ptr))


def test_other_models_keep_the_order_of_their_parameters() -> None:
    model = model_of("bert")
    named = list(model.named_parameters())
    assert in_order_of_products(model, named, itemgetter(1)) == named


def test_dropout_at_the_end_of_a_layer_is_drawn_by_its_kernel() -> None:
    model, batch = without_dropout("mobilebert", layers=1), small_batch(without_dropout("mobilebert"))
    plain = fused_loss(model, batch)
    model.core.backbone.encoder.layer[0].output.bottleneck.dropout.p = 0.5
    assert fused_loss(model, batch) == fused_loss(model, batch)
    assert fused_loss(model, batch, seed=1) != fused_loss(model, batch) != plain
    with nearly_no_dropout(model):
        assert fused_loss(model, batch) == pytest.approx(plain, rel=1e-4)


def doubled(module: nn.Module, args: object, output: Any) -> Any:
    return (output[0] * 2, *output[1:]) if isinstance(output, tuple) else output * 2


HOOKS: dict[str, Callable[[Any], nn.Module]] = {
    "layer": lambda layer: layer,
    "attention": lambda layer: layer.attention.self,
    "query": lambda layer: layer.attention.self.query,
    "scale": lambda layer: layer.ffn[0].output.LayerNorm,
    "bottleneck": lambda layer: layer.bottleneck.input,
}


@pytest.mark.parametrize("place", list(HOOKS))
def test_hooks_that_change_what_a_module_returns_are_obeyed(place: str) -> None:
    found = []
    for parts in (BOTTLENECK, NOTHING):
        model = without_dropout("mobilebert")
        HOOKS[place](model.core.backbone.encoder.layer[0]).register_forward_hook(doubled)
        found.append(fused_pass(model, small_batch(model), parts))
    assert_equal(*found)
    assert found[0].num_overrides == (8 if place in ("layer", "attention") else 4)


def test_an_attention_that_reads_something_else_computes_it_itself() -> None:
    found = []
    for parts in (Fused(), NOTHING):
        model = without_dropout("mobilebert")
        own = model.core.backbone.encoder.layer[0].attention.self
        own.register_forward_pre_hook(lambda _, args: (args[0] * 2, *args[1:]))
        found.append(fused_pass(model, small_batch(model), parts))
    assert_equal(*found)


def test_layers_of_another_structure_are_left_alone() -> None:
    assert not any(map(is_bottlenecked, model_of("bert").modules()))
    layer: Any = model_of("mobilebert").core.backbone.encoder.layer[0]
    assert is_bottlenecked(layer)
    layer.intermediate.intermediate_act_fn = nn.GELU()
    assert not is_bottlenecked(layer)
    for change in ({"use_bottleneck_attention": True}, {"normalization_type": "layer_norm"}):
        config = make_config("mobilebert")
        for name, value in change.items():
            setattr(config, name, value)
        model = bermo.BermoForSequenceClassification.from_backbone(config, num_labels=2)
        assert not any(map(is_bottlenecked, model.modules()))
