"""An export answers as it does by way of transformers, byte for byte, where neither that nor torch can be
imported; and only what its record vouches for is answered so.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bermo.cli import main
from bermo.errors import BermoError
from bermo.files import write_json
from bermo.runs.loading import reading_of
from bermo.runs.reading import FIELD, needs_torch
from bermo.runs.trained import open_trained
from bermo.ship.export.run import _reading
from bermo.ship.runtimes.forms import find_form
from bermo.sums import SUMS_FILE, write_sums
from tests import tiny
from tests.ship.folders import make_model, save

Capture = pytest.CaptureFixture[str]
AXES = {"choice": ["rows", "choices", "tokens"]}
WIDTHS = {"classification": 2, "multi-label": 2, "regression": 1, "tagging": 2, "span": 1, "choice": 1}
FILES = {
    "a.txt": "a good film\n\nthe bad cats saw dogs and a film . " + "the cat sees a dog " * 12 + "\n",
    "a.csv": "number,text,gold\n7,a good film,good\n8,,bad\n9,the bad cats,bad\n",
    "other.csv": "number,said\n7,a good film\n",
    "q.csv": "id,question,context\nq1,the cat ?,"
    + "a good film . the dog saw a cat . " * 4
    + "\nq2,,a film\n",
    "c.csv": "a,b,c,d\nthe cat,a dog,saw a film,sees dogs\na dog,a cat,the film,a bad cat\n",
    "p.csv": "text_a,text_b\na good film,the cats\n" + "the dog " * 20 + ",a bad film\n",
}
ASKED = [
    ["classification", "a.txt"],
    ["classification", "a.csv", "--id", "number", "--with-text", "--probabilities"],
    ["classification", "a.csv", "--truth", "gold", "--top", "1", "--batch-size", "1"],
    ["classification", "other.csv"],
    ["classification", "other.csv", "--columns", "said"],
    ["classification", "none.csv"],
    ["classification", "a.csv", "--id", "nummer"],
    ["classification", "--text", "a good film", "--text", ""],
    ["classification", "a.txt", "--precision", "bf16"],
    ["pairs", "p.csv", "--probabilities"],
    ["multi-label", "a.txt", "--probabilities"],
    ["regression", "a.txt"],
    ["regression", "a.txt", "--probabilities"],
    ["tagging", "a.txt", "--probabilities"],
    ["span", "q.csv"],
    ["choice", "c.csv", "--columns", "a,b,c,d", "--probabilities"],
    ["left", "a.txt"],
    ["diverged", "a.txt"],
]
"""Words of `bermo predict`, the model first."""
BLOCKED = """
import json, sys
class Blocked:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise AssertionError(f"{name} is imported")
sys.meta_path.insert(0, Blocked())
sys.argv[0] = "bermo"  # the command imports nothing that it does not need
from bermo.cli import main
for words in json.loads(sys.argv[1]):
    print(main(["predict", *words]), flush=True)
