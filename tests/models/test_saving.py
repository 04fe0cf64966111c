"""Models of every family and head, saved and loaded to the bit; what a pretrained checkpoint hands on."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertModel,
)

from bermo.encoders import backbone
from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoModel, BermoPreTrainedModel
from bermo.models.tasks import (
    BermoForMaskedLM,
    BermoForSequenceClassification,
)
from bermo.nn.mix import KINDS
from bermo.spec import MixSpec
from tests.models.tiny_models import HEADS, make_inputs, make_model, outputs_of
from tests.tiny import ENCODERS, FAMILIES, make_batch, make_config, make_tokenizer, save_backbone


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


def test_a_checkpoint_without_its_mix_is_refused(tmp_path: Path) -> None:
    model = make_model("bert")
    weights = {k: v for k, v in model.state_dict().items() if "layer_mix" not in k}
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(BermoError, match=r"lacks bermo\.layer_mix\.logits, bermo\.layer_mix\.scale"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_a_mix_spec_with_its_options_survives_the_round_trip(tmp_path: Path) -> None:
    spec = MixSpec(kind="within", dropout=0.3, layers=(0, -1), init="zeros", layer_dropout=0.2)
    make_model("bert", mix=spec).save_pretrained(tmp_path)
    mix = AutoModelForSequenceClassification.from_pretrained(tmp_path).mix
    assert (mix.norm, mix.dropout, mix.layers, mix.layer_dropout) == ("within", 0.3, (0, 3), 0.2)


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


@pytest.mark.parametrize(
    ("loaded", "kind"),
    [(AutoModel, BermoForSequenceClassification), (AutoModelForMaskedLM, BermoForMaskedLM)],
)
def test_a_loaded_model_is_taken_over_as_its_folder_would_be(loaded: Any, kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    loaded.from_config(make_config("bert")).save_pretrained(tmp_path)
    given = loaded.from_pretrained(tmp_path)
    before = {name: value.clone() for name, value in given.state_dict().items()}
    models = []
    for source in (tmp_path, given):
        torch.manual_seed(2)
        models.append(kind.from_backbone(source))
    one, two = (model.state_dict() for model in models)
    assert one.keys() == two.keys()
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert models[1].config.backbone.name_or_path == tmp_path.name
    with torch.no_grad():
        next(models[1].parameters()).zero_()
    assert given.state_dict().keys() == before.keys(), "the pooler stays in the given model"
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())


@pytest.mark.parametrize("name", ["box", "folder"])
def test_a_plain_encoder_is_not_loaded_as_a_model_with_a_mix(name: str, tmp_path: Path) -> None:
    source = name if name == "box" else save_backbone("bert", tmp_path)
    with pytest.raises(BermoError, match=r"plain bert model.*Call BermoModel.from_backbone\("):
        BermoModel.from_pretrained(source)


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


def test_a_saved_models_encoder_is_a_backbone_and_a_loaded_model_is_none(tmp_path: Path) -> None:
    model = make_model("bert")
    model.save_pretrained(tmp_path)
    other = BermoForSequenceClassification.from_backbone(tmp_path)
    for name, parameter in other.core.backbone.named_parameters():
        assert torch.equal(parameter, model.core.backbone.get_parameter(name)), name
    with pytest.raises(BermoError, match="bermo model already"):
        BermoForSequenceClassification.from_backbone(model.config)


def test_new_words_grow_the_embeddings_and_the_tied_decoder(tmp_path: Path) -> None:
    model = make_model("bert", BermoForMaskedLM)
    model.resize_token_embeddings(64, mean_resizing=False)
    assert model.config.vocab_size == 64
    assert model(**make_batch("bert")).logits.shape[-1] == 64
    assert model.head.decoder.weight is model.get_input_embeddings().weight
    assert_reloads_to_the_bit(model, AutoModelForMaskedLM, make_batch("bert"), tmp_path)
