"""Every family against transformers' own hidden states, at once and by layer; padding and segments."""

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from bermo.encoders import backbone, families
from tests.tiny import FAMILIES, make_batch, make_config


def make_encoder(config: PretrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    return backbone.load_encoder(config).encoder.eval()


def make_inputs(encoder: PreTrainedModel, batch: dict[str, Tensor]) -> dict[str, Any]:
    return backbone.make_inputs(encoder, batch["input_ids"], batch["attention_mask"], None, None)


def visited(encoder: PreTrainedModel, inputs: dict[str, Any], wanted: range) -> dict[int, Tensor]:
    seen: dict[int, Tensor] = {}
    with torch.no_grad():
        backbone.visit(encoder, inputs, wanted, seen.__setitem__)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_both_ways_give_the_hidden_states_of_transformers(family: str) -> None:
    encoder = make_encoder(make_config(family))
    inputs = make_inputs(encoder, make_batch(family))
    with torch.no_grad():
        expected = encoder(**inputs, output_hidden_states=True)
        stacked = backbone.hidden_states(encoder, inputs).hidden_states
    seen = visited(encoder, inputs, range(4))
    assert len(expected.hidden_states) == families.num_layers(encoder.config) == 4
    assert list(seen) == [0, 1, 2, 3]
    for j, hidden in enumerate(expected.hidden_states):
        assert torch.equal(seen[j], hidden)
        assert torch.equal(stacked[j], hidden)
    assert torch.equal(stacked[-1], expected.last_hidden_state)
    steps = [(a - b).abs().mean() for a, b in itertools.pairwise(stacked)]
    assert min(steps) > 0.1, "random layers must differ"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_add_to_a_call_changes_nothing_without_padding(family: str) -> None:
    encoder, ids = make_encoder(make_config(family)), make_batch(family)["input_ids"][:1]
    inputs = make_inputs(encoder, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    expected = encoder(input_ids=ids).last_hidden_state
    torch.testing.assert_close(visited(encoder, inputs, range(3, 4))[3], expected)


def test_albert_groups_of_layers_are_counted_call_by_call() -> None:
    config = make_config("albert")
    assert isinstance(config, AlbertConfig)
    config.num_hidden_layers, config.num_hidden_groups, config.inner_group_num = 4, 2, 2
    encoder = make_encoder(config)
    inputs = make_inputs(encoder, make_batch("albert"))
    expected = encoder(**inputs, output_hidden_states=True).hidden_states
    seen = visited(encoder, inputs, range(9))
    assert families.num_layers(encoder.config) == len(expected) == len(seen) == 9
    assert all(torch.equal(seen[j], expected[j]) for j in range(9))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_dead_pooler_is_left_in_the_encoder(family: str) -> None:
    encoder = make_encoder(make_config(family))
    inputs = make_inputs(encoder, make_batch(family))
    encoder(**inputs).last_hidden_state.square().sum().backward()
    idle = [name for name, p in encoder.named_parameters() if p.grad is None]
    # XLNet reads its mask and segment vectors only when asked for masks or segments.
    assert all("mask_emb" in name or "seg_" in name or "r_s_bias" in name for name in idle), idle


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_reaches_no_real_token(family: str) -> None:
    encoder, batch = make_encoder(make_config(family)), make_batch(family)
    real = batch["attention_mask"].bool()
    other = {**batch, "input_ids": torch.where(real, batch["input_ids"], 9)}
    first = visited(encoder, make_inputs(encoder, batch), range(4))
    second = visited(encoder, make_inputs(encoder, other), range(4))
    for j in range(4):
        torch.testing.assert_close(first[j][real], second[j][real], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "xlnet"])
def test_side_of_padding_changes_nothing_for_families_read_at_the_end(family: str) -> None:
    encoder = make_encoder(make_config(family))
    ids = torch.tensor([[7, 8, 9]])
    mask = torch.ones_like(ids)
    pad = torch.zeros(1, 2, dtype=torch.long)
    sides = [(ids, mask)]
    sides += [(torch.cat([ids, pad], 1), torch.cat([mask, pad], 1))]
    sides += [(torch.cat([pad, ids], 1), torch.cat([pad, mask], 1))]
    outputs = []
    for tokens, real in sides:
        inputs = make_inputs(encoder, {"input_ids": tokens, "attention_mask": real})
        outputs.append(visited(encoder, inputs, range(3, 4))[3][real.bool()])
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(outputs[0], outputs[2], atol=1e-5, rtol=1e-4)


def test_hooks_are_gone_after_a_visit_even_a_failed_one() -> None:
    encoder = make_encoder(make_config("deberta-v2"))
    inputs = make_inputs(encoder, make_batch("deberta-v2"))
    visited(encoder, inputs, range(4))

    def fail(index: int, hidden: Tensor) -> None:
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        backbone.visit(encoder, inputs, range(4), fail)
    hooks = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in encoder.modules()]
    assert sum(hooks) == 0


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads take turns every microsecond, as often as on a machine with far too much to do."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("frequent_switches")
def test_threads_that_share_an_encoder_read_their_own_layers() -> None:
    encoder = make_encoder(make_config("bert"))
    batches = [make_inputs(encoder, make_batch("bert", seed=seed)) for seed in range(4)]
    expected = [visited(encoder, inputs, range(4)) for inputs in batches]

    def work(index: int) -> None:
        for _ in range(100):
            seen = visited(encoder, batches[index], range(4))
            assert all(torch.equal(seen[j], expected[index][j]) for j in range(4))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_a_visit_changes_nothing_for_another_thread(family: str) -> None:
    encoder = make_encoder(make_config(family))
    inputs = make_inputs(encoder, make_batch(family))
    expected = backbone.hidden_states(encoder, inputs).hidden_states
    others: list[Any] = []
    with ThreadPoolExecutor(1) as pool:

        def ask_elsewhere(index: int, hidden: Tensor) -> None:
            others.append(pool.submit(backbone.hidden_states, encoder, inputs).result().hidden_states)

        backbone.visit(encoder, inputs, range(4), ask_elsewhere)
    assert len(others) == 4
    for layers in others:
        assert len(layers) == 4
        assert all(torch.equal(a, b) for a, b in zip(layers, expected, strict=True))


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
def test_deberta_collects_no_layers_during_a_visit(family: str) -> None:
    encoder = make_encoder(make_config(family))
    kept: list[int] = []
    collector = encoder.get_submodule("encoder")
    collector.register_forward_hook(lambda m, a, out: kept.append(len(out.hidden_states or ())))
    visited(encoder, make_inputs(encoder, make_batch(family)), range(4))
    assert kept == [0]


def test_segments_go_only_where_the_family_has_them() -> None:
    with_segments = [f for f in FAMILIES if families.has_segments(make_config(f))]
    assert with_segments == ["bert", "ernie", "albert", "electra", "xlnet", "mobilebert"]
    ids, segments = torch.tensor([[5, 6]]), torch.tensor([[0, 1]])
    for family in FAMILIES:
        encoder = make_encoder(make_config(family))
        inputs = backbone.make_inputs(encoder, ids, None, segments, None)
        assert ("token_type_ids" in inputs) == (family in with_segments)
        encoder(**inputs)
