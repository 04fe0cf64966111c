"""The layout of the hub: what stands where, and that bermo itself answers from it as before.

scripts/check_hub_layout.py proves it with transformers.js, fastembed and sentence-transformers themselves.
"""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bermo
from bermo.cli import main
from bermo.data.load import own_task
from bermo.encoders.sentence import SentenceSettings
from bermo.errors import BermoError
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.runs.task_file import TrainedTask
from bermo.runs.trained import open_trained
from bermo.ship.export.example import example_script
from bermo.ship.export.run import ExportSpec, export
from bermo.ship.runtimes.embed import SentenceEncoder
from tests.ship.folders import make_model, save
from tests.tiny import make_config, make_tokenizer

TEXTS = ["a good film", "the bad cats saw a dog ."]
FOR_EXAMPLE = ("onnxruntime", "tokenizers", "numpy", "numpy.libs")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier and a sentence encoder, each as the hub expects them."""
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("hub")
    save(make_model(), root / "classifier")
    settings = SentenceSettings(pooling="first", prompts={"query": "the "}, max_length=16)
    config = make_config("bert")
    config.num_hidden_layers = 1
    model = BermoForSentenceEmbedding.from_settings(config, settings)
    model.save_pretrained(root / "encoder")
    make_tokenizer().save_pretrained(root / "encoder")
    for name in ("classifier", "encoder"):
        export(root / name, root / f"{name}-hub", ExportSpec(to="onnx-int8-signed", layout="hub"))
    return root


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_files_stand_where_other_tools_look(root: Path) -> None:
    model = {"onnx/model.onnx", "onnx/model_quantized.onnx", "config.json", "task.json", "export.json"}
    words = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    both = model | words | {"README.md", "example.py"}
    assert both <= names_in(root / "classifier-hub")
    assert both | {"modules.json", "1_Pooling/config.json", "model.safetensors"} <= names_in(
        root / "encoder-hub"
    )
    assert not (root / "encoder-hub" / "model.onnx").exists()


def test_the_config_is_that_of_the_family_with_the_labels(root: Path) -> None:
    config = json.loads((root / "classifier-hub" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertForSequenceClassification"])
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert json.loads((root / "encoder-hub" / "config.json").read_text())["architectures"] == ["BertModel"]


def test_the_card_says_what_was_compared(root: Path) -> None:
    card = (root / "classifier-hub" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card
    assert "onnx/model_quantized.onnx" in card
    assert "64 texts (generated sentences)" in card
    assert "library_name: sentence-transformers" in (root / "encoder-hub" / "README.md").read_text()


def test_bermo_answers_from_the_graphs(root: Path) -> None:
    expected = bermo.predict(root / "classifier", TEXTS)
    found = bermo.predict(root / "classifier-hub", TEXTS)
    assert [item.probability for item in found] == pytest.approx(
        [item.probability for item in expected], abs=0.05
    )
    encoder = SentenceEncoder(root / "encoder-hub")
    assert encoder.predictor.opened.runtime == "onnxruntime"
    assert encoder.settings == SentenceEncoder(root / "encoder").settings
    cosines = (encoder.encode(TEXTS) * SentenceEncoder(root / "encoder").encode(TEXTS)).sum(1)
    np.testing.assert_allclose(cosines, 1, atol=0.01)
    size = (root / "encoder-hub" / "onnx" / "model_quantized.onnx").stat().st_size
    assert open_trained(root / "encoder-hub").num_bytes == size


def test_pooling_the_tokens_of_the_graph_gives_its_vector(root: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(root / "encoder-hub" / "onnx" / "model.onnx")
    batch = {
        "input_ids": np.array([[2, 7, 8, 3], [2, 9, 3, 0]]),
        "attention_mask": np.array([[1] * 4, [1, 1, 1, 0]]),
    }
    batch["token_type_ids"] = np.zeros_like(batch["input_ids"])
    tokens, vectors = session.run(["last_hidden_state", "sentence_embedding"], batch)
    first = tokens[:, 0] / np.linalg.norm(tokens[:, 0], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, first, atol=1e-6)


def test_a_changed_graph_is_noticed(root: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(root / "classifier-hub", copied)
    with (copied / "onnx" / "model_quantized.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(BermoError, match="damaged, or was changed"):
        open_trained(copied)


def test_a_form_that_is_no_onnx_has_no_such_layout(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(root / "classifier"), "--to", "openvino", "--layout", "hub"]) == 2
    assert "--layout hub is for ONNX" in capsys.readouterr().err


def test_the_example_runs_with_onnxruntime_and_tokenizers_alone(root: Path, tmp_path: Path) -> None:
    for package in FOR_EXAMPLE:
        found = find_spec(package.partition(".")[0])
        assert found is not None
        assert found.submodule_search_locations is not None
        place = Path(found.submodule_search_locations[0]).parent / package
        if place.exists():
            (tmp_path / package).symlink_to(place)
    script = root / "classifier-hub" / "example.py"
    assert len(script.read_text().splitlines()) <= 15
    command = [sys.executable, "-S", str(script), *TEXTS]
    alone = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
    labels = [line.split()[0] for line in done.stdout.splitlines()]
    assert labels == [item.label for item in bermo.predict(root / "classifier-hub", TEXTS)]


@pytest.mark.parametrize("kind", ["classification", "multi-label", "regression", "tagging", "reranker"])
def test_the_example_of_every_kind_is_python_of_its_own_labels(kind: Any) -> None:
    labels = ("it's", 'a "b" {c}') if kind in ("classification", "multi-label", "tagging") else ()
    trained = TrainedTask(task=own_task(kind), labels=labels, text=("a", "b"), max_length=9, stride=1)
    script = example_script(trained, make_tokenizer(), "model.onnx")
    assert script is not None
    assert repr(list(labels)) in script
    assert "texts[1::2]" in script
    compile(script, "example.py", "exec")
