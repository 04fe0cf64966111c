"""Our loop against transformers.Trainer, our pruning step against our plain one, bf16 against fp32.

    python benchmarks/loop.py [--rows 2048] [--rounds 3] [--batch-size 32] [--layers 4] [--width 256]
                              [--precision fp32|bf16|both] [--threads 1]

All train one BERT-shaped model with AdamW, clip 1 and linear decay on random rows as long as SST-2's
(`LENGTHS`); no evaluation and no checkpoint inside the timed part. Each way is as a user gets it, but all
keep the memory of freed tensors, as `bermo train` does:

    ours       defaults: like lengths together, copies of weights where they help
    Trainer    defaults: random order, each batch padded to its longest
    pruning    ours with movement to 10 %, timed in the middle of its schedule: masks change at every step
    frozen     ours without pruning, its embeddings frozen as those of `pruning` are
    … bf16     ours and Trainer in bf16, beside those in fp32 with `--precision both`

Ways alternate within a round, so that a slow minute of the machine hits all of them, and each starts from the
same weights; medians over rounds. Targets: ours ≥ 1.3 × Trainer in examples a second, a pruning step ≤ 1.5 ×
a plain one, `ours` or `frozen`; with AMX, ours in bf16 ≥ 2.5 × ours in fp32. Writes results/loop-gpu.json,
-x86 or -cpu (ARM), with -bf16 behind it for bf16 alone.
"""

import argparse
import copy
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from bermo.data.batches import BatchPlan
from bermo.data.features import Features, TokenFacts
from bermo.data.tasks import Task
from bermo.encoders.backbone import load_tokenizer
from bermo.files import write_json
from bermo.interrupts import own_process_
from bermo.machine import processor
from bermo.methods.assemble import LabelLoss, TaskBatches
from bermo.methods.prune import PrunedLoss, PruneHook
from bermo.models.tasks import BermoForSequenceClassification
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import WeightPruner, prune_
from bermo.spec import Precision, TrainSpec
from bermo.training.devices import make_accelerator
from bermo.training.job import Job
from bermo.training.loop import fit
from bermo.training.schedule import rate_groups
from bermo.verbs.light import keep_memory_

# Tokens of SST-2's training rows in BERT's pieces, with both special ones: their 0, 1/16, … 16/16 quantiles;
# mean 13.2.
LENGTHS = (3, 4, 5, 5, 6, 7, 8, 9, 10, 12, 13, 15, 18, 21, 25, 31, 63)


def make_rows(num: int, vocabulary: int) -> Features:
    """Random words and labels in rows of SST-2's lengths."""
    rng = np.random.default_rng(0)
    lengths = np.interp(rng.random(num) * 16, np.arange(17), LENGTHS).round().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    task = Task(name="lengths", kind="classification", metric="accuracy", labels=("0", "1"))
    facts = TokenFacts(unknown_share=0.0, truncated_share=0.0, lost_words=0, num_tokens=int(starts[-1]))
    return Features(
        task=task,
        labels=("0", "1"),
        rows=[],
        facts=facts,
        starts=starts,
        ids=rng.integers(5, vocabulary, starts[-1]).astype(np.int32),
        segments=np.zeros(starts[-1], dtype=np.uint8),
        targets=rng.integers(0, 2, num),
    )


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


class MiddleHook:
    """A pruning hook that stays in the middle of its schedule: each step keeps fewer weights than before."""

    def __init__(self, pruner: WeightPruner) -> None:
        self.hook, self.middle = PruneHook(pruner), pruner.schedule.total_steps // 2
        self.begin, self.apply = self.hook.begin, self.hook.apply
        self.generators, self.metrics = self.hook.generators, self.hook.metrics

    def plan(self, step: int) -> None:
        self.hook.plan(self.middle + step)


def time_ours(
    model: nn.Module, *, features: Features, settings: TrainSpec, folder: Path, way: str = "ours"
) -> float:
    """Seconds of one epoch in our loop."""
    if way != "ours":
        model.freeze_embeddings_()
    plan = BatchPlan(features.lengths, settings.batch_size, seed=1, grouped=settings.group_lengths)
    objective: Any = LabelLoss(model)
    hooks: Any = ()
    masked: Any = ()
    fast: list[Any] = []
    if way == "pruning":
        schedule = CubicSchedule(total_steps=100 * len(plan), warmup_steps=len(plan))
        pruner = prune_(model, Movement(density=0.1, rank="score"), schedule)
        # All equal at first, which is not how they stay.
        for scores in pruner.score_parameters():
            nn.init.normal_(scores, std=1e-3)
        objective, hooks = PrunedLoss(objective, pruner.penalty), (MiddleHook(pruner),)
        fast, masked = [(pruner.score_parameters(), 1e-2)], pruner.simple_masks()
    job = Job(
        model=model,
        batches=TaskBatches(features, plan),
        objective=objective,
        hooks=hooks,
        masked=masked,
        groups=rate_groups(model, settings, fast),
        evaluate=lambda m: {"none": 0.0},
        keep=lambda m: None,
        folder=folder,
        seed=1,
        identity="bench",
    )
    accelerator = make_accelerator(settings, folder)
    started = time.perf_counter()
    fit(job, settings, accelerator)
    _synchronise()
    return time.perf_counter() - started


