"""A working folder full of things that are wrong: tables, models, exports and runs, each with one fault."""

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bermo.files import seal
from bermo.spec import DataSpec, RunSpec
from bermo.values import to_dict
from tests.results import seed_result
from tests.ship.folders import make_model, save
from tests.tiny import make_config, make_tokenizer, save_backbone
from tests.trees import treebank

DEEP = "[" * 100_000
ROWS = [f"{text},{label}" for label in ("good", "bad") for text in (f"a {label} film", f"the {label} cats")]
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(40)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 12345\n"
TABLE = "text,label\n" + "\n".join(ROWS * 4) + "\n"
METRICS = """def cost(truth, answers):
    return 1 / 0
def empty(truth, answers): ...
def three(truth, answers, weights): ...
def f1(truth, answers): ...
def sure(truth, answers, probabilities): ...
"""
QUESTION = {"id": "1", "question": "who?", "answers": [{"text": 3, "answer_start": 0}]}
SQUAD = {"version": "1.1", "data": [{"paragraphs": [{"context": "a cat", "qas": [QUESTION]}]}]}


def build(root: Path) -> None:
    """Fill the folder."""
    _tables(root)
    save(make_model(layers=2), root / "model")
    save(make_model(layers=2, kind="tagging"), root / "tagger", "tagging")
    save_backbone("bert", root / "encoder")
    for name, change in MODELS.items():
        change(Path(shutil.copytree(root / "model", root / name)))
    for name, change in ENCODERS.items():
        change(Path(shutil.copytree(root / "encoder", root / name)))
    _runs(root)
    _places(root)


def _tables(root: Path) -> None:
    many = "".join(f"a good film,{k}-label\n" for k in range(400))
    files = {
        "my.csv": TABLE,
        "dev.csv": TABLE,
        "texts.txt": "a good film\nthe bad cats\n",
        "empty.csv": "",
        "blank.csv": "\n\n\n",
        "header.csv": "text,label\n",
        "one-label.csv": TABLE.replace(",bad\n", ",good\n"),
        "unlabelled.csv": TABLE.replace(",bad\n", ",\n").replace(",good\n", ",\n"),
        "semicolons.csv": ";;;;\n;;;;\n",
        "other-labels.csv": TABLE.replace(",bad", ",ugly"),
        "many-labels.csv": "text,label\n" + many,
        "numbers.csv": "text,label\n" + "".join(f"film {k},{k / 7:.3f}\n" for k in range(40)) + "film,nan\n",
        "one-column.csv": "text\na good film\n",
        "columns.csv": "a,b\n1,2\n",
        "empty.txt": "",
        "blank.txt": "\n \n",
        "deep.json": DEEP,
        "deep.jsonl": DEEP,
        "torn.json": '[{"text": "a',
        "torn.jsonl": '{"text": "a", "label": "b"}\n{"text": ',
        "list.jsonl": "[1, 2]\n",
        "nothing.jsonl": "{}\n{}\n",
        "late.jsonl": '{}\n{"text": "a good film", "label": "good"}\n{"text": "bad cats", "label": "bad"}\n',
        "parts.json": '{"train": [{"text": "a", "label": "b"}], "test": [{"text": "c", "label": "d"}]}',
        "fasttext.txt": "__label__good a good film\nbad cats\n",
        "answers.json": json.dumps(SQUAD),
        "foreign.csv": "text,label\nсловарь этого языка,good\nничего не знает,bad\n" * 4,
        "torn.parquet": "PAR1 and nothing else",
        "torn.xlsx": "no workbook",
        "torn.gz": "no archive",
        "words.docx": "a file of another program",
        "torn-pairs.jsonl": "{",
        "short.txt": "one line\n",
        "mine.py": METRICS,
        "torn.py": "def cost(:\n",
        **_treebanks(),
    }
    for name, content in files.items():
        (root / name).write_text(content, encoding="utf-8")
    (root / "latin.csv").write_bytes(TABLE.replace("film", "café").encode("latin-1"))
    files_of_others = {
        "image.csv": PNG,
        "binary.txt": b"\0\0\0\r" * 40 + b"\xd8\0" * 40,
        "a-pdf.csv": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n",
        "old.csv": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(64),
        "zipped.csv": _zipped("my.csv"),
        "workbook.csv": _zipped("[Content_Types].xml"),
        "page.csv": b"<!DOCTYPE html>\n<html><body>Please log in</body></html>\n",
        "pointer.csv": POINTER,
        "utf16-cut.csv": TABLE.encode("utf-16")[:-1],
        "twice.csv": b"text,text,label\na,b,good\nc,d,bad\n",
    }
    for name, data in files_of_others.items():
        (root / name).write_bytes(data)
    (root / "binary.csv").write_bytes(bytes(range(256)) * 8)
    (root / "nul.csv").write_bytes(b"text,label\na\0b,good\nc,bad\n")
    (root / "folder.csv").mkdir()


def _zipped(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, TABLE)
    return packed.getvalue()


