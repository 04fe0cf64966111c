"""Every fact of every entry of the table of families is true of a tiny random model of that family."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.pytorch_utils import Conv1D

from bermo.encoders import family as types
from bermo.encoders.backbone import create_encoder, hidden_states, make_inputs
from bermo.encoders.families import FAMILIES, first_position, fused_projections, longest_input
from bermo.encoders.family import Anatomy, Family, Projections, Units
from bermo.encoders.layers import layer_modules
from bermo.encoders.structure import groups_of
from bermo.encoders.windows import NAME
from tests import tiny

EVERY_FAMILY = pytest.mark.parametrize("name", tiny.CONFIGS)


def make_encoder(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    return create_encoder(tiny.make_config(name)).eval()


def first_layer(encoder: PreTrainedModel, family: Family) -> nn.Module:
    return layer_modules(encoder, family)[0]


def has_path(module: nn.Module, path: str) -> bool:
    parent, _, name = path.rpartition(".")
    return hasattr(module.get_submodule(parent), name)


def inputs_of(encoder: PreTrainedModel, ids: Tensor) -> dict[str, Any]:
    return make_inputs(encoder, ids, torch.ones_like(ids), None, None)


@torch.no_grad()
def changed_by_the_last_token(encoder: PreTrainedModel, layer: int) -> list[bool]:
    """Tell for each token whether its vector of a layer changes with the id of the last one."""
    ids = torch.randint(5, tiny.VOCABULARY, (1, 6))
    other = ids.clone()
    other[0, -1] = 5 + (int(ids[0, -1]) - 4) % (tiny.VOCABULARY - 5)
    before, after = (hidden_states(encoder, inputs_of(encoder, x)).hidden_states for x in (ids, other))
    assert before is not None
    assert after is not None
    return (before[layer] - after[layer]).abs().amax(-1)[0].gt(1e-5).tolist()


def test_every_family_has_a_tiny_config_and_every_tiny_config_an_entry() -> None:
    assert set(FAMILIES) == {*tiny.CONFIGS, *tiny.RECURRENT}
    assert [name for name, family in FAMILIES.items() if family.anatomy is None] == list(tiny.RECURRENT)
    assert {name: tiny.make_config(name).model_type for name in FAMILIES} == {n: n for n in FAMILIES}


def test_every_fact_of_an_entry_is_named_in_this_file() -> None:
    content = Path(__file__).read_text(encoding="utf-8")
    kinds = [kind for _, kind in inspect.getmembers(types, dataclasses.is_dataclass)]
    facts = {fact.name for kind in kinds if isinstance(kind, type) for fact in dataclasses.fields(kind)}
    assert len(facts) > 25
    assert not [fact for fact in facts if f".{fact}" not in content]


@EVERY_FAMILY
def test_layers_and_embeddings_are_where_the_entry_says(name: str) -> None:
    encoder, layers = make_encoder(name), FAMILIES[name].layers
    config = encoder.config
    assert encoder.get_submodule(layers.path.partition(".*")[0])
    shared = getattr(config, "num_hidden_groups", config.num_hidden_layers)
    assert len(layer_modules(encoder, FAMILIES[name])) == shared
    words = encoder.get_input_embeddings()
    modules = [encoder.get_submodule(path) for path in layers.embeddings]
    assert any(words is inner for module in modules for inner in module.modules())
    taken = inspect.signature(first_layer(encoder, FAMILIES[name]).forward).parameters
    assert layers.num_streams == 1 + ("output_g" in taken)
    if layers.collector is not None:
        parameters = inspect.signature(encoder.get_submodule(layers.collector).forward).parameters
        assert "output_hidden_states" in parameters


@EVERY_FAMILY
def test_layers_take_time_first_or_batch_first(name: str) -> None:
    encoder, family = make_encoder(name), FAMILIES[name]
    shapes: list[torch.Size] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        shapes.append((args[0] if args else kwargs["hidden_states"]).shape)

    first_layer(encoder, family).register_forward_pre_hook(note, with_kwargs=True)
    with torch.no_grad():
        encoder(**inputs_of(encoder, torch.full((2, 5), 7)))
    assert tuple(shapes[0][:2]) == ((5, 2) if family.layers.is_time_first else (2, 5))


@EVERY_FAMILY
def test_the_call_takes_what_the_entry_says(name: str) -> None:
    encoder, inputs = make_encoder(name), FAMILIES[name].inputs
    parameters = inspect.signature(encoder.forward).parameters
    assert not inputs.has_segments or "token_type_ids" in parameters
    assert not inputs.is_decoder or "position_ids" in parameters
    assert set(inputs.options) <= set(parameters)
    given = inputs_of(encoder, torch.full((2, 5), 7))
    assert given["attention_mask"].is_floating_point() == inputs.has_float_mask
    assert FAMILIES[name].pooling == ("last" if name in ("xlnet", "gpt2") else "first")


@EVERY_FAMILY
def test_only_a_decoder_cannot_see_later_tokens(name: str) -> None:
    changed = changed_by_the_last_token(make_encoder(name), layer=-1)
    assert changed[-1]
    assert any(changed[:-1]) != FAMILIES[name].inputs.is_decoder


@EVERY_FAMILY
def test_only_embeddings_that_read_neighbours_change_with_them(name: str) -> None:
    changed = changed_by_the_last_token(make_encoder(name), layer=0)
    assert changed[-1]
    assert any(changed[:-1]) == FAMILIES[name].inputs.reads_neighbours


@EVERY_FAMILY
def test_positions_start_where_the_entry_says(name: str) -> None:
    encoder, fact = make_encoder(name), FAMILIES[name].inputs.first_position
    assert first_position(encoder.config) == (encoder.config.pad_token_id + 1 if fact is None else fact)
    length = getattr(encoder.config, "max_position_embeddings", None)
    positions: list[Tensor] = []
    for module in encoder.modules():
        if isinstance(module, nn.Embedding) and module.num_embeddings == length:
            module.register_forward_pre_hook(lambda _, args: positions.append(args[0]))
    with torch.no_grad():
        encoder(**inputs_of(encoder, torch.full((2, 5), 7)))
    assert first_position(encoder.config) == int(positions[0].min() if positions else 0)


@EVERY_FAMILY
def test_the_longest_input_is_read_and_one_token_more_is_not(name: str) -> None:
    encoder = make_encoder(name)
    longest = longest_input(encoder.config)
    assert (longest is not None) == FAMILIES[name].inputs.has_last_position
    with torch.no_grad():
        encoder(**inputs_of(encoder, torch.full((1, longest or 80), 7)))
        if longest is not None:
            with pytest.raises((IndexError, RuntimeError)):
                encoder(**inputs_of(encoder, torch.full((1, longest + 1), 7)))


def test_deberta_without_learned_positions_reads_texts_of_any_length() -> None:
    config = tiny.make_config("deberta-v2")
    config.position_biased_input = False
    assert longest_input(config) is None
    encoder = create_encoder(config).eval()
    encoder(**inputs_of(encoder, torch.full((1, 80), 7)))


@EVERY_FAMILY
def test_a_table_of_positions_is_read_whole_where_the_entry_says(name: str) -> None:
    source = inspect.getsource(inspect.getmodule(type(make_encoder(name))))  # type: ignore[arg-type]
    assert ("rel_embeddings.weight" in source) == FAMILIES[name].attention.reads_whole_table


@EVERY_FAMILY
def test_attention_goes_through_the_registry_where_the_entry_says(name: str) -> None:
    encoder, family = make_encoder(name), FAMILIES[name]
    core = first_layer(encoder, family).get_submodule(family.anatomy.core)
    source = inspect.getsource(type(core))
    assert ("ALL_ATTENTION_FUNCTIONS" in source) == family.attention.uses_registry
    chosen = family.attention.implementation
    assert chosen is None or (
        chosen in ALL_ATTENTION_FUNCTIONS and encoder.config._attn_implementation in (chosen, NAME)
    )


@EVERY_FAMILY
def test_heads_and_neurons_are_where_the_entry_says(name: str) -> None:
    encoder, family = make_encoder(name), FAMILIES[name]
    layer, anatomy = first_layer(encoder, family), family.anatomy
    core = layer.get_submodule(anatomy.core)
    heads, size = encoder.config.num_attention_heads, getattr(core, anatomy.head_size)
    assert all(getattr(core, attribute) == heads for attribute in anatomy.head_counts)
    assert all(getattr(core, attribute) == heads * size for attribute in anatomy.widths)
    assert all(isinstance(getattr(core, vector), nn.Parameter) for vector in anatomy.head_vectors)
    assert all(has_path(layer, path) for path in anatomy.heads.inputs)
    groups = [group for group in groups_of(encoder) if group.layer == 1]
    assert (groups[0].kind, groups[0].count, groups[0].size) == ("heads", heads, size)
    assert groups[0].output.name == f"layer.1.{anatomy.heads.output}"
    assert len(groups[0].inputs) == len(anatomy.heads.inputs)
    for group, units in zip(groups, _unfolded(anatomy), strict=True):
        rows = [site.weight.shape[int(site.is_transposed)] for site in group.inputs]
        rows = [
            row if site.weight.ndim == 2 else heads * size
            for row, site in zip(rows, group.inputs, strict=True)
        ]
        parts = 3 if units.is_interleaved else units.parts
        assert rows[0] == group.count * group.size * parts


def _unfolded(anatomy: Anatomy) -> list[Units]:
    """List the units of a layer; the tiny MobileBERT has one feed-forward part beside the usual one."""
    return [anatomy.heads, *anatomy.neurons]


@EVERY_FAMILY
def test_norms_are_where_the_entry_says(name: str) -> None:
    encoder, family = make_encoder(name), FAMILIES[name]
    layer, anatomy = first_layer(encoder, family), family.anatomy
    core = layer.get_submodule(anatomy.core)
    is_inside = any(isinstance(module, nn.LayerNorm) for module in core.children())
    assert is_inside == (anatomy.norm is not None or name == "xlnet")
    if anatomy.norm is not None:
        assert isinstance(layer.get_submodule(anatomy.norm), nn.LayerNorm)
    finals = [path for path, module in encoder.named_children() if isinstance(module, nn.LayerNorm)]
    assert finals == ([] if anatomy.final_norm is None else [anatomy.final_norm])
    takes_bias = "position_bias" in inspect.signature(core.forward).parameters
    assert anatomy.has_bias_of_heads == takes_bias


@EVERY_FAMILY
def test_every_matrix_of_a_layer_is_a_linear_layers_or_named_in_the_entry(name: str) -> None:
    encoder, family = make_encoder(name), FAMILIES[name]
    layer = first_layer(encoder, family)
    linear = {path for path, module in layer.named_modules() if isinstance(module, nn.Linear | Conv1D)}
    known = {f"{path}.weight" for path in linear} | set(family.bare_matrices)
    known |= {f"{family.anatomy.core}.{vector}" for vector in family.anatomy.head_vectors}
    matrices = {path for path, weight in layer.named_parameters() if weight.ndim > 1}
    assert matrices <= known
    assert set(family.bare_matrices) <= matrices


@EVERY_FAMILY
def test_projections_give_queries_keys_and_values(name: str) -> None:
    encoder, family = make_encoder(name), FAMILIES[name]
    if family.projections is None:
        assert name in ("deberta", "xlnet")
        return
    calls = _watch(first_layer(encoder, family), family.projections)
    with torch.no_grad():
        encoder(**inputs_of(encoder, torch.full((2, 5), 7)))
    outputs = [output for _, output in calls.values()]
    assert len(outputs) in (1, 3)
    width = encoder.config.num_attention_heads * _head_size(encoder, family)
    assert {tuple(output.shape) for output in outputs} == {(2, 5, width * 3 // len(outputs))}
    if family.projections.are_fused:
        layers = [first_layer(encoder, family).get_submodule(path) for path in family.projections.paths]
        assert all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in layers)
        assert len({id(read) for read, _ in calls.values()}) == 1
        assert tuple(path.rpartition(".")[2] for path in family.projections.paths) in fused_projections()


def _head_size(encoder: PreTrainedModel, family: Family) -> int:
    core = first_layer(encoder, family).get_submodule(family.anatomy.core)
    return int(getattr(core, family.anatomy.head_size))


def _watch(layer: nn.Module, projections: Projections) -> dict[str, tuple[Tensor, Tensor]]:
    """Note what each projection of a layer reads and gives in its first call."""
    calls: dict[str, tuple[Tensor, Tensor]] = {}

    def note(path: str) -> Any:
        return lambda module, args, output: calls.setdefault(path, (args[0], output)) and None

    for path in projections.paths:
        layer.get_submodule(path).register_forward_hook(note(path))
    return calls


@EVERY_FAMILY
def test_the_masked_lm_head_has_its_parts_where_the_entry_says(name: str) -> None:
    head, config = FAMILIES[name].masked_head, tiny.make_config(name)
    if head is None:
        assert name in ("mobilebert", "xlnet", "gpt2")
        return
    model = AutoModelForMaskedLM.from_config(config)
    assert isinstance(model.get_submodule(head.dense), nn.Linear)
    assert isinstance(model.get_submodule(head.norm), nn.LayerNorm)
    assert model.get_parameter(head.bias).shape == (tiny.VOCABULARY,)


@EVERY_FAMILY
def test_a_top_layer_that_export_cuts_is_built_like_berts(name: str) -> None:
    family = FAMILIES[name]
    assert 17 < family.export.opset < 24
    is_like_bert = family.anatomy == FAMILIES["bert"].anatomy and family.attention.uses_registry
    assert family.export.can_cut_top == is_like_bert
