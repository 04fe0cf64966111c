"""transformers.js, fastembed and sentence-transformers load what `bermo export --layout hub` writes.

    python scripts/check_hub_layout.py

The small encoder of the package is exported as a classifier and as a sentence encoder. Each tool is installed
from npm or PyPI into a folder of its own, which is deleted afterwards, and given the exported folder; its
answers are compared with those of bermo, in fp32 with the torch model's, in int8 with the same graph's.
example.py runs in an environment that has onnxruntime and tokenizers alone. node and npm are needed. The exit
code is 1 where an answer differs.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bermo.data.load import own_task  # noqa: E402
from bermo.encoders.backbone import load_tokenizer  # noqa: E402
from bermo.encoders.sentence import SentenceSettings  # noqa: E402
from bermo.estimators.predict import predict  # noqa: E402
from bermo.models.sentence import BermoForSentenceEmbedding  # noqa: E402
from bermo.models.tasks import BermoForSequenceClassification  # noqa: E402
from bermo.runs.task_file import TrainedTask, write_task  # noqa: E402
from bermo.ship.export.run import export  # noqa: E402
from bermo.ship.export.spec import ExportSpec  # noqa: E402
from bermo.ship.runtimes.embed import SentenceEncoder  # noqa: E402
from scripts.check_sentence_transformers import STOCK, make_environment  # noqa: E402

TEXTS = ("a fine film", "two dull hours of nothing at all, in which even the music sleeps")
CLOSE = 1e-5
SAME_GRAPH = 1e-3
"""int8 with ranges of each batch: another padding, another rounding."""
TRANSFORMERS_JS = """
import { pipeline, env } from "@huggingface/transformers";
const [root, task, name, dtype, texts] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = root;
const run = await pipeline(task, name, { dtype });
const found = [];
for (const text of JSON.parse(texts)) {
  if (task === "feature-extraction")
    found.push((await run(text, { pooling: "mean", normalize: true })).tolist()[0]);
  else found.push(Object.fromEntries((await run(text, { top_k: null })).map((x) => [x.label, x.score])));
}
console.log(JSON.stringify(found));
"""
FASTEMBED = """
import json, sys
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
folder, file, dimension = sys.argv[1], sys.argv[2], int(sys.argv[3])
TextEmbedding.add_custom_model(model="mine/small", pooling=PoolingType.MEAN, normalization=True,
    sources=ModelSource(hf="mine/small"), dim=dimension, model_file=file)
model = TextEmbedding("mine/small", specific_model_path=folder)
print(json.dumps([next(iter(model.embed([text]))).tolist() for text in json.load(sys.stdin)]))
"""


def write_models(root: Path) -> tuple[Path, Path]:
    """Write a classifier with a random head, and a sentence encoder."""
    torch.manual_seed(0)
    classifier, encoder = root / "classifier", root / "encoder"
    BermoForSequenceClassification.from_backbone("box", num_labels=2).save_pretrained(classifier)
    trained = TrainedTask(
        task=own_task("classification"), labels=("bad", "good"), text=("text",), max_length=64, stride=8
    )
    write_task(classifier, trained)
    BermoForSentenceEmbedding.from_settings("box", SentenceSettings(max_length=64)).save_pretrained(encoder)
    for folder in (classifier, encoder):
        load_tokenizer("box").save_pretrained(folder)
    return classifier, encoder


def ask(command: Sequence[str | Path], **more: Any) -> Any:
    """Return what a process prints as JSON in its last line."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, **more)
    return json.loads(done.stdout.strip().splitlines()[-1])


class Check:
    """Compares answers, and remembers whether all were close."""

    def __init__(self) -> None:
        self.is_fine = True

    def __call__(self, what: str, found: Any, expected: Any, allowed: float) -> None:
        gap = float(np.abs(np.array(found) - np.array(expected)).max())
        self.is_fine &= gap <= allowed
        print(f"{what}: {gap:.1e} (allowed {allowed:.0e})", flush=True)


def probabilities(folder: Path) -> list[list[float]]:
    """Return the probability of each label by bermo, one text at a time as the others are asked."""
    answers = [predict(folder, [text])[0] for text in TEXTS]
    return [[item.probabilities[label] for label in ("bad", "good")] for item in answers]


def vectors(folder: Path) -> list[list[float]]:
    encoder = SentenceEncoder(folder)
    return [encoder.encode([text])[0].tolist() for text in TEXTS]


def check_js(check: Check, aside: Path, sources: tuple[Path, Path], made: tuple[Path, Path]) -> None:
    """transformers.js by its pipelines, in fp32 and in int8."""
    place = aside / "js"
    place.mkdir()
    (place / "check.mjs").write_text(TRANSFORMERS_JS, encoding="utf-8")
    # Without scripts nothing but the packages is fetched.
    wanted = ["--ignore-scripts", "--no-audit", "--no-fund", "@huggingface/transformers"]
    subprocess.run(["npm", "install", "--silent", *wanted], cwd=place, check=True)
    for dtype, folders, allowed in (("fp32", sources, CLOSE), ("q8", made, SAME_GRAPH)):
        classifier, encoder = made
        base = ["node", place / "check.mjs", f"{classifier.parent}/"]
        texts = json.dumps(TEXTS)
        found = ask([*base, "text-classification", classifier.name, dtype, texts])
        rows = [[item["bad"], item["good"]] for item in found]
        check(f"transformers.js, {dtype}, classifier", rows, probabilities(folders[0]), allowed)
        found = ask([*base, "feature-extraction", encoder.name, dtype, texts])
        check(f"transformers.js, {dtype}, encoder", found, vectors(folders[1]), allowed)


def check_fastembed(check: Check, aside: Path, source: Path, made: Path) -> None:
    python = _environment(aside / "fastembed", "fastembed")
    for file, folder, allowed in (("model", source, CLOSE), ("model_quantized", made, SAME_GRAPH)):
        expected = vectors(folder)
        command = [python, "-c", FASTEMBED, made, f"onnx/{file}.onnx", str(len(expected[0]))]
        check(f"fastembed, {file}", ask(command, input=json.dumps(TEXTS)), expected, allowed)


def check_stock(check: Check, aside: Path, source: Path, made: Path) -> None:
    python, out = make_environment(aside / "sentence"), aside / "stock.npy"
    command = [python, "-c", STOCK, made, "null", out]
    subprocess.run(command, input=json.dumps(TEXTS), check=True, capture_output=True, text=True)
    check("sentence-transformers", np.load(out), vectors(source), CLOSE)


def check_example(check: Check, aside: Path, made: Path) -> None:
    """example.py where nothing but onnxruntime and tokenizers is installed."""
    python = _environment(aside / "example", "onnxruntime", "tokenizers")
    found = [ask([python, made / "example.py", text]) for text in TEXTS]
    check("example.py", found, vectors(made), SAME_GRAPH)


def _environment(folder: Path, *packages: str) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def main() -> int:
    if shutil.which("npm") is None:
        sys.exit("node and npm are needed.")
    check = Check()
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder)
        sources = write_models(aside / "models")
        made = (aside / "made" / "classifier", aside / "made" / "encoder")
        for source, out in zip(sources, made, strict=True):
            export(source, out, ExportSpec(to="onnx-int8-signed", layout="hub", max_loss=100))
        check_example(check, aside, made[1])
        check_stock(check, aside, sources[1], made[1])
        check_fastembed(check, aside, sources[1], made[1])
        check_js(check, aside, sources, made)
    return 0 if check.is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