def time_trainer(model: nn.Module, *, rows: Rows, settings: TrainSpec, folder: Path, tokenizer: Any) -> float:
    """Seconds of one epoch in transformers.Trainer with its defaults and the same arithmetic."""
    # An earlier Trainer leaves its arithmetic here for the next one.
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.lr,
        warmup_steps=settings.warmup,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=50,
        use_cpu=settings.device == "cpu",
        bf16=settings.precision == "bf16",
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    assert (trainer.accelerator.mixed_precision == "bf16") == (settings.precision == "bf16")
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
    parser.add_argument("--precision", choices=("fp32", "bf16", "both"), default="fp32")
    parser.add_argument("--threads", type=int, help="threads of torch; all cores without it")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    own_process_()
    keep_memory_()
    if options.threads:
        torch.set_num_threads(options.threads)

    tokenizer = load_tokenizer("box")
    features = make_rows(options.rows, len(tokenizer))
    rows = Rows(features)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64,
        intermediate_size=4 * options.width,
    )
    torch.manual_seed(0)
    start = BermoForSequenceClassification.from_backbone(config, mix=None, num_labels=2)
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    if options.precision != "both":
        precisions = (options.precision,)
    ways: dict[str, Callable[..., float]] = {}
    for precision in precisions:
        settings = TrainSpec(
            epochs=1,
            batch_size=options.batch_size,
            lr=1e-4,
            device=options.device,
            precision=precision,
            checkpoint_minutes=1e9,
        )
        behind = " bf16" if len(precisions) > 1 and precision == "bf16" else ""
        ways[f"Trainer{behind}"] = partial(time_trainer, rows=rows, settings=settings, tokenizer=tokenizer)
        for way in ("ours",) if behind else ("ours", "pruning", "frozen"):
            ways[f"{way}{behind}"] = partial(time_ours, features=features, settings=settings, way=way)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_index, (name, way) in itertools.product(range(options.rounds + 1), ways.items()):
        model = copy.deepcopy(start)
        with tempfile.TemporaryDirectory() as folder:
            taken = way(model, folder=Path(folder))
        # The first round warms caches and threads up.
        if round_index:
            seconds[name].append(taken)
    plan = BatchPlan(features.lengths, settings.batch_size, seed=1, grouped=settings.group_lengths)
    _report(seconds, len(plan), plan.padding_share(), options)


def _report(
    seconds: dict[str, list[float]], num_steps: int, padding: float, options: argparse.Namespace
) -> None:
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    table = Table(box=None)
    for title in ("", "examples a second", "ms a step"):
        table.add_column(title, justify="right")
    for name, taken in medians.items():
        table.add_row(name, f"{options.rows / taken:.1f}", f"{1000 * taken / num_steps:.1f}")

    # Each round's own ratio: what slows the machine for a while slows both of a pair.
    def ratio(way: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[way], seconds[other], strict=True))

    loop, step, even = (
        ratio("Trainer", "ours"),
        ratio("pruning", "ours"),
        ratio("pruning", "frozen"),
    )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"ours against Trainer, examples a second: {loop:.2f} × (target: at least 1.3)")
    console.print(f"a fine-pruning step against a plain one: {step:.2f} × (target: at most 1.5)")
    console.print(f"and against a plain one whose embeddings are frozen, too: {even:.2f} ×")
    is_gpu = options.device == "auto" and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if is_gpu else processor().name
    facts = {
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "precision": options.precision,
        "shape": {k: getattr(options, k) for k in ("rows", "rounds", "batch_size", "layers", "width")},
        "seconds": seconds,
        "examples_per_second": {k: options.rows / v for k, v in medians.items()},
        "padding_share": padding,
        "loop_ratio": loop,
        "pruning_step_ratio": step,
        "pruning_step_ratio_both_frozen": even,
    }
    if "ours bf16" in seconds:
        facts["loop_ratio_bf16"] = ratio("Trainer bf16", "ours bf16")
        facts["bf16_ratio"] = ratio("ours", "ours bf16")
        console.print(f"in bf16, ours against Trainer: {facts['loop_ratio_bf16']:.2f} ×")
        console.print(f"ours in bf16 against ours in fp32: {facts['bf16_ratio']:.2f} × (target: 2.5, AMX)")
    kind = "gpu" if is_gpu else "cpu" if processor().is_arm else "x86"
    behind = "-bf16" if options.precision == "bf16" else ""
    write_json(options.out / f"loop-{kind}{behind}.json", facts)


if __name__ == "__main__":
    main()
