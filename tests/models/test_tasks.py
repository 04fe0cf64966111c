"""Models of every family: reload to the bit, streaming against stacking, parity, losses, padding, errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertModel,
)

from bermo.encoders import backbone
from bermo.errors import BermoError
from bermo.models.encoder import BermoConfig, BermoModel, BermoPreTrainedModel
from bermo.models.tasks import (
    BermoForMaskedLM,
    BermoForMultipleChoice,
    BermoForQuestionAnswering,
    BermoForSequenceClassification,
    BermoForTokenClassification,
    has_segments,
)
from bermo.nn.mix import KINDS
from bermo.spec import MixSpec
from tests.tiny import ENCODERS, FAMILIES, make_batch, make_config, make_tokenizer, save_backbone

HEADS: list[tuple[type[BermoPreTrainedModel], Any]] = [
    (BermoModel, AutoModel),
    (BermoForSequenceClassification, AutoModelForSequenceClassification),
    (BermoForTokenClassification, AutoModelForTokenClassification),
    (BermoForQuestionAnswering, AutoModelForQuestionAnswering),
    (BermoForMultipleChoice, AutoModelForMultipleChoice),
    (BermoForMaskedLM, AutoModelForMaskedLM),
]
CHECKPOINTABLE = [f for f in FAMILIES if f not in ("albert", "mpnet", "xlnet")]


def make_model(
    family: str, kind: type[BermoPreTrainedModel] = BermoForSequenceClassification, **options: Any
) -> Any:
    torch.manual_seed(0)
    return kind.from_backbone(make_config(family), **options)


def make_inputs(family: str, kind: type[BermoPreTrainedModel]) -> dict[str, Tensor]:
    batch = make_batch(family, texts=4)
    if kind is BermoForMultipleChoice:
        return {name: value.view(2, 2, -1) for name, value in batch.items()}
    return batch


@torch.no_grad()
def outputs_of(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    return [value for value in model(**inputs).to_tuple() if isinstance(value, Tensor)]


def assert_reloads_to_the_bit(model: Any, auto: Any, inputs: dict[str, Tensor], out: Path) -> None:
    model.save_pretrained(out)
    again, report = auto.from_pretrained(out, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(report.values()), report
    for one, two in zip(outputs_of(model, inputs), outputs_of(again, inputs), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(model.mix.weights, again.mix.weights)
    assert again.mix.layers == model.mix.layers


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_reloads_to_the_bit(family: str, tmp_path: Path) -> None:
    model = make_model(family, num_labels=3)
    inputs = make_inputs(family, BermoForSequenceClassification)
    assert_reloads_to_the_bit(model, AutoModelForSequenceClassification, inputs, tmp_path)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize(("kind", "auto"), HEADS)
def test_every_head_reloads_to_the_bit(
    kind: type[BermoPreTrainedModel], auto: Any, family: str, tmp_path: Path
) -> None:
    model = make_model(family, kind)
    assert_reloads_to_the_bit(model, auto, make_inputs(family, kind), tmp_path)


@pytest.mark.parametrize("mix", KINDS)
def test_every_mix_reloads_to_the_bit(mix: str, tmp_path: Path) -> None:
    model = make_model("bert", mix=mix)
    inputs = make_inputs("bert", BermoForSequenceClassification)
    assert_reloads_to_the_bit(model, AutoModelForSequenceClassification, inputs, tmp_path)


@pytest.mark.parametrize("family", ENCODERS)
def test_masked_lm_of_every_encoder_reloads_to_the_bit_and_stays_tied(family: str, tmp_path: Path) -> None:
    model = make_model(family, BermoForMaskedLM)
    inputs = make_inputs(family, BermoForMaskedLM)
    assert_reloads_to_the_bit(model, AutoModelForMaskedLM, inputs, tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert again.head.decoder.weight is again.get_input_embeddings().weight


def test_a_mix_that_a_checkpoint_lacks_starts_as_a_fresh_one(tmp_path: Path) -> None:
    model = make_model("bert")
    weights = {k: v for k, v in model.state_dict().items() if "layer_mix" not in k}
    model.save_pretrained(tmp_path, state_dict=weights)
    mix = AutoModelForSequenceClassification.from_pretrained(tmp_path).mix
    assert mix.scale == 1
    assert 0 < mix.logits.abs().max() <= (6 / (1 + 4)) ** 0.5


def test_a_mix_spec_with_its_options_survives_the_round_trip(tmp_path: Path) -> None:
    spec = MixSpec(kind="within", dropout=0.3, layers=(0, -1), init="zeros", layer_dropout=0.2)
    make_model("bert", mix=spec).save_pretrained(tmp_path)
    mix = AutoModelForSequenceClassification.from_pretrained(tmp_path).mix
    assert (mix.norm, mix.dropout, mix.layers, mix.layer_dropout) == ("within", 0.3, (0, 3), 0.2)


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


@pytest.mark.parametrize("family", [f for f in ENCODERS if f not in ("xlnet", "mobilebert")])
def test_the_pretrained_masked_lm_head_is_taken_over(family: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    original = AutoModelForMaskedLM.from_config(make_config(family)).eval()
    for name, weight in original.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    original.save_pretrained(tmp_path)
    model = BermoForMaskedLM.from_backbone(tmp_path, mix=None)
    batch = make_batch(family)
    real = batch["attention_mask"].bool()
    expected = original(**batch).logits[real]
    torch.testing.assert_close(model(**batch).logits[real], expected, atol=1e-5, rtol=1e-4)


def test_the_pretrained_pooler_is_where_the_head_starts(tmp_path: Path) -> None:
    torch.manual_seed(1)
    original = BertModel(make_config("bert")).eval()
    original.save_pretrained(tmp_path)
    model = BermoForSequenceClassification.from_backbone(tmp_path, mix=None)
    batch = make_batch("bert")
    expected = model.head.out(original(**batch).pooler_output)
    torch.testing.assert_close(model(**batch).logits, expected)
    wide = BermoForSequenceClassification.from_backbone(tmp_path, mix="concat-last-four")
    assert wide.head.dense.weight.shape == (16, 64)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pretrained_encoder_is_taken_over_unchanged(family: str, tmp_path: Path) -> None:
    save_backbone(family, tmp_path)
    expected = backbone.load_encoder(tmp_path).encoder.state_dict()
    model = BermoForSequenceClassification.from_backbone(tmp_path)
    seen = model.bermo.backbone.state_dict()
    assert all(torch.equal(seen[name], weight) for name, weight in expected.items())
    assert not model.training


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


def test_attention_asked_for_reaches_the_backbone(tmp_path: Path) -> None:
    make_model("bert").save_pretrained(tmp_path)
    load = AutoModelForSequenceClassification.from_pretrained
    assert load(tmp_path).bermo.backbone.config._attn_implementation == "sdpa"
    eager = load(tmp_path, attn_implementation="eager")
    assert eager.bermo.backbone.config._attn_implementation == "eager"
    batch = make_batch("bert")
    assert len(eager(**batch, output_attentions=True).attentions) == 3


def test_attention_of_a_config_survives_the_way_into_a_model() -> None:
    config = make_config("bert")
    config._attn_implementation = "eager"
    model = BermoForSequenceClassification.from_backbone(config)
    assert model.bermo.backbone.config._attn_implementation == "eager"
    assert model.config.backbone is model.bermo.backbone.config


def test_tuples_come_when_asked_for() -> None:
    model, batch = make_model("bert"), make_batch("bert")
    loss, logits = model(**batch, labels=torch.tensor([0, 1, 0]), return_dict=False)
    assert loss.dim() == 0
    assert logits.shape == (3, 2)


def test_labels_are_kept_by_name(tmp_path: Path) -> None:
    model = make_model("bert", id2label={0: "bad", 1: "fair", 2: "good"})
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, BermoConfig)
    assert config.num_labels == 3
    assert config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert config.hidden_size == 16
    assert config.num_hidden_layers == 3


def test_saving_writes_a_card_once_and_tells_no_path(tmp_path: Path) -> None:
    folder = save_backbone("bert", tmp_path / "my-encoder")
    out = tmp_path / "out"
    model = BermoForSequenceClassification.from_backbone(folder)
    model.save_pretrained(out)
    card = (out / "README.md").read_text()
    assert "A bert encoder (my-encoder)" in card
    assert "AutoModelForSequenceClassification.from_pretrained" in card
    assert f"| embeddings | {model.mix.weights[0]:.4f} |" in card
    assert str(tmp_path) not in card + (out / "config.json").read_text()
    assert json.loads((out / "config.json").read_text())["model_type"] == "bermo"
    (out / "README.md").write_text("mine")
    model.save_pretrained(out)
    assert (out / "README.md").read_text() == "mine"


def test_the_tokenizer_loads_from_a_saved_model(tmp_path: Path) -> None:
    make_model("bert").save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert backbone.load_tokenizer(tmp_path).tokenize("The cat") == ["the", "cat"]


@pytest.mark.parametrize("family", FAMILIES)
def test_frozen_embeddings_are_all_that_comes_before_the_first_layer(family: str) -> None:
    model = make_model(family)
    model.freeze_embeddings_()
    frozen = {name for name, p in model.bermo.backbone.named_parameters() if not p.requires_grad}
    assert frozen
    assert not model.get_input_embeddings().weight.requires_grad
    assert not any(".layer" in name or name.startswith("h.") for name in frozen)


def test_new_words_grow_the_embeddings_and_the_tied_decoder(tmp_path: Path) -> None:
    model = make_model("bert", BermoForMaskedLM)
    model.resize_token_embeddings(64, mean_resizing=False)
    assert model.config.vocab_size == 64
    assert model(**make_batch("bert")).logits.shape[-1] == 64
    assert model.head.decoder.weight is model.get_input_embeddings().weight
    assert_reloads_to_the_bit(model, AutoModelForMaskedLM, make_batch("bert"), tmp_path)


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


def test_a_bermo_model_is_no_backbone(tmp_path: Path) -> None:
    make_model("bert").save_pretrained(tmp_path)
    with pytest.raises(BermoError, match="bermo model already"):
        BermoForSequenceClassification.from_backbone(tmp_path)
