"""Pretraining that goes on from an encoder: what it starts with, what it leaves, what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForMaskedLM

from bermo.cli import main
from bermo.data.pretrain.corpus import load_corpus
from bermo.encoders.backbone import load_tokenizer
from bermo.encoders.families import FAMILIES, num_layers
from bermo.encoders.layers import layer_modules
from bermo.errors import BermoError
from bermo.methods.pretraining.build import build_model
from bermo.methods.pretraining.run import pretrain
from bermo.models.pretraining import MaskedPretraining
from bermo.models.saving import save_encoder
from bermo.models.start import Start, dropouts_of, start_generator, start_masked
from bermo.pretrain_spec import ObjectiveSpec, PretrainSpec, ShapeSpec
from tests.methods.pretraining.world import make_spec, write_documents, write_teacher
from tests.tiny import make_batch, make_config

WITH_HEAD = sorted(name for name, family in FAMILIES.items() if family.masked_head is not None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, an encoder pretrained on it for a few steps, and one without a masked-LM head."""
    folder = tmp_path_factory.mktemp("place")
    text = write_documents(folder)
    pretrain(make_spec(text, folder / "cache", lr=5e-3), folder / "first")
    write_teacher(text, folder / "bare")
    (folder / "empty.txt").write_text("\n")
    return folder


def go_on(place: Path, model: str, **pace: Any) -> PretrainSpec:
    spec = make_spec(str(place / "text.txt"), place / "cache", **pace)
    return replace(spec, text=replace(spec.text, vocabulary=8192), shape=ShapeSpec(model=str(place / model)))


def test_without_a_rate_the_encoder_its_head_and_its_tokenizer_come_out_as_they_went_in(
    place: Path, tmp_path: Path
) -> None:
    result = pretrain(go_on(place, "first/model", steps=2, lr=0.0), tmp_path / "run")
    before, after = place / "first" / "model", tmp_path / "run" / "model"
    old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    for file in ("tokenizer.json", "config.json"):
        assert (before / file).read_text() == (after / file).read_text()
    card = (after / "README.md").read_text()
    assert "pretrained from model" in card
    assert "--model model" in card
    assert str(place) not in card
    assert result.num_parameters == sum(old[name].numel() for name in old if name.startswith("bert."))


def test_going_on_begins_where_the_first_training_ended(place: Path, tmp_path: Path) -> None:
    first = pretrain(make_spec(str(place / "text.txt"), place / "cache", lr=5e-3), place / "first")
    spec = go_on(place, "first/model", steps=1, lr=0.0)
    assert pretrain(spec, tmp_path / "run").values == pytest.approx(first.values, rel=1e-5)


def test_an_encoder_without_a_masked_head_gets_one(place: Path, tmp_path: Path) -> None:
    result = pretrain(go_on(place, "bare"), tmp_path / "run")
    model, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "run" / "model", output_loading_info=True)
    assert not report["missing_keys"]
    assert model.config.hidden_size == 24
    assert result.vocabulary == model.config.vocab_size == 420


def test_a_head_alone_learns_and_leaves_its_encoder_to_the_bit(place: Path, tmp_path: Path) -> None:
    spec = go_on(place, "bare", steps=40, lr=1e-2, only_head=True)
    untrained = pretrain(replace(spec, pace=replace(spec.pace, steps=1, lr=0.0)), tmp_path / "untrained")
    result = pretrain(spec, tmp_path / "run")
    assert result.values["likelihood"] > untrained.values["likelihood"] + 0.1
    old = load_file(place / "bare" / "model.safetensors")
    new = load_file(tmp_path / "run" / "model" / "model.safetensors")
    known = {name: weight for name, weight in new.items() if name.startswith("bert.")}
    assert known
    assert all(torch.equal(old[name.removeprefix("bert.")], weight) for name, weight in known.items())
    assert any(name.startswith("cls.") for name in new)


