"""Any folder of a trained model is opened in one way, and every folder that is none gets one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel

from bermo.encoders.backbone import load_config
from bermo.errors import BermoError
from bermo.files import write_json
from bermo.models.tasks import BermoForSequenceClassification
from bermo.runs.folder import claim
from bermo.runs.head_task import read_task
from bermo.runs.model_files import model_folder
from bermo.runs.task_file import write_task
from bermo.runs.trained import open_trained
from bermo.spec import DataSpec, RunSpec
from bermo.sums import write_sums
from tests import tiny
from tests.ship.folders import make_model, save

SPEC = RunSpec(data=DataSpec(train="train.tsv", valid="valid.tsv"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one seed, both with a model, and its model alone."""
    root = tmp_path_factory.mktemp("runs")
    (root / "run").mkdir()
    claim(root / "run", SPEC, "digest")
    for folder in (root / "run" / "seed-1" / "model", root / "run" / "model", root / "alone"):
        save(make_model(), folder)
    return root


@pytest.mark.parametrize(
    ("name", "folder", "run"),
    [
        ("run", "run/model", "run"),
        ("run/seed-1", "run/seed-1/model", "run"),
        ("run/model", "run/model", None),
        ("alone", "alone", None),
    ],
)
def test_a_run_a_seed_and_a_model_are_opened_alike(
    runs: Path, name: str, folder: str, run: str | None
) -> None:
    opened = open_trained(runs / name)
    assert opened.folder == runs / folder
    assert opened.run == (None if run is None else runs / run)
    assert opened.read_spec() == (None if run is None else SPEC)
    assert (opened.runtime, opened.precision, opened.has_segments) == ("torch", "fp32", True)
    assert (opened.trained.task.kind, opened.trained.labels) == ("classification", ("bad", "good"))
    assert opened.load_tokenizer().tokenize("the cat") == ["the", "cat"]


def test_a_file_that_was_changed_since_is_named_until_the_model_is_saved_anew(tmp_path: Path) -> None:
    save(make_model(), tmp_path)
    write_sums(tmp_path)
    open_trained(tmp_path)
    (tmp_path / "config.json").write_bytes((tmp_path / "config.json").read_bytes() + b" ")
    for look in (open_trained, load_config):
        with pytest.raises(BermoError, match=r"config\.json is damaged, or was changed"):
            look(tmp_path)
    make_model().save_pretrained(tmp_path)
    open_trained(tmp_path)


def test_the_loaded_model_answers_as_the_saved_one(runs: Path) -> None:
    saved, loaded = make_model(), open_trained(runs / "run").load_bermo_model()
    batch = tiny.make_batch("bert")
    with torch.no_grad():
        assert torch.equal(loaded(**batch).logits, saved(**batch).logits)
    assert not loaded.training


def test_a_created_model_has_the_class_and_the_shapes_of_the_saved_one(runs: Path) -> None:
    opened = open_trained(runs / "alone")
    shapes = {name: value.shape for name, value in opened.create_model().state_dict().items()}
    assert shapes == {name: value.shape for name, value in opened.load_model().state_dict().items()}


def test_a_plain_transformers_model_is_known_by_its_head(tmp_path: Path) -> None:
    config = BertConfig(**tiny.SIZES, num_labels=2, id2label={0: "no", 1: "yes"})
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    opened = open_trained(tmp_path)
    assert (opened.trained.task.kind, opened.trained.labels) == ("classification", ("no", "yes"))
    assert isinstance(opened.load_model(), BertForSequenceClassification)
    with pytest.raises(BermoError, match="holds a bert model, not one that bermo trained"):
        opened.load_bermo_model()


def test_a_head_of_one_output_is_a_regression(tmp_path: Path) -> None:
    BertForSequenceClassification(BertConfig(**tiny.SIZES, num_labels=1)).save_pretrained(tmp_path)
    trained = open_trained(tmp_path).trained
    assert (trained.task.kind, trained.labels) == ("regression", ())


def test_task_json_survives_the_disk(runs: Path, tmp_path: Path) -> None:
    opened = open_trained(runs / "alone")
    write_task(tmp_path, opened.trained)
    assert read_task(tmp_path, opened.config) == opened.trained


def _nothing(folder: Path) -> None:
    shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _a_file(folder: Path) -> None:
    _nothing(folder)
    folder.write_text("")


def _unfinished(folder: Path) -> None:
    _empty(folder)
    claim(folder, SPEC, "digest")


def _ended_without_a_model(folder: Path) -> None:
    _unfinished(folder)
    write_json(folder / "result.json", {})


def _export(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.onnx")


def _bare(folder: Path) -> None:
    _empty(folder)
    BertModel(BertConfig(**tiny.SIZES)).save_pretrained(folder)


def _torn_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _missing_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["head.dense.weight"]
    save_file(weights, path, {"format": "pt"})


def _unfinished_compress(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "compress.json").write_text("{}")


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _torn(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text('{"a":') and None


def _odd_family(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "t5"}))


BAD: list[tuple[Callable[[Path], None], str]] = [
    (_nothing, "There is no folder .* Give the folder of a finished run"),
    (_a_file, "is a file. Give the folder of a finished run"),
    (_empty, "holds no model: there is neither config.json nor an export"),
    (_unfinished_compress, "compress in .* has no model: it is not finished, .* Give its command again"),
    (_unfinished, "is not finished: .* Give the command of the run again"),
    (_ended_without_a_model, "has ended but kept no model"),
    (_export, r"is an export already \(onnxruntime\). Give the model that it was made from"),
    (_bare, "holds BertModel without a head for a task. Train one on it first"),
    (_odd_family, '"t5" is not an encoder that bermo can read'),
    (_torn_weights, "Could not load the weights of"),
    (_no_weights, "has a config but no weights"),
    (_missing_weights, r"lacks head\.dense\.weight"),
    (_torn("config.json"), r"config\.json is damaged"),
    (_torn("task.json"), "task.json is damaged"),
    (_torn("export.json"), "export.json is damaged"),
]


@pytest.mark.parametrize(("spoil", "sentence"), BAD, ids=[spoil.__name__ for spoil, _ in BAD])
def test_every_bad_folder_gets_its_sentence(
    runs: Path, tmp_path: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    folder = tmp_path / "model-folder"
    shutil.copytree(runs / "alone", folder)
    spoil(folder)
    with pytest.raises(BermoError, match=sentence):
        open_trained(folder).load_bermo_model()


def test_the_encoder_of_the_package_is_called_by_its_name_where_it_lacks_a_head() -> None:
    with pytest.raises(BermoError, match=r"^box holds .* bermo train --train FILE --out runs/mine$"):
        open_trained("box")


def test_a_seed_that_has_no_model_yet_is_an_unfinished_run(runs: Path, tmp_path: Path) -> None:
    claim(tmp_path, SPEC, "digest")
    (tmp_path / "seed-1").mkdir()
    with pytest.raises(BermoError, match=r"seed-1 is not finished"):
        model_folder(tmp_path / "seed-1")


def test_a_torn_spec_of_the_run_is_an_error_only_when_the_spec_is_read(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "run", tmp_path / "run")
    (tmp_path / "run" / "spec.json").write_text("{")
    opened = open_trained(tmp_path / "run")
    assert isinstance(opened.load_model(), BermoForSequenceClassification)
    with pytest.raises(BermoError, match="Restore this spec of the run"):
        opened.read_spec()
