"""A saved model is read from its file as transformers loads it, to the bit; the rest is transformers' own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bermo.encoders.sites import encoder_of
from bermo.encoders.structure import groups_of
from bermo.encoders.tokens import filter_tokens_
from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.low_rank import factorise_
from bermo.models.quick_read import read_saved
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.models.tasks import BermoForMaskedLM, BermoForSequenceClassification
from bermo.models.tied import tie_layers_
from bermo.nn.mix import KINDS
from bermo.runs.trained import open_trained
from bermo.ship.shrink.delete import shrink
from tests import tiny
from tests.models.tiny_models import HEADS, make_inputs, make_model, outputs_of
from tests.ship import folders

CASES = [
    (family, kind)
    for family in (*tiny.FAMILIES, *tiny.RECURRENT)
    for kind, _ in HEADS
    if kind is not BermoForMaskedLM or family in tiny.ENCODERS
]


def read(kind: type[BermoPreTrainedModel], folder: Path) -> Any:
    return read_saved(kind, folder, BermoConfig.from_pretrained(folder))


def tensors_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """All parameters and buffers, saved or not, under all their names."""
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def names_of_each(model: nn.Module) -> list[list[str]]:
    """The names under which each tensor is known."""
    known: dict[int, list[str]] = {}
    for name, tensor in tensors_of(model):
        known.setdefault(id(tensor), []).append(name)
    return sorted(known.values())


def assert_same(one: Any, two: Any) -> None:
    assert names_of_each(one) == names_of_each(two)
    for (name, first), (_, second) in zip(tensors_of(one), tensors_of(two), strict=True):
        assert torch.equal(first, second), name
        assert (first.dtype, first.requires_grad) == (second.dtype, second.requires_grad), name
    for (name, first), (_, second) in zip(one.named_modules(), two.named_modules(), strict=True):
        assert type(first) is type(second), name
        assert not first.training, name
    assert one.config.to_dict() == two.config.to_dict()
    assert one.config.name_or_path == two.config.name_or_path == one.name_or_path
    assert one.config._attn_implementation == two.config._attn_implementation


def assert_read_as_loaded(model: Any, inputs: dict[str, Tensor], folder: Path) -> None:
    model.save_pretrained(folder)
    before = torch.get_rng_state()
    quick = read(type(model), folder)
    assert torch.equal(torch.get_rng_state(), before)
    assert quick is not None
    slow = type(model).from_pretrained(folder, dtype=torch.float32)
    assert_same(quick, slow)
    for one, two in zip(outputs_of(quick, inputs), outputs_of(slow, inputs), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_every_family_and_head_is_read_as_it_is_loaded(
    family: str, kind: type[BermoPreTrainedModel], tmp_path: Path
) -> None:
    assert_read_as_loaded(make_model(family, kind), make_inputs(family, kind), tmp_path)


def tied(model: Any) -> Any:
    tie_layers_(model, 1)
    return model


def factored(model: Any) -> Any:
    factorise_(model, 0.5, 4)
    return model


@torch.no_grad()
def cut(model: Any) -> Any:
    for group in groups_of(model):
        group.zero_units_(torch.arange(group.count) % 3 == 0)
    return shrink(model)


def filtered(model: Any) -> Any:
    filter_tokens_(encoder_of(model), [256, 180, 90])
    model.config.kept_tokens = [256, 180, 90]
    return model


@pytest.mark.parametrize("change", [tied, factored, filtered, cut])
def test_a_model_of_another_shape_is_read_as_it_is_loaded(
    change: Callable[[Any], Any], tmp_path: Path
) -> None:
    model = change(make_model("bert"))
    assert_read_as_loaded(model, make_inputs("bert", type(model)), tmp_path)


@pytest.mark.parametrize("mix", KINDS)
def test_every_mix_is_read_as_it_is_loaded(mix: str, tmp_path: Path) -> None:
    model = make_model("bert", mix=mix)
    assert_read_as_loaded(model, make_inputs("bert", type(model)), tmp_path)


def test_a_mix_inside_is_read_as_it_is_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BermoForSequenceClassification(BermoConfig(tiny.make_config("bert"), inner_mix="within")).eval()
    assert_read_as_loaded(model, make_inputs("bert", type(model)), tmp_path)


def test_a_sentence_encoder_is_read_as_it_is_loaded(tmp_path: Path) -> None:
    model = make_model("bert", BermoForSentenceEmbedding, mix="across")
    assert_read_as_loaded(model, make_inputs("bert", type(model)), tmp_path)


def without(weights: dict[str, Tensor]) -> None:
    del weights["head.out.weight"]


def with_another(weights: dict[str, Tensor]) -> None:
    weights["head.more.weight"] = torch.zeros(2)


def of_another_size(weights: dict[str, Tensor]) -> None:
    weights["head.out.weight"] = torch.zeros(7, 16)


def of_half_precision(weights: dict[str, Tensor]) -> None:
    weights.update({name: weight.half() for name, weight in weights.items()})


def with_masks(weights: dict[str, Tensor]) -> None:
    weights["head.out.parametrizations.weight.original"] = torch.zeros(2, 16)


def saved_twice(weights: dict[str, Tensor]) -> None:
    weights["head.decoder.weight"] = weights["bermo.backbone.embeddings.word_embeddings.weight"].clone()


def not_a_number(weights: dict[str, Tensor]) -> None:
    weights["head.out.weight"][0] = float("nan")


def changed(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, {"format": "pt"})
    return folder


def sentence_of(load: Callable[[], object]) -> str:
    with pytest.raises(BermoError) as refused:
        load()
    return str(refused.value)


@pytest.mark.parametrize("change", [without, with_another, of_another_size, not_a_number])
def test_weights_that_do_not_fit_are_refused_in_transformers_way(
    change: Callable[[dict[str, Tensor]], None], tmp_path: Path
) -> None:
    folder = changed(folders.save(folders.make_model(), tmp_path / "model"), change)
    kind = BermoForSequenceClassification
    sentence = sentence_of(lambda: kind.from_pretrained(folder, dtype=torch.float32))
    assert sentence_of(lambda: open_trained(folder).load_model()) == sentence
    if change is not not_a_number:
        assert read(kind, folder) is None


@pytest.mark.parametrize("change", [of_half_precision, with_masks])
def test_weights_that_are_not_the_model_s_own_are_loaded_by_transformers(
    change: Callable[[dict[str, Tensor]], None], tmp_path: Path
) -> None:
    folder = changed(folders.save(folders.make_model(), tmp_path / "model"), change)
    assert read(BermoForSequenceClassification, folder) is None
    slow = BermoForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    assert_same(open_trained(folder).load_model(), slow)


def test_a_tied_weight_that_is_saved_twice_is_left_to_transformers(tmp_path: Path) -> None:
    make_model("bert", BermoForMaskedLM).save_pretrained(tmp_path)
    assert read(BermoForMaskedLM, tmp_path) is not None
    assert read(BermoForMaskedLM, changed(tmp_path, saved_twice)) is None


def test_a_file_in_parts_and_a_damaged_one_are_left_to_transformers(tmp_path: Path) -> None:
    model = folders.make_model()
    model.save_pretrained(tmp_path / "parts", max_shard_size="2KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").exists()
    assert read(BermoForSequenceClassification, tmp_path / "parts") is None
    folder = folders.save(model, tmp_path / "model")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    assert read(BermoForSequenceClassification, folder) is None
    with pytest.raises(BermoError, match="Could not load the weights of"):
        open_trained(folder).load_model()


def test_a_config_of_absurd_size_is_refused_in_transformers_way(tmp_path: Path) -> None:
    folder = folders.save(folders.make_model(), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["backbone"]["intermediate_size"] = 10**9
    (folder / "config.json").write_text(json.dumps(config))
    kind = BermoForSequenceClassification
    sentence = sentence_of(lambda: kind.from_pretrained(folder, dtype=torch.float32))
    assert sentence_of(lambda: open_trained(folder).load_model()) == sentence
    assert "of another size than config.json says" in sentence
