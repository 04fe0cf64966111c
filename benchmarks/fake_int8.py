"""How far fake int8 is from the int8 graph that onnxruntime runs, by the number of layers.

    python benchmarks/fake_int8.py MODEL TEXTS.tsv [--layers 1 3 12] [--out results/fake-int8.json]

Both compute the same numbers but for sums in another order and the graph's faster GELU; rounding makes a
small difference large where it moves a number over the middle between two codes.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

import bermo
from bermo.methods.student import student_from_teacher
from bermo.models.quantized import int8_copy
from bermo.ship.export.compare import relative_error
from bermo.ship.export.onnx import quiet, write_onnx
from bermo.ship.export.quantize import quantize_dynamic
from bermo.ship.export.rewrite import quicken
from bermo.ship.runtimes.candidate import OnnxCandidate

NUM_TEXTS = 16


def errors(model: Any, batch: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the relative errors of fp32's and of fake int8's answers beside the int8 graph's."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        graph, int8 = Path(folder) / "graph.onnx", Path(folder) / "int8.onnx"
        write_onnx(model, batch, graph)
        quicken(graph)
        quantize_dynamic(graph, int8, "signed")
        exported = OnnxCandidate(int8, None)({name: value.numpy() for name, value in batch.items()})
    with torch.no_grad():
        answers = {"fp32": model(**batch).logits, "fake_int8": int8_copy(model)(**batch).logits}
    return {name: relative_error([logits.numpy()], exported) for name, logits in answers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 3, 12])
    parser.add_argument("--out", type=Path, default=Path("results/fake-int8.json"))
    options = parser.parse_args()
    torch.manual_seed(0)
    whole = bermo.BermoForSequenceClassification.from_backbone(
        options.model, mix="none", pooling="mean", num_labels=2
    )
    lines = options.texts.read_text(encoding="utf-8").splitlines()[1 : NUM_TEXTS + 1]
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    batch = dict(tokenizer([line.split("\t")[0] for line in lines], padding=True, return_tensors="pt"))
    rows = [
        {"layers": count} | errors(student_from_teacher(whole, range(1, count + 1)), batch)
        for count in options.layers
    ]
    content = {"model": Path(options.model).name, "texts": NUM_TEXTS, "rows": rows}
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
