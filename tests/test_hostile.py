"""What strangers' files try: to run code, to lead out of their folder, to take all time or all memory.

A file that could run code would leave a mark. Every verb that takes a model is given one.
"""

import ast
import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bermo
from bermo.cli import main
from bermo.data import packed
from bermo.data.read import read_table
from bermo.encoders.pooling import trained_pooling
from bermo.errors import BermoError
from tests.hostile_models import add_code, change_json, make_pickle
from tests.ship.folders import make_model, save
from tests.tiny import save_backbone

PACKAGE = Path(bermo.__file__).parent
TRAIN = "train --train my.csv --valid dev.csv --max-unknown 1 --out out"
ENCODERS = {
    "train": f"{TRAIN} --model hostile",
    "train with a teacher": f"{TRAIN} --model good --teacher hostile",
    "pretrain": "pretrain --text texts.txt --tokenizer hostile --out out",
    "probe": "probe --model hostile --tasks tense --limit 20 --out out",
    "analyse": "analyse hostile --data dev.csv --out out",
}
MODELS = {
    "predict": "predict hostile texts.txt",
    "evaluate": "evaluate hostile dev.csv",
    "export": "export hostile --to onnx --out out",
    "shrink": "shrink hostile --out out",
    "bench": "bench hostile --rounds 1 --batch 1 --lengths 8",
    "compress": "compress hostile --speedup 2 --lengths 16 --train my.csv --valid dev.csv --out out",
    "analyse": "analyse hostile --data dev.csv --out out",
}


@pytest.fixture(autouse=True)
def never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question is asked on the terminal; whoever answers yes would let the code run."""
    monkeypatch.setattr("builtins.input", lambda *text: pytest.fail("a question was asked"))


def _refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.usefixtures("bench_here")
@pytest.mark.parametrize("verb", MODELS)
def test_no_verb_opens_a_pickle(verb: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = files / "mark"
    save(make_model(), files / "hostile")
    make_pickle(files / "hostile", mark)
    assert "pickle" in _refused(MODELS[verb], capsys)
    assert not mark.exists()


@pytest.mark.parametrize("verb", ["train", "probe"])
def test_no_verb_opens_the_pickle_of_an_encoder(
    verb: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = files / "mark"
    save_backbone("bert", files / "good")
    shutil.copytree(files / "good", files / "hostile")
    make_pickle(files / "hostile", mark)
    assert "pickle" in _refused(ENCODERS[verb], capsys)
    assert not mark.exists()


@pytest.mark.parametrize("verb", ENCODERS)
def test_no_verb_runs_the_code_of_an_encoder(
    verb: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = files / "mark"
    save_backbone("bert", files / "good")
    shutil.copytree(files / "good", files / "hostile")
    add_code(files / "hostile", mark, AutoConfig="hostile.Thing", AutoModel="hostile.Thing")
    change_json(files / "hostile" / "config.json", model_type="hostile")
    if verb == "pretrain":
        (files / "hostile" / "tokenizer.json").unlink()
    said = _refused(ENCODERS[verb], capsys)
    assert "code" in said or (verb == "pretrain" and "Could not load the tokenizer" in said)
    assert not mark.exists()


@pytest.mark.parametrize("folder", ["../secret", "/etc", "a/../../secret", "..", ""])
def test_a_module_of_pooling_outside_its_folder_is_not_read(folder: str, tmp_path: Path) -> None:
    encoder = save_backbone("bert", tmp_path / "encoder")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    modules = [{"path": folder, "type": "sentence_transformers.models.Pooling"}]
    (encoder / "modules.json").write_text(json.dumps(modules))
    assert trained_pooling(encoder) is None


@pytest.mark.parametrize("key", ["tokenizer_file", "vocab_file"])
def test_a_tokenizer_reads_no_file_that_its_settings_name(key: str, tmp_path: Path) -> None:
    encoder = save_backbone("bert", tmp_path / "encoder")
    secret = json.loads((encoder / "tokenizer.json").read_text(encoding="utf-8"))
    secret["model"]["vocab"]["hunter2"] = 40
    (tmp_path / "secret.json").write_text(json.dumps(secret), encoding="utf-8")
    for name in (str(tmp_path / "secret.json"), "../secret.json"):
        change_json(encoder / "tokenizer_config.json", **{key: name})
        assert "hunter2" not in bermo.encoders.backbone.load_tokenizer(encoder).get_vocab()


@pytest.mark.parametrize("place", ["../secret.bin", "absolute", "link.bin"])
def test_a_graph_reads_its_weights_only_inside_its_folder(place: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from bermo.ship.runtimes.candidate import OnnxCandidate

    (tmp_path / "secret.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    location = str(tmp_path / "secret.bin") if place == "absolute" else place
    tensor.external_data.add(key="location", value=location)
    out = onnx.helper.make_tensor_value_info("y", 1, [4])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["y"])], "g", [], [out], [tensor]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BermoError, match="Could not load the graph"):
        OnnxCandidate(folder / "model.onnx", 1)


def _patterns() -> Iterator[tuple[str, str]]:
    """Every regular expression that is written in the package, with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "import re\n" in text else ():
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re")), args=[ast.Constant(value=str(pattern)), *_]
                ):
                    yield f"{path.name}:{node.lineno}", pattern


def _depth(tree: Iterator[tuple[object, object]]) -> int:
    """How deep repeats without end lie in each other: two of them take time that grows by powers."""
    deepest = 0
    for name, value in tree:
        inner = [part for part in (value if isinstance(value, tuple | list) else (value,)) if _is_tree(part)]
        below = max((_depth(part) for part in inner), default=0)
        endless = str(name) in ("MAX_REPEAT", "MIN_REPEAT") and value[1] > 1000  # type: ignore[index]
        deepest = max(deepest, below + endless)
    return deepest


def _is_tree(part: object) -> bool:
    return type(part).__name__ == "SubPattern"


def test_no_regular_expression_repeats_what_is_repeated() -> None:
    from re import _parser  # type: ignore[attr-defined]

    found = dict(_patterns())
    assert len(found) > 10
    for place, pattern in found.items():
        assert _depth(_parser.parse(pattern)) <= 1, f"{place}: {pattern}"
    assert _depth(_parser.parse(r"(a+)+")) == 2


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.jsonl.gz"])
def test_an_archive_without_end_is_refused_before_the_memory_is_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb") as file:
        file.write(b'{"text":"' if "jsonl" in name else b'text,label\n"')
        for _ in range(64):
            file.write(b"x" * (1 << 20))
    (tmp_path / name).write_bytes(content.getvalue())
    assert (tmp_path / name).stat().st_size < 1 << 17
    monkeypatch.setattr(packed, "memory_bytes", lambda: 16 << 20)
    with pytest.raises(BermoError, match="unpacks to more than"):
        read_table(tmp_path / name)


def test_a_link_as_a_name_in_an_index_is_no_way_out(tmp_path: Path) -> None:
    from bermo.encoders.trust import check_weights

    encoder = save_backbone("bert", tmp_path / "encoder")
    (encoder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    for name in (
        "../elsewhere.safetensors",
        str(tmp_path / "elsewhere.safetensors"),
        "a\\..\\b.bin",
        os.devnull,
    ):
        index = {"metadata": {}, "weight_map": {"w": name}}
        (encoder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(BermoError, match="only safetensors beside it"):
            check_weights(encoder)