def _treebanks() -> dict[str, str]:
    """Trees with one fault each."""
    good = treebank(20)
    return {
        "trees.conllu": good,
        "nine.conllu": good.replace("\t_\n", "\n", 1),
        "blanks.conllu": good.replace("\t", " "),
        "circle.conllu": good.replace("\t3\tnsubj", "\t1\tnsubj"),
        "headless.conllu": good.replace("\t3\tnsubj", "\t_\tnsubj"),
        "rootless.conllu": good.replace("\t0\troot", "\t2\troot"),
        "two-roots.conllu": good.replace("\t3\tnsubj", "\t0\tnsubj"),
        "far-head.conllu": good.replace("\t3\tnsubj", "\t77\tnsubj"),
        "own-head.conllu": good.replace("\t3\tnsubj", "\t2\tnsubj"),
        "jump.conllu": good.replace("\n2\t", "\n4\t"),
        "sideways.conllu": "1-2\tdon't" + "\t_" * 8 + "\n1.1\tit" + "\t_" * 8 + "\n\n",
        "few.conllu": treebank(3),
        "one-word.txt": "the O\ndog\n",
        "ragged-words.txt": "the O\ndog NN O\n",
    }


Change = Callable[[Path], None]


def _write(name: str, content: str | bytes) -> Change:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data) and None


def _remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def _values(name: str, **values: Any) -> Change:
    def change(folder: Path) -> None:
        known = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(known | values), encoding="utf-8")

    return change


