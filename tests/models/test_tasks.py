"""Models of every family: streaming against stacking, losses, padding, gradients, errors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bermo.encoders import backbone
from bermo.errors import BermoError
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.tasks import (
    BermoForMaskedLM,
    BermoForMultipleChoice,
    BermoForQuestionAnswering,
    BermoForSequenceClassification,
    BermoForTokenClassification,
    has_segments,
)
from bermo.nn.mix import KINDS
from tests.models.tiny_models import make_inputs, make_model, outputs_of
from tests.tiny import FAMILIES, make_batch

CHECKPOINTABLE = [f for f in FAMILIES if f not in ("albert", "mpnet", "xlnet")]


@pytest.mark.parametrize("kind", [BermoForSequenceClassification, BermoForTokenClassification])
@pytest.mark.parametrize("family", FAMILIES)
def test_streaming_at_inference_equals_stacking(family: str, kind: type[BermoPreTrainedModel]) -> None:
    model, inputs = make_model(family, kind), make_inputs(family, kind)
    stacked = model(**inputs).logits
    torch.testing.assert_close(outputs_of(model, inputs)[0], stacked, atol=1e-5, rtol=0)
    with torch.no_grad():
        asked = model(**inputs, output_hidden_states=True)
    assert len(asked.hidden_states) == 4
    torch.testing.assert_close(asked.logits, stacked, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
@pytest.mark.parametrize("mix", KINDS)
def test_mixing_only_the_rows_that_are_read_equals_mixing_all(mix: str, pooling: str) -> None:
    model = make_model("bert", mix=mix, pooling=pooling)
    inputs = make_inputs("bert", BermoForSequenceClassification)
    with torch.no_grad():
        whole = model.bermo(**inputs).last_hidden_state
    mask = inputs["attention_mask"].bool()
    lengths = mask.sum(1)
    texts = range(len(mask))
    pooled = {
        "first": whole[:, 0],
        "last": torch.stack([whole[b, lengths[b] - 1] for b in texts]),
        "mean": torch.stack([whole[b, : lengths[b]].mean(0) for b in texts]),
    }[pooling]
    expected = model.head(pooled)
    torch.testing.assert_close(outputs_of(model, inputs)[0], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [BermoForSequenceClassification, BermoForTokenClassification])
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_no_answer(family: str, kind: type[BermoPreTrainedModel]) -> None:
    model, batch = make_model(family, kind), make_batch(family)
    padded = outputs_of(model, batch)[0]
    for b, mask in enumerate(batch["attention_mask"].bool()):
        alone = {name: value[b : b + 1, mask] for name, value in batch.items()}
        expected = padded[b] if padded.dim() == 2 else padded[b, mask]
        torch.testing.assert_close(outputs_of(model, alone)[0][0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("family", "pooling"), [("gpt2", "last"), ("xlnet", "last"), ("bert", "first")])
def test_the_family_chooses_the_token_that_speaks_for_a_text(family: str, pooling: str) -> None:
    assert make_model(family).config.pooling == pooling


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_gets_a_gradient(family: str) -> None:
    model, batch = make_model(family).train(), make_batch(family)
    if has_segment_ids(model):
        batch["token_type_ids"] = torch.ones_like(batch["input_ids"]).cumsum(1) % 2
    model(**batch, labels=torch.tensor([0, 1, 0])).loss.backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None]
    assert idle == (["bermo.backbone.mask_emb"] if family == "xlnet" else [])


def has_segment_ids(model: BermoPreTrainedModel) -> bool:
    return bool(backbone.has_segments(model.config.backbone))


def test_segments_of_a_pair_reach_the_encoder_where_it_has_them(tmp_path: Path) -> None:
    batch = make_batch("bert")
    segments = torch.ones_like(batch["input_ids"])
    bert, roberta = make_model("bert"), make_model("roberta")
    assert not torch.equal(bert(**batch).logits, bert(**batch, token_type_ids=segments).logits)
    assert torch.equal(roberta(**batch).logits, roberta(**batch, token_type_ids=segments).logits)
    bert.save_pretrained(tmp_path / "bert")
    roberta.save_pretrained(tmp_path / "roberta")
    assert has_segments(tmp_path / "bert")
    assert not has_segments(tmp_path / "roberta")


def test_text_losses_are_those_of_their_kind() -> None:
    batch, classes = make_batch("bert"), torch.tensor([2, 0, 1])
    model = make_model("bert", num_labels=3)
    out = model(**batch, labels=classes)
    torch.testing.assert_close(out.loss, functional.cross_entropy(out.logits, classes))
    value = torch.tensor([0.5, 1.0, 2.0])
    out = make_model("bert", num_labels=1)(**batch, labels=value)
    torch.testing.assert_close(out.loss, ((out.logits[:, 0] - value) ** 2).mean())
    several = make_model("bert", num_labels=2, problem_type="multi_label_classification")
    marks = torch.tensor([[1, 0], [1, 1], [0, 0]])
    out = several(**batch, labels=marks)
    expected = functional.binary_cross_entropy_with_logits(out.logits, marks.float())
    torch.testing.assert_close(out.loss, expected)


def test_token_losses_ignore_minus_100_and_survive_a_batch_without_labels() -> None:
    batch, model = make_batch("bert"), make_model("bert", BermoForTokenClassification)
    labels = torch.where(batch["attention_mask"].bool(), 1, -100)
    out = model(**batch, labels=labels)
    kept = out.logits[labels == 1]
    expected = functional.cross_entropy(kept, torch.ones(len(kept), dtype=torch.long))
    torch.testing.assert_close(out.loss, expected)
    assert model(**batch, labels=torch.full_like(labels, -100)).loss == 0


def test_span_loss_is_the_mean_of_start_and_end_and_ignores_what_was_cut_off() -> None:
    batch, model = make_batch("bert"), make_model("bert", BermoForQuestionAnswering)
    start, end = torch.tensor([1, 2, 0]), torch.tensor([2, 3, 99])
    out = model(**batch, start_positions=start, end_positions=end)
    first = functional.cross_entropy(out.start_logits, start)
    second = functional.cross_entropy(out.end_logits[:2], end[:2])
    torch.testing.assert_close(out.loss, (first + second) / 2)


def test_choices_compete_with_each_other() -> None:
    inputs = make_inputs("bert", BermoForMultipleChoice)
    model = make_model("bert", BermoForMultipleChoice)
    out = model(**inputs, labels=torch.tensor([1, 0]))
    assert out.logits.shape == (2, 2)
    torch.testing.assert_close(out.loss, functional.cross_entropy(out.logits, torch.tensor([1, 0])))


def gradients(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    model(**batch, labels=torch.tensor([0, 1, 0])).loss.backward()
    named = model.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


@pytest.mark.parametrize("family", CHECKPOINTABLE)
def test_gradient_checkpointing_changes_no_gradient(family: str) -> None:
    model, batch = make_model(family, mix={"dropout": 0.0}), make_batch(family)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    torch.manual_seed(1)
    plain = gradients(model, batch)
    model.gradient_checkpointing_enable()
    torch.manual_seed(1)
    saving = gradients(model, batch)
    assert plain.keys() == saving.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(saving[name], gradient, atol=1e-6, rtol=1e-4)


def test_gradient_checkpointing_is_refused_where_it_would_be_wrong_or_unknown() -> None:
    with pytest.raises(BermoError, match="hides the layers' gradients"):
        make_model("bert").gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match="does not support gradient checkpointing"):
        make_model("albert").gradient_checkpointing_enable()


# torch's own compiler asks for it, and hides the warning in a way that another thread can undo.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_compiled_models_answer_alike(family: str) -> None:
    model, batch = make_model(family), make_batch(family)
    expected = model(**batch).logits
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(**batch).logits, expected)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).logits, expected, atol=1e-5, rtol=0)


def test_low_precision_and_autocast_run() -> None:
    model, batch = make_model("bert"), make_batch("bert")
    expected = outputs_of(model, batch)[0]
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(outputs_of(model, batch)[0].float(), expected, atol=0.1, rtol=0.1)
    assert outputs_of(model.to(torch.bfloat16), batch)[0].dtype == torch.bfloat16


def test_tuples_come_when_asked_for() -> None:
    model, batch = make_model("bert"), make_batch("bert")
    loss, logits = model(**batch, labels=torch.tensor([0, 1, 0]), return_dict=False)
    assert loss.dim() == 0
    assert logits.shape == (3, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_frozen_embeddings_are_all_that_comes_before_the_first_layer(family: str) -> None:
    model = make_model(family)
    model.freeze_embeddings_()
    frozen = {name for name, p in model.bermo.backbone.named_parameters() if not p.requires_grad}
    assert frozen
    assert not model.get_input_embeddings().weight.requires_grad
    assert not any(".layer" in name or name.startswith("h.") for name in frozen)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mix": "acros"}, 'Did you mean "across"'),
        ({"mix": {"kind": "across", "droput": 0.1}}, 'Did you mean "dropout"'),
        ({"mix": {"layers": [0, 9]}}, "cannot read layers"),
        ({"pooling": "frist"}, 'Did you mean "first"'),
    ],
)
def test_choices_that_do_not_exist_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        make_model("bert", **options)


def test_a_decoder_cannot_be_a_masked_lm() -> None:
    with pytest.raises(BermoError, match="reads from left to right only"):
        make_model("gpt2", BermoForMaskedLM)


def test_rows_are_taken_from_the_layers_that_the_mix_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from bermo.models import encoder

    taken, take = [], encoder.take_rows
    monkeypatch.setattr(encoder, "take_rows", lambda *given: taken.append(1) or take(*given))
    for mix, count in (("none", 1), ("across", 4)):
        taken.clear()
        make_model("bert", mix=mix)(**make_inputs("bert", BermoForSequenceClassification))
        assert len(taken) == count
