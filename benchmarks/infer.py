"""How many texts a second a classifier answers, and how long one text takes, beside Hugging Face's.

    python benchmarks/infer.py MODEL --data dev.tsv --out results/infer-cuda.json        on a GPU
    python benchmarks/infer.py box --device cpu --count 64                               to try the script

MODEL is an encoder's folder. Its texts are those of the file, again from the start until there are --count of
them; without --data they are random words, as many as in SST-2's sentences. They are tokenised before the
clock starts. Both sides collate, copy to the device and copy the logits back. Hugging Face gets its batches
in the order of the file, as Trainer and pipelines make them; "sorted" gets them as ours are. Ours is what
`bermo predict` and `bermo bench` run: texts sorted by length, a CUDA graph for each shape, fused attention.
"Student" is the encoder with 3 layers and 55 % of the neurons, weights as they come: only its time means
something. Latency is that of one text of 16 tokens.
"""

import argparse
import copy
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from bermo.data.batches import Indices, in_order
from bermo.data.columns import find_columns
from bermo.data.features import Features, tokenise
from bermo.data.read import read_table
from bermo.data.rows import TextRows
from bermo.data.sentences.lexicon import OTHERS
from bermo.data.tasks import find_task
from bermo.data.tensors import collate
from bermo.encoders.backbone import load_config, load_tokenizer
from bermo.encoders.families import has_segments
from bermo.models.tasks import BermoForSequenceClassification
from bermo.ship.runtimes.candidate import answer
from bermo.ship.runtimes.torch_candidate import DTYPES, TorchCandidate
from bermo.spec import DataSpec

CALLS = 200
FACTORS = {"Hugging Face, fp32": 6.0, "Hugging Face, fp16": 1.5}
"""The targets: how many times faster than these."""