@pytest.mark.parametrize("family", WITH_HEAD)
def test_every_family_with_a_head_like_ours_is_loaded_and_saved_to_the_bit(
    family: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(make_config(family)).save_pretrained(tmp_path / "in")
    words = start_masked(str(tmp_path / "in"), Start())
    later = dropouts_of(AutoConfig.from_pretrained(tmp_path / "in"))
    assert later
    assert set(dropouts_of(words.config.backbone).values()) == {0.0}
    save_encoder(MaskedPretraining(words, pair_kinds=0), tmp_path / "out", later, is_half=False)
    one, two = (AutoModelForMaskedLM.from_pretrained(tmp_path / name).eval() for name in ("in", "out"))
    assert dropouts_of(two.config) == later
    batch = make_batch(family)
    with torch.no_grad():
        assert torch.equal(one(**batch).logits, two(**batch).logits)


@pytest.mark.parametrize("family", WITH_HEAD)
def test_new_pieces_start_as_the_mean_of_those_that_stood_for_them(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(make_config(family)).save_pretrained(tmp_path)
    before = start_masked(str(tmp_path), Start()).eval()
    after = start_masked(str(tmp_path), Start(cuts={61: (7, 9, 9), 60: (8,)})).eval()
    old, new = (model.get_input_embeddings().weight for model in (before, after))
    assert len(new) == len(old) + 2 == after.config.backbone.vocab_size
    torch.testing.assert_close(new[61], (old[7] + 2 * old[9]) / 3)
    assert torch.equal(new[60], old[8])
    assert torch.equal(new[:60], old)
    assert after.head.decoder.weight is new
    bias = before.head.decoder.bias
    torch.testing.assert_close(after.head.decoder.bias[61], (bias[7] + 2 * bias[9]) / 3)
    batch = make_batch(family)
    with torch.no_grad():
        torch.testing.assert_close(after(**batch).logits[..., :60], before(**batch).logits)


def test_words_of_ones_own_become_pieces_of_the_encoder_that_comes_out(place: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("ferritin\nthe\ncovid-19\n")
    spec = go_on(place, "first/model", steps=2)
    spec = replace(spec, text=replace(spec.text, words=str(tmp_path / "words.txt")))
    result = pretrain(spec, tmp_path / "run")
    folder = tmp_path / "run" / "model"
    tokenizer = load_tokenizer(folder)
    assert tokenizer.tokenize("the ferritins") == ["the", "ferritin", "##s"]
    assert result.vocabulary == len(tokenizer) == AutoConfig.from_pretrained(folder).vocab_size == 602
    weights = AutoModelForMaskedLM.from_pretrained(folder)
    assert weights.get_input_embeddings().weight.shape[0] == weights.cls.predictions.bias.shape[0] == 602


@pytest.mark.parametrize("family", WITH_HEAD)
def test_stacked_layers_are_copies_of_those_below(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(make_config(family)).save_pretrained(tmp_path)
    if family in ("albert", "modernbert"):
        with pytest.raises(BermoError, match="cannot be stacked"):
            start_masked(str(tmp_path), Start(layers=6))
        return
    one, two = start_masked(str(tmp_path), Start()), start_masked(str(tmp_path), Start(layers=6))
    assert two.config.num_hidden_layers == 6
    old, new = (layer_modules(m.core.backbone, FAMILIES[family]) for m in (one, two))
    assert len(new) == 6
    for index, layer in enumerate(new):
        for name, weight in layer.state_dict().items():
            assert torch.equal(weight, old[index % 3].state_dict()[name])
    assert torch.equal(one.get_input_embeddings().weight, two.get_input_embeddings().weight)
    assert torch.equal(one.head.dense.weight, two.head.dense.weight)
    # Copies, and not the same weights.
    assert new[0].state_dict()[name].data_ptr() != new[3].state_dict()[name].data_ptr()


def test_a_stacked_encoder_is_trained_and_saved_with_all_its_layers(place: Path, tmp_path: Path) -> None:
    spec = go_on(place, "first/model", steps=2)
    pretrain(replace(spec, shape=replace(spec.shape, layers=4)), tmp_path / "run")
    assert AutoConfig.from_pretrained(tmp_path / "run" / "model").num_hidden_layers == 4


def test_an_encoders_own_dropout_is_off_unless_asked_for(place: Path) -> None:
    def rates(start: Start) -> set[float]:
        modules = start_masked(str(place / "bare"), start).modules()
        return {module.p for module in modules if isinstance(module, torch.nn.Dropout)}

    assert rates(Start()) == {0.0}
    assert rates(Start(dropout=0.2)) == {0.2}


def test_an_equal_tokenizer_in_another_folder_finds_the_text_tokenised(place: Path, tmp_path: Path) -> None:
    spec = replace(go_on(place, "bare").text, tokenizer=str(place / "bare"), cache=str(tmp_path / "cache"))
    first = load_corpus(spec, 64, print)
    first.tokenizer.save_pretrained(tmp_path / "again")
    again = load_corpus(replace(spec, tokenizer=str(tmp_path / "again")), 64, print)
    assert again.digest == first.digest
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_tokenizer_that_cuts_long_texts_cuts_no_document(place: Path, tmp_path: Path) -> None:
    spec = replace(go_on(place, "bare").text, tokenizer=str(place / "bare"))
    whole = load_corpus(spec, 64, print)
    cutting = whole.tokenizer
    cutting._tokenizer.enable_truncation(8)
    cutting.save_pretrained(tmp_path / "cutting")
    elsewhere = replace(spec, tokenizer=str(tmp_path / "cutting"), cache=str(tmp_path / "cache"))
    again = load_corpus(elsewhere, 64, print)
    assert len(again.train.ids) == len(whole.train.ids)


def test_electra_goes_on_with_the_lower_half_of_the_layers_as_its_generator(
    place: Path, tmp_path: Path
) -> None:
    spec = replace(go_on(place, "bare", steps=2, lr=0.0), objective=ObjectiveSpec(kind="electra"))
    model: Any = build_model(spec, load_corpus(spec.text, 64, print))
    generator, encoder = model.generator.core.backbone, model.encoder.backbone
    below, layers = (layer_modules(one, FAMILIES["bert"]) for one in (generator, encoder))
    assert (len(below), len(layers)) == (1, 3)
    for name, weight in layers[0].state_dict().items():
        assert torch.equal(below[0].state_dict()[name], weight), name
    assert generator.get_input_embeddings().weight is encoder.get_input_embeddings().weight
    result = pretrain(spec, tmp_path / "run")
    assert "detection" in result.values
    old, new = (load_file(f / "model.safetensors") for f in (place / "bare", tmp_path / "run" / "model"))
    # At a rate of 0 what comes out is what went in.
    assert all(torch.equal(weight, old[name]) for name, weight in new.items())


@pytest.mark.parametrize("name", ["albert", "modernbert"])
def test_layers_that_cannot_be_left_out_all_stay_in_the_generator(name: str, tmp_path: Path) -> None:
    config = make_config(name)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    generator = start_generator(str(tmp_path), Start())
    assert num_layers(generator.core.backbone.config) == num_layers(config)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--model /no/where", 'There is no folder "/no/where"'),
        ("--model box --width 64 --config tiny", "Leave out --config and --width, or --model"),
        ("--model PLACE/bare --layers 4", "has 3 layers, which cannot be stacked to 4. Give a multiple of 3"),
        ("--model box --vocabulary 500", "Leave out --vocabulary, or --model"),
        ("--model box --tokenizer box", "Leave out --tokenizer, or --model"),
        ("--model box --words PLACE/empty.txt", "empty.txt is empty"),
        ("--model PLACE/bare --length 100", "has positions for 64 tokens, but --length is 100"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    words: str, sentence: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"pretrain --text {place}/text.txt --held-out 0.1 --cache {place}/cache --steps 2 --device cpu"
    assert main(f"{command} {words} --out {tmp_path}/run".replace("PLACE", str(place)).split()) == 2
    assert sentence in capsys.readouterr().err
