"""Our loop against transformers.Trainer on the same model, data and batch size: examples a second.

    python benchmarks/loop.py [--rows 2048] [--rounds 3] [--batch-size 32] [--layers 4] [--width 256]

Both train the same BertForSequenceClassification-shaped model (`--mix none`) on generated sentences, fp32, AdamW, clip 1,
linear decay, no evaluation and no checkpoint inside the timed part. Each pair of rounds starts from the same weights; rounds
alternate, so that a slow minute of the machine hits both. With and without grouping by length, on both or neither.
Prints a table and writes results/loop-<device>.json.
"""

import argparse
import copy
import json
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from bermo.backbone import load_tokenizer
from bermo.data.batches import BatchPlan
from bermo.data.features import Features, make_features
from bermo.data.load import load_task
from bermo.files import write_json
from bermo.job import Job
from bermo.methods.assemble import ModelLoss, TaskBatches
from bermo.model import BermoForSequenceClassification
from bermo.schedule import parameter_groups
from bermo.spec import DataSpec, TrainSpec
from bermo.train import fit, make_accelerator


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """The same features as plain lists, the form that Trainer's users have."""

    def __init__(self, features: Features) -> None:
        self.rows = []
        for index in range(len(features)):
            part = slice(int(features.starts[index]), int(features.starts[index + 1]))
            ids = features.ids[part].tolist()
            row = {
                "input_ids": ids,
                "attention_mask": [1] * len(ids),
                "labels": int(features.targets[index]),
            }
            if features.segments is not None:
                row["token_type_ids"] = features.segments[part].tolist()
            self.rows.append(row)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def time_ours(model: nn.Module, features: Features, settings: TrainSpec, folder: Path) -> float:
    """Seconds of one epoch in our loop."""
    plan = BatchPlan(features.lengths, settings.batch_size, seed=1, grouped=settings.group_lengths)
    job = Job(
        model=model, batches=TaskBatches(features, plan), objective=ModelLoss(),
        groups=parameter_groups(model, settings), evaluate=lambda m: {"none": 0.0},
        keep=lambda m: None, folder=folder, seed=1, identity="bench",
    )  # fmt: skip
    accelerator = make_accelerator(settings, folder)
    started = time.perf_counter()
    fit(job, settings, accelerator)
    _synchronise()
    return time.perf_counter() - started


def time_trainer(
    model: nn.Module, rows: Rows, settings: TrainSpec, folder: Path, tokenizer: Any
) -> float:
    """Seconds of one epoch in transformers.Trainer with its defaults and the same arithmetic."""
    arguments = TrainingArguments(
        output_dir=str(folder), num_train_epochs=1, per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.lr, warmup_steps=settings.warmup, save_strategy="no", report_to="none",
        disable_tqdm=True, logging_steps=50, use_cpu=settings.device == "cpu",
        train_sampling_strategy="group_by_length" if settings.group_lengths else "random",
    )  # fmt: skip
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    started = time.perf_counter()
    trainer.train()
    _synchronise()
    return time.perf_counter() - started


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--device", choices=("auto", "cpu"), default="cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()

    data_spec = DataSpec(task="box/tense", limit=options.rows)
    data = load_task(data_spec)
    tokenizer = load_tokenizer("box")
    features = make_features(
        data.train, data.task, data.labels, tokenizer, data_spec, has_segments=True
    )
    rows = Rows(features)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=options.width, num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64, intermediate_size=4 * options.width,
    )  # fmt: skip
    torch.manual_seed(0)
    start = BermoForSequenceClassification.from_backbone(config, mix=None, num_labels=2)
    base = TrainSpec(
        epochs=1,
        batch_size=options.batch_size,
        lr=1e-4,
        device=options.device,
        checkpoint_minutes=1e9,
    )
    results: dict[str, dict[str, float]] = {}
    for grouped in (False, True):
        settings = replace(base, group_lengths=grouped)
        seconds: dict[str, list[float]] = {"ours": [], "Trainer": []}
        for round_index in range(options.rounds + 1):
            for name in ("ours", "Trainer"):
                model = copy.deepcopy(start)
                with tempfile.TemporaryDirectory() as folder:
                    if name == "ours":
                        taken = time_ours(model, features, settings, Path(folder))
                    else:
                        taken = time_trainer(model, rows, settings, Path(folder), tokenizer)
                if round_index:  # the first round warms caches and threads up
                    seconds[name].append(taken)
        rates = {name: len(rows) / statistics.median(values) for name, values in seconds.items()}
        rates["ratio"] = rates["ours"] / rates["Trainer"]
        results["grouped" if grouped else "random order"] = rates
    _report(results, options)


def _report(results: dict[str, dict[str, float]], options: argparse.Namespace) -> None:
    table = Table(title="examples a second", box=None)
    for title in ("", "ours", "Trainer", "ratio"):
        table.add_column(title, justify="right")
    for name, rates in results.items():
        table.add_row(name, *(f"{rates[key]:.2f}" for key in ("ours", "Trainer", "ratio")))
    Console().print(table)
    is_gpu = options.device == "auto" and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if is_gpu else f"{platform.machine()} CPU"
    facts = {
        "device": device, "threads": torch.get_num_threads(), "torch": torch.__version__,
        "transformers": transformers.__version__,
        "shape": {k: getattr(options, k) for k in ("rows", "rounds", "batch_size", "layers", "width")},
        "examples_per_second": results,
    }  # fmt: skip
    write_json(options.out / f"loop-{'gpu' if is_gpu else 'cpu'}.json", facts)
    print(json.dumps(facts["examples_per_second"]))


if __name__ == "__main__":
    main()