def texts_of(options: argparse.Namespace) -> list[str]:
    """Return the texts of the file, or random words: SST-2's sentences have 19 on average."""
    if options.data is None:
        generator = np.random.default_rng(0)
        words = [word for group in OTHERS.values() for word in group]
        counts = generator.normal(19, 9, options.count).clip(2, 50).astype(int)
        return [" ".join(generator.choice(words, count)) for count in counts]
    table = read_table(options.data)
    own = table.column(find_columns(table, None, None, needs_label=False).text[0])
    return (own * (options.count // len(own) + 1))[: options.count]


def features_of(options: argparse.Namespace, config: PretrainedConfig) -> Features:
    task, limits = find_task("sst2"), DataSpec(max_length=128)
    rows, tokenizer = TextRows(texts_of(options), None), load_tokenizer(options.model)
    return tokenise(rows, task, ("0", "1"), tokenizer, limits, has_segments(config))


def student_of(config: PretrainedConfig) -> PretrainedConfig:
    """The config of a student: 3 layers, 55 % of the neurons."""
    small = copy.deepcopy(config)
    small.num_hidden_layers = 3
    small.intermediate_size = int(0.55 * small.intermediate_size)
    return small


class Plain:
    """Hugging Face's classifier in a precision, called batch by batch."""

    def __init__(self, config: PretrainedConfig, device: str, precision: str) -> None:
        torch.manual_seed(0)
        model: nn.Module = AutoModelForSequenceClassification.from_config(config)
        self.model, self.device = model.eval().to(device, DTYPES[precision]), device

    @torch.inference_mode()
    def __call__(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        sent = {name: torch.from_numpy(values).to(self.device) for name, values in batch.items()}
        logits: np.ndarray = self.model(**sent).logits.float().cpu().numpy()
        return logits


def in_file_order(features: Features, size: int) -> list[Indices]:
    order = np.arange(len(features))
    return [order[start : start + size] for start in range(0, len(order), size)]


def texts_a_second(run: Callable[[], object], count: int, repeats: int) -> dict[str, float]:
    """Run over all texts: once to warm up, which captures graphs, then timed; the median is given."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return {
        "texts_a_second": round(count / statistics.median(seconds[1:])),
        "first_pass_s": round(seconds[0], 2),
    }


def latency_ms(call: Callable[[dict[str, np.ndarray]], object], calls: int) -> dict[str, float]:
    """Milliseconds of a call with one text of 16 tokens: the median and the 95th hundredth."""
    ids = np.random.default_rng(0).integers(5, 50, (1, 16))
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    times = []
    for number in range(calls + 10):
        start = time.perf_counter()
        call(batch)
        if number >= 10:
            times.append(1000 * (time.perf_counter() - start))
    return {
        "latency_ms": round(statistics.median(times), 3),
        "latency_p95_ms": round(float(np.quantile(times, 0.95)), 3),
    }


def rows_of(options: argparse.Namespace, config: PretrainedConfig, features: Features) -> Iterator[Any]:
    """Yield the name of each row and what is measured of it; one that fails is named with its error."""
    for precision in options.precisions:
        yield f"Hugging Face, {precision}", lambda p=precision: theirs(options, config, features, p)
    for precision in options.precisions:
        yield f"ours, {precision}", lambda p=precision: ours(options, config, features, p, "none")
    half = options.precisions[-1]
    yield f"ours with the mix, {half}", lambda: ours(options, config, features, half, "across")
    student = student_of(config)
    yield f"student, Hugging Face, {half}", lambda: theirs(options, student, features, half)
    yield f"student, ours, {half}", lambda: ours(options, student, features, half, "none")


def theirs(
    options: argparse.Namespace, config: PretrainedConfig, features: Features, precision: str
) -> dict[str, float]:
    model = Plain(config, options.device, precision)

    def run(batches: list[Indices]) -> None:
        for rows in batches:
            model({k: v.numpy() for k, v in collate(features, rows).items() if k != "labels"})

    in_file = in_file_order(features, options.batch)
    ordered = in_order(features, options.batch)
    measured = texts_a_second(lambda: run(in_file), len(features), options.repeats)
    in_length = texts_a_second(lambda: run(ordered), len(features), options.repeats)
    return measured | {"sorted": in_length["texts_a_second"]} | latency_ms(model, options.calls)


def ours(
    options: argparse.Namespace, config: PretrainedConfig, features: Features, precision: str, mix: str
) -> dict[str, float]:
    torch.manual_seed(0)
    made = BermoForSequenceClassification.from_backbone(copy.deepcopy(config), num_labels=2, mix=mix)
    candidate = TorchCandidate(made, options.device, precision)  # type: ignore[arg-type]
    measured = texts_a_second(
        lambda: answer(candidate, features, options.batch), len(features), options.repeats
    )
    graphs = 0 if candidate.replays is None else len(candidate.replays.graphs)
    return measured | latency_ms(candidate, options.calls) | {"graphs": graphs}


def measured_row(name: str, measure: Callable[[], dict[str, float]]) -> dict[str, Any]:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        return {"name": name} | measure()
    except Exception as error:
        return {"name": name, "error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}


def print_row(row: dict[str, Any]) -> None:
    if "error" in row:
        print(f"{row['name']:34}failed: {row['error']}", flush=True)
        return
    cells = [
        f"{row['texts_a_second']:12,}",
        f"{row.get('sorted', 0) or '':>12}",
        f"{row['latency_ms']:12.3f}",
    ]
    print(
        f"{row['name']:34}{''.join(cells)}{row['latency_p95_ms']:12.3f}{row['first_pass_s']:12.2f}",
        flush=True,
    )


def print_targets(rows: list[dict[str, Any]]) -> None:
    """Compare our fastest row of the whole encoder with the targets."""
    speeds = {row["name"]: row.get("texts_a_second", 0) for row in rows}
    best = max(speed for name, speed in speeds.items() if name.startswith("ours,"))
    for name, factor in FACTORS.items():
        if speeds.get(name):
            print(f"{best / speeds[name]:.2f} × {name} (wanted {factor})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--count", type=int, default=20_480)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of the latency")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "fp16", "bf16"], choices=list(DTYPES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("this measures a GPU, and torch sees none on this machine. Try --device cpu.")
    config = load_config(options.model)
    features = features_of(options, config)
    lengths = features.lengths
    print(f"{len(features):,} texts, {lengths.mean():.1f} tokens on average, {lengths.max()} at most")
    print(f"{'':34}{'texts/s':>12}{'sorted':>12}{'ms, one':>12}{'p95':>12}{'first s':>12}")
    rows = []
    for name, measure in rows_of(options, config, features):
        rows.append(measured_row(name, measure))
        print_row(rows[-1])
    print_targets(rows)
    if options.out:
        facts = {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.processor(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "count": len(features),
            "mean_tokens": round(float(lengths.mean()), 2),
            "batch": options.batch,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