print(sorted(name for name in sys.modules if name.startswith("bermo.verbs.")))
"""


def write_graph(path: Path, kind: str) -> None:
    """Write a graph that looks its answers up: a few numbers for each token, averaged where a text has one
    answer.
    """
    width = WIDTHS[kind]
    table = np.random.default_rng(0).normal(size=(tiny.VOCABULARY, width)).astype(np.float32)
    axes = AXES.get(kind, ["rows", "tokens"])
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in ("input_ids",)]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["looked_up"])]
    constants = [numpy_helper.from_array(table, "table")]
    outputs = ["logits"]
    if kind in ("tagging", "span"):
        last = [*axes, width]
        nodes.append(helper.make_node("Identity", ["looked_up"], ["logits"]))
        if kind == "span":
            last, outputs = axes, ["start_logits", "end_logits"]
            constants.append(numpy_helper.from_array(np.array([-1]), "at"))
            nodes[-1:] = [
                helper.make_node("Squeeze", ["looked_up", "at"], ["start_logits"]),
                helper.make_node("Neg", ["start_logits"], ["end_logits"]),
            ]
    else:
        last = [axes[0], width if kind != "choice" else axes[1]]
        constants.append(numpy_helper.from_array(np.array([-2]), "at"))
        nodes.append(helper.make_node("ReduceMean", ["looked_up", "at"], ["mean"], keepdims=0))
        if kind == "choice":
            constants.append(numpy_helper.from_array(np.array([-1]), "end"))
            nodes.append(helper.make_node("Squeeze", ["mean", "end"], ["logits"]))
        else:
            nodes.append(helper.make_node("Identity", ["mean"], ["logits"]))
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, last) for name in outputs]
    graph = helper.make_graph(nodes, kind, inputs, given, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, str(path))


def export_of(folder: Path, name: str) -> Path:
    """Write an export as bermo does, but for its graph, and once more as one that takes torch."""
    family = "xlnet" if name == "left" else "bert"
    kind = name if name in WIDTHS else "classification"
    made = "classification" if kind == "multi-label" else kind
    for own, has_reading in ((folder / "new" / name, True), (folder / "old" / name, False)):
        save(make_model(family, made), own, made)
        (own / "model.safetensors").unlink()
        task = json.loads((own / "task.json").read_text()) | {"kind": kind}
        if name == "pairs":
            task["text"] = ["text_a", "text_b"]
        write_json(own / "task.json", task)
        write_graph(own / "model.onnx", kind)
        record: dict[str, Any] = {"precision": "fp32", "diverged": "the loss" if name == "diverged" else None}
        if has_reading:
            record[FIELD] = _reading(own, find_form("onnx"), kind)  # type: ignore[arg-type]
        write_json(own / "export.json", record)
        write_sums(own)
    return folder / "new" / name


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exports")
    for name in dict.fromkeys(words[0] for words in ASKED):
        export_of(root, name)
    for name, text in FILES.items():
        (root / name).write_text(text)
    return root


def test_every_answer_and_error_is_that_of_the_way_by_transformers(
    exports: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(exports)
    expected, codes = "", []
    for words in ASKED:
        told = []
        for way in ("old", "new"):
            codes.append(main(["predict", f"{way}/{words[0]}", *words[1:]]))
            printed = capsys.readouterr()
            told.append((codes[-1], printed.out, printed.err.replace(f"{way}/", "")))
        assert told[0] == told[1], words
        expected += f"{printed.out}{codes[-1]}\n"
    assert {0, 2} == set(codes)
    asked = json.dumps([[f"new/{words[0]}", *words[1:]] for words in ASKED])
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, asked], capture_output=True, text=True, check=False, cwd=exports
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers, _, verbs = done.stdout.rstrip("\n").rpartition("\n")
    assert answers + "\n" == expected
    assert "bermo.verbs.predict" in verbs


def test_a_server_and_a_test_file_need_no_torch_either(exports: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na good film,good\nthe bad cats,bad\n")
    folder = exports / "new" / "classification"
    code = BLOCKED.partition("for words")[0] + (
        f"assert main(['evaluate', {str(folder)!r}, 'rows.csv']) == 0\n"
        "from pathlib import Path\n"
        "from bermo.ship.serve.model import ServedModel\n"
        "from bermo.ship.serve.spec import ServeSpec\n"
        f"print(ServedModel(Path({str(folder)!r}), ServeSpec()).about.labels)\n"
        "print([name for name in sys.modules if name == 'bermo.verbs.train'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "[]"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-2:] == ["('bad', 'good')", "[]"]


def test_a_record_is_believed_only_beside_the_files_that_it_was_made_of(
    exports: Path, tmp_path: Path
) -> None:
    folder = export_of(tmp_path, "classification")
    assert open_trained(folder).reading == reading_of(folder)
    assert not needs_torch(folder)
    record = json.loads((folder / "export.json").read_text())
    lost = {"tokenizer": record[FIELD]["tokenizer"] | {"pad_id": tiny.VOCABULARY}}
    for other in ({"more": 1}, {"num_words": None}, {"tokenizer": {}}, lost):
        write_json(folder / "export.json", record | {FIELD: record[FIELD] | other})
        write_sums(folder)
        assert needs_torch(folder)
        assert open_trained(folder).reading is None
    write_json(folder / "export.json", record)
    (folder / SUMS_FILE).unlink()
    assert needs_torch(folder)
    write_sums(folder)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("60", "70"))
    with pytest.raises(BermoError, match=r"config\.json is damaged, or was changed"):
        open_trained(folder)
    (folder / "config.json").write_text(config)
    task = json.loads((folder / "task.json").read_text())
    write_json(folder / "task.json", task | {"labels": ["a", "b", "c"]})
    write_sums(folder)
    with pytest.raises(BermoError, match="3 labels for a model that has 2"):
        open_trained(folder)


def test_a_token_that_the_model_does_not_know_is_refused(
    exports: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = export_of(tmp_path, "classification")
    record = json.loads((folder / "export.json").read_text())
    record[FIELD]["num_words"] = 8
    write_json(folder / "export.json", record)
    write_sums(folder)
    assert main(["predict", str(folder), "--text", "a good film"]) == 2
    assert "but the model has embeddings for 0 to 7 only" in capsys.readouterr().err


def test_a_model_that_gives_vectors_is_asked_by_its_config(exports: Path) -> None:
    assert _reading(exports / "new" / "classification", find_form("onnx"), "embedding") is None
    assert _reading(exports / "new" / "classification", find_form("sparse"), "classification") is None
