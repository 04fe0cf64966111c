"""shrink --stock: folders that transformers' own classes load, with the same answers, or one sentence."""

from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoTokenizer

from bermo.cli import main
from bermo.encoders.sentence import SentenceSettings
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.progress import Quiet
from bermo.runs.trained import open_trained
from bermo.ship.shrink.delete import living_units
from bermo.ship.shrink.run import make_small
from bermo.ship.shrink.stock import even_out
from tests.ship.folders import make_model, save
from tests.tiny import make_batch, make_config, make_tokenizer

CASES = [
    ("bert", "classification"),
    ("roberta", "classification"),
    ("mpnet", "classification"),
    ("bert", "regression"),
    ("distilbert", "tagging"),
    ("electra", "tagging"),
    ("distilbert", "span"),
]


@torch.no_grad()
def prune_units_randomly_(model: BermoPreTrainedModel) -> None:
    """Let another number of neurons die in each layer, and one head."""
    for index, group in enumerate(groups_of(model)):
        gone = torch.zeros(group.count, dtype=torch.bool)
        gone[: 1 if group.kind == "heads" else group.count // 2 + index] = True
        group.zero_units_(gone)


def pruned(family: str, kind: str) -> BermoPreTrainedModel:
    model = make_model(family, kind, layers=2, mix="none", pooling="first")
    prune_units_randomly_(model)
    return model


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_transformers_own_class_loads_it_and_gives_the_same_answers(
    family: str, kind: str, tmp_path: Path
) -> None:
    model = pruned(family, kind)
    save(model, tmp_path / "run", kind)
    make_small(tmp_path / "run", tmp_path / "small", Quiet(), wants_stock=True)
    config = AutoConfig.from_pretrained(tmp_path / "small")
    (name,) = config.architectures
    assert config.model_type == family
    assert "bermo" not in (tmp_path / "small" / "config.json").read_text().lower()
    stock = getattr(transformers, name).from_pretrained(tmp_path / "small").eval()
    batch = make_batch(family)
    with torch.no_grad():
        expected, found = (item(**batch).to_tuple() for item in (model, stock))
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    neurons = [group for group in groups_of(model) if group.kind == "neurons"]
    most = max(len(living_units(group)) for group in neurons)
    width = getattr(config, "intermediate_size", None) or config.hidden_dim
    assert most <= width < neurons[0].count
    assert width - most < 8
    assert open_trained(tmp_path / "small").trained.task.kind == kind


def test_a_sentence_encoder_becomes_a_folder_of_sentence_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BermoForSentenceEmbedding.from_settings(make_config("electra"), SentenceSettings())
    prune_units_randomly_(model)
    model.save_pretrained(tmp_path / "run")
    make_tokenizer("electra").save_pretrained(tmp_path / "run")
    make_small(tmp_path / "run", tmp_path / "small", Quiet(), wants_stock=True)
    assert (tmp_path / "small" / "modules.json").exists()
    stock, batch = AutoModel.from_pretrained(tmp_path / "small").eval(), make_batch("electra")
    with torch.no_grad():
        tokens = stock(**batch).last_hidden_state
        torch.testing.assert_close(model.pool(tokens, batch["attention_mask"]), model.eval()(**batch).logits)
    assert AutoTokenizer.from_pretrained(tmp_path / "small").is_fast


@pytest.mark.parametrize(
    ("family", "options", "sentence"),
    [
        ("bert", {"mix": "across"}, "reads a mix of its layers"),
        ("distilbert", {"mix": "none", "pooling": "first"}, "has another head than this model"),
        ("bert", {"mix": "none", "pooling": "mean"}, "has another head than this model"),
    ],
)
def test_what_stock_code_has_not_is_refused(
    family: str, options: dict[str, str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(make_model(family, **options), tmp_path / "run")
    assert main(["shrink", str(tmp_path / "run"), "--stock", "--out", str(tmp_path / "small")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


def test_a_model_whose_layers_differ_already_is_refused() -> None:
    from bermo.ship.shrink.delete import shrink

    with pytest.raises(BermoError, match="was shrunk already"):
        even_out(shrink(pruned("bert", "classification")), 0.001)


def test_layers_above_the_one_that_is_read_go(tmp_path: Path) -> None:
    save(make_model(layers=2, mix="second-to-last", pooling="first"), tmp_path / "run")
    make_small(tmp_path / "run", tmp_path / "small", Quiet(), wants_stock=True)
    assert AutoConfig.from_pretrained(tmp_path / "small").num_hidden_layers == 1
