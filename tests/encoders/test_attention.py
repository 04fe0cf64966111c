"""Attention seen and changed through the registry: the same numbers, in every family, nothing left behind."""

import pytest
import torch
from transformers import PreTrainedModel

from bermo.encoders import families
from bermo.encoders.attention import AttentionCall, attending
from bermo.encoders.backbone import create_encoder, make_inputs
from bermo.errors import BermoError
from tests.tiny import FAMILIES, make_batch, make_config

REGISTERED = [name for name, family in families.FAMILIES.items() if family.attention.uses_registry]
REACHED = [*REGISTERED, "mpnet"]


def build(family: str, attention: str | None = None) -> PreTrainedModel:
    torch.manual_seed(0)
    config = make_config(family)
    if attention is not None:
        config._attn_implementation = attention
    return create_encoder(config).eval()


def run(encoder: PreTrainedModel, family: str) -> torch.Tensor:
    batch = make_batch(family)
    inputs = make_inputs(encoder, batch["input_ids"], batch["attention_mask"], None, None)
    with torch.no_grad():
        hidden: torch.Tensor = encoder(**inputs).last_hidden_state
    return hidden[batch["attention_mask"].bool()]


@pytest.mark.parametrize("family", REACHED)
def test_watching_changes_nothing_and_a_head_that_is_off_does(family: str) -> None:
    encoder = build(family)
    before, name = run(encoder, family), encoder.config._attn_implementation
    layers = []
    with attending(encoder, lambda call: layers.append(call.layer)):
        torch.testing.assert_close(run(encoder, family), before, atol=2e-5, rtol=1e-4)
    assert layers == [1, 2, 3]
    for layer in range(3):
        gates = torch.ones(3, 2)
        gates[layer, 1] = 0
        with attending(encoder, gates=gates):
            assert (run(encoder, family) - before).abs().max() > 1e-3
    assert encoder.config._attn_implementation == name
    torch.testing.assert_close(run(encoder, family), before, atol=0, rtol=0)


@pytest.mark.parametrize(("family", "attention"), [("bert", "eager"), ("bert", "sdpa"), ("mpnet", "eager")])
def test_what_is_seen_is_what_transformers_returns(family: str, attention: str) -> None:
    encoder, eager = build(family, attention), build(family, "eager")
    batch = make_batch(family)
    with torch.no_grad():
        expected = eager(**batch, output_attentions=True).attentions
    seen: list[torch.Tensor] = []
    with attending(encoder, lambda call: seen.append(call.probabilities)):
        run(encoder, family)
    for one, other in zip(seen, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_head_that_is_off_is_a_head_whose_columns_of_the_output_matrix_are_zero() -> None:
    encoder, other = build("bert"), build("bert")
    gates = torch.ones(3, 2)
    gates[1, 0] = 0
    with torch.no_grad():
        other.encoder.layer[1].attention.output.dense.weight[:, :8] = 0
    with attending(encoder, gates=gates):
        torch.testing.assert_close(run(encoder, "bert"), run(other, "bert"))


def test_gates_of_each_text_are_the_gates_of_the_texts_alone() -> None:
    encoder = build("bert")
    batch = make_batch("bert")
    gates = torch.rand(3, 3, 2)
    with torch.no_grad(), attending(encoder, gates=gates):
        together = encoder(**batch).last_hidden_state
    for text in range(3):
        alone = {name: value[text : text + 1] for name, value in batch.items()}
        with torch.no_grad(), attending(encoder, gates=gates[:, text]):
            torch.testing.assert_close(
                encoder(**alone).last_hidden_state[0], together[text], atol=1e-5, rtol=1e-4
            )


def test_given_probabilities_are_used() -> None:
    encoder = build("bert")

    def even(call: AttentionCall) -> torch.Tensor:
        return torch.full_like(call.probabilities, 1 / call.probabilities.shape[-1])

    with torch.no_grad():
        encoder.encoder.layer[0].attention.self.query.weight.zero_()
    before = run(encoder, "bert")
    with attending(encoder, even):
        assert (run(encoder, "bert") - before).abs().max() > 1e-3


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(REACHED)))
def test_a_family_out_of_reach_is_told_in_a_sentence(family: str) -> None:
    with (
        pytest.raises(BermoError, match="does not go through transformers' registry"),
        attending(build(family)),
    ):
        pass


def test_an_error_inside_gives_the_attention_back() -> None:
    encoder = build("bert")
    name = encoder.config._attn_implementation
    with pytest.raises(ZeroDivisionError), attending(encoder, lambda call: 1 / 0):  # type: ignore[arg-type,return-value]
        run(encoder, "bert")
    assert encoder.config._attn_implementation == name
    with attending(encoder), pytest.raises(BermoError, match="watched already"), attending(encoder):
        pass