def _tensor(name: str, value: float | None) -> Change:
    """Fill a tensor with a value, make a new one, or take one out."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        if value is None:
            del tensors[name]
        else:
            tensors[name] = torch.full_like(tensors.get(name, torch.zeros(2)), value)
        save_file(tensors, path, {"format": "pt"})

    return change


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))


def _pickled_index(folder: Path) -> None:
    _pickled(folder)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "pytorch_model.bin"}})
    )


def _foreign_ids(folder: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([f"new{k}" for k in range(100)])
    tokenizer.add_tokens(["good film", "bad cats"])
    tokenizer.save_pretrained(folder)


def _export(file: str, content: bytes, record: str = '{"precision": "fp32"}') -> Change:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / file).write_bytes(content)
        (folder / "export.json").write_text(record)

    return change


def _header(change: Callable[[dict[str, Any]], None], size: int | None = None) -> Change:
    """Write other claims about the first tensor, or another size of the header itself."""

    def write(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        change(next(item for name, item in header.items() if name != "__metadata__"))
        text = json.dumps(header).encode()
        path.write_bytes((size or len(text)).to_bytes(8, "little") + text + content[end:])

    return write


def _backbone(**values: Any) -> Change:
    def change(folder: Path) -> None:
        known = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        known["backbone"] |= values
        (folder / "config.json").write_text(json.dumps(known), encoding="utf-8")

    return change


HEADLESS = b"\x10\0\0\0\0\0\0\0" + b"{}" + b" " * 14
MODELS: dict[str, Change] = {
    "no-config": _remove("config.json"),
    "huge-vocabulary": _backbone(vocab_size=10**10),
    "huge-layers": _backbone(intermediate_size=10**9),
    "huge-header": _header(lambda item: None, size=1 << 62),
    "huge-shape": _header(lambda item: item.update(shape=[1 << 40, 1 << 20])),
    "huge-offsets": _header(lambda item: item.update(data_offsets=[0, 1 << 50])),
    "torn-config": _write("config.json", '{"model_type": '),
    "deep-config": _write("config.json", DEEP),
    "list-config": _write("config.json", "[]"),
    "no-type": _write("config.json", "{}"),
    "odd-type": _values("config.json", model_type="no-such-thing"),
    "odd-mix": _values("config.json", mix={"kind": "no-such-mix"}),
    "odd-backbone": _values("config.json", backbone={"model_type": "bert", "hidden_size": "wide"}),
    "odd-structure": _values("config.json", structure={"layers": 3}),
    "no-weights": _remove("model.safetensors"),
    "empty-weights": _write("model.safetensors", ""),
    "torn-weights": _write("model.safetensors", b"\xff" * 64),
    "headless-weights": _write("model.safetensors", HEADLESS),
    "pickled": _pickled,
    "pickled-index": _pickled_index,
    "nan-weights": _tensor("head.out.bias", torch.nan),
    "infinite-weights": _tensor("bermo.layer_mix.scale", torch.inf),
    "lost-tensor": _tensor("bermo.backbone.encoder.layer.1.output.dense.weight", None),
    "lost-head": _tensor("head.out.weight", None),
    "extra-tensor": _tensor("bermo.layer_mix.more", 0.0),
    "no-task": _remove("task.json"),
    "torn-task": _write("task.json", '{"task": '),
    "deep-task": _write("task.json", DEEP),
    "list-task": _write("task.json", "[1]"),
    "odd-kind": _values("task.json", kind="poetry"),
    "three-labels": _values("task.json", labels=["a", "b", "c"]),
    "no-tokenizer": _remove("tokenizer.json"),
    "torn-tokenizer": _write("tokenizer.json", '{"version": '),
    "deep-tokenizer": _write("tokenizer.json", DEEP),
    "foreign-ids": _foreign_ids,
    "pointer": _write("model.safetensors", POINTER),
    "pointer-onnx": _export("model.onnx", POINTER),
    "torn-onnx": _export("model.onnx", b"no graph"),
    "empty-onnx": _export("model.onnx", b""),
    "torn-xml": _export("model.xml", b"<net"),
    "torn-sparse": _export("sparse.safetensors", b"no tensors at all"),
    "headless-sparse": _export("sparse.safetensors", HEADLESS),
    "torn-record": _export("model.onnx", b"no graph", "{"),
    "deep-record": _export("model.onnx", b"no graph", DEEP),
    "an-export": _export("model.onnx", b"no graph"),
}
ENCODERS: dict[str, Change] = {
    "own-code": _values("config.json", model_type="mine", auto_map={"AutoConfig": "mine.Config"}),
    "a-kernel": _values("config.json", attn_implementation="some/kernel"),
    "an-adapter": _write("adapter_config.json", "{}"),
    "pickled-encoder": _pickled,
    "nan-encoder": _tensor("encoder.layer.0.output.dense.bias", torch.nan),
    "lost-layer": _tensor("encoder.layer.2.output.dense.weight", None),
    "pointer-encoder": _write("model.safetensors", POINTER),
    "torn-encoder": _write("model.safetensors", b"\xff" * 64),
    "foreign-encoder": _foreign_ids,
    "a-decoder": _write("config.json", '{"model_type": "t5", "d_model": 16}'),
    "odd-width": _values("config.json", hidden_size="wide"),
    "empty-tokenizer": _write("tokenizer.json", ""),
}


def _sealed(text: str) -> str:
    return json.dumps(seal(json.loads(text)))


def _runs(root: Path) -> None:
    """Folders of runs; the model of each, where it has one, is sound."""
    spec = {"spec": to_dict(RunSpec(data=DataSpec(train="my.csv", valid="dev.csv"))), "data": "digest"}
    result = json.dumps(vars(seed_result(1, 50.0)))
    whole = {
        "spec.json": json.dumps(spec),
        "seed-1/result.json": result,
        "seed-1/metrics.jsonl": '{"step": 1}\n',
    }
    runs: dict[str, dict[str, str]] = {
        "run": {},
        "torn-spec": {"spec.json": "{"},
        "deep-spec": {"spec.json": DEEP},
        "list-spec": {"spec.json": '{"spec": [], "data": ""}'},
        "odd-spec": {"spec.json": json.dumps({"spec": {"modle": {}}, "data": ""})},
        "torn-result": {"seed-1/result.json": "{"},
        "deep-result": {"seed-1/result.json": DEEP},
        "odd-result": {"seed-1/result.json": result.replace("50.0", '"high"')},
        "torn-metrics": {"seed-1/metrics.jsonl": '{"step": \n{"step": 2}\n'},
        "list-metrics": {"seed-1/metrics.jsonl": "[1]\n[2]\n"},
        "deep-metrics": {"seed-1/metrics.jsonl": DEEP + "\n{}\n"},
        "odd-seed": {"seed-first/result.json": result},
        "changed-spec": {"spec.json": _sealed(json.dumps(spec)).replace('"my.csv"', '"mine.csv"')},
        "changed-result": {"seed-1/result.json": _sealed(result).replace("50.0", "58.0")},
        "changed-metrics": {"seed-1/metrics.jsonl": _sealed('{"step": 1}').replace("1", "2", 1) + "\n"},
    }
    for name, files in runs.items():
        for file, content in {**whole, **files}.items():
            (root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (root / name / file).write_text(content, encoding="utf-8")
        (root / name / "seed-1" / "result.json").stat().st_size or (
            root / name / "seed-1/result.json"
        ).unlink()
    shutil.copytree(root / "model", root / "run" / "model")
    (root / "unfinished").mkdir()
    (root / "unfinished" / "spec.json").write_text(json.dumps(spec))
    figures = {
        "torn-figures": "{",
        "deep-figures": DEEP,
        "odd-figures": '{"sections": 3}',
        "changed-figures": _sealed('{"title": "a", "facts": {}, "sections": []}').replace('"a"', '"b"'),
    }
    for name, content in figures.items():
        (root / name).mkdir()
        (root / name / "figures.json").write_text(content)


def _places(root: Path) -> None:
    """Places that nothing can be written to, or that hold something else."""
    (root / "file").write_text("a file")
    (root / "full").mkdir()
    (root / "full" / "something").write_text("of somebody else")
    (root / "nothing").mkdir()
    for name in ("nowhere", "nowhere.jsonl"):
        (root / name).symlink_to("no/such/place")
    (root / "circle").symlink_to("circle")
    (root / "page.html").write_text("<p>a page of somebody else</p>")
    (root / "benched").mkdir()
    (root / "benched" / "bench.json").write_text("{}")
    (root / "config").mkdir()
    make_config("bert").save_pretrained(root / "config")
