"""How long a step of training takes on this machine's graphics card, beside Hugging Face's and beside the floor.

    python benchmarks/step.py --out results/step-cuda.json            BERT-base shape, batch 32, lengths 32 and 128, bf16, AdamW
    python benchmarks/step.py --width 384 --lengths 16 32             gte-small's shape

Rows: Hugging Face plain; the reference pruning algorithm (sorting for top-k masks) on Hugging Face's model; ours plain; with the mix; with
the mix and each pruning method. "auto" replays whole steps as CUDA graphs, "off" is the plain step. Weights are
random, so only the time means something; the parity check at the end compares losses and masks of the fast and the plain step.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from bermo.encoder import BermoConfig
from bermo.job import Job
from bermo.methods.assemble import ModelLoss
from bermo.methods.prune import PrunedLoss, PruneHook
from bermo.model import BermoForSequenceClassification
from bermo.nn.masks import top_masks_at
from bermo.nn.shadow import Shadow
from bermo.prune import L0, Magnitude, Method, Movement, SoftMovement, prune_
from bermo.schedule import CubicSchedule, parameter_groups, seed_step
from bermo.spec import TrainSpec
from bermo.step import GraphedStep, Step, linear_parameters, make_optimizer

MATRIX_RATE, MEMORY_RATE = 790e12, 4.3e12  # measured on one H200: bf16 products, copies
METHODS: dict[str, Method | None] = {
    "magnitude": Magnitude(density=0.1),
    "movement": Movement(density=0.1),
    "soft movement": SoftMovement(penalty=150.0),
    "l0": L0(penalty=50.0),
}
MIDDLE = 5000  # a step in the middle of the pruning schedule


def config_of(options: argparse.Namespace, dropout: float = 0.1) -> transformers.BertConfig:
    width = options.width
    return transformers.BertConfig(
        hidden_size=width, num_hidden_layers=12, num_attention_heads=12, intermediate_size=4 * width,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip


def make_batch(rows: int, length: int, seed: int) -> dict[str, Tensor]:
    """Random words, an eighth of them padding in every second row."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[::2, length - length // 8 :] = 0
    return {
        "input_ids": torch.randint(5, 30000, (rows, length), generator=generator),
        "attention_mask": mask,
        "labels": torch.randint(0, 2, (rows,), generator=generator),
    }


class Ours:
    """One of our steps, ready to be called with a number."""

    def __init__(
        self, options: argparse.Namespace, mix: str, method: Method | None, fast: str,
        precision: str = "bf16", dropout: float = 0.1,
    ) -> None:  # fmt: skip
        AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = Accelerator(mixed_precision="no" if precision == "fp32" else precision)
        torch.manual_seed(0)
        settings = {"kind": mix} if mix == "none" else {"kind": mix, "dropout": dropout}
        config = BermoConfig(config_of(options, dropout), mix=settings, num_labels=2, head_dropout=dropout)  # fmt: skip
        model = BermoForSequenceClassification(config)
        fast_groups: list[Any] = [(model.mix.parameters(), 1e-2)]
        objective: Any = ModelLoss()
        hooks, masked = (), ()
        self.pruner = None
        if method is not None:
            model.freeze_embeddings_()
            schedule = CubicSchedule(total_steps=10000, warmup_steps=100)
            self.pruner = prune_(model, method, schedule)
            objective, hooks = PrunedLoss(objective, self.pruner), (PruneHook(self.pruner),)
            fast_groups.append((self.pruner.score_parameters(), 1e-2))
            masked = self.pruner.simple_masks()
        groups = parameter_groups(model, TrainSpec(), fast_groups)
        job = Job(
            model=model, batches=None, objective=objective, groups=groups, hooks=hooks, masked=masked,
            evaluate=lambda _: {}, keep=lambda _: None, folder=Path(), seed=0, identity="",
        )  # fmt: skip
        optimizer = make_optimizer(job, accelerator.device)
        self.model, optimizer = accelerator.prepare(model, optimizer)
        shadow = None
        if fast != "off":
            half = precision == "bf16"
            plain = linear_parameters(model) if half else {}
            shadow = Shadow(masked, plain, torch.bfloat16 if half else torch.float32)
        self.plain = Step(job, self.model, optimizer, 1.0, accelerator, shadow)
        self.step = self.plain if fast == "off" else GraphedStep(self.plain, options.batch, print)
        self.hooks = hooks
        self.model.train()

    def __call__(self, number: int, batch: dict[str, Tensor]) -> None:
        def prepare() -> None:
            for hook in self.hooks:
                hook.plan(number)
            seed_step(0, number, 0)

        self.step([(batch, 1.0, True)], prepare)

    def loss(self) -> float:
        """The mean loss since the last call is asked for one step at a time here."""
        value = self.plain.loss_sum.item()
        self.plain.loss_sum.zero_()
        return value


class TopK(torch.autograd.Function):
    """The reference's mask: sort the scores of a matrix, keep the first share of them; straight through."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, share: float) -> Tensor:
        mask = scores.clone()
        _, order = scores.flatten().sort(descending=True)
        kept = int(share * scores.numel())
        flat = mask.flatten()
        flat[order[kept:]] = 0
        flat[order[:kept]] = 1
        return mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class MaskedLinear(nn.Module):
    """A linear layer as the reference has it: its mask is found anew in every forward pass."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.scores = nn.Parameter(torch.zeros_like(linear.weight))

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self.weight * TopK.apply(self.scores, 0.2), self.bias)


class HuggingFace:
    """A plain step on Hugging Face's model, eager; with `is_pruned`, the reference's masks on it."""

    def __init__(self, options: argparse.Namespace, is_pruned: bool) -> None:
        torch.manual_seed(0)
        self.model = transformers.BertForSequenceClassification(config_of(options)).cuda().train()
        if is_pruned:
            for layer in self.model.bert.encoder.layer:
                for name, module in list(layer.named_modules()):
                    if isinstance(module, nn.Linear):
                        parent = layer.get_submodule(name.rpartition(".")[0])
                        setattr(parent, name.rpartition(".")[2], MaskedLinear(module))
            self.model.bert.embeddings.requires_grad_(False)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=3e-5)

    def __call__(self, number: int, batch: dict[str, Tensor]) -> None:
        moved = {name: tensor.cuda(non_blocking=True) for name, tensor in batch.items()}
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.model(**moved).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(make: Callable[[], Any], options: argparse.Namespace, length: int) -> dict[str, float]:
    """Median milliseconds of a step, its first-use seconds and its peak memory."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    step = make()
    batches = [make_batch(options.batch, length, seed) for seed in range(4)]
    batches = [{k: v.pin_memory() for k, v in batch.items()} for batch in batches]
    for number in range(5):
        step(MIDDLE + number, batches[number % 4])
    torch.cuda.synchronize()
    ready = time.perf_counter() - started
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(options.steps + 1)]
    began = time.perf_counter()
    marks[0].record()
    for number in range(options.steps):
        step(MIDDLE + number, batches[number % 4])
        marks[number + 1].record()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) / options.steps
    times = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return {
        "median_ms": round(statistics.median(times), 3),
        "wall_ms": round(1000 * wall, 3),
        "ready_s": round(ready, 1),
        "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20),
    }


def floor(options: argparse.Namespace, length: int, is_pruned: bool) -> dict[str, float]:
    """The fewest operations and bytes: products three times; each weight, moment and gradient once; scores likewise."""
    width, tokens = options.width, options.batch * length
    weights = 12 * 12 * width * width
    embeddings = 0 if is_pruned else 31000 * width
    operations = 6 * weights * tokens + 12 * 3 * 4 * tokens * length * width
    # An update reads weight, gradient and two moments and writes all but the gradient; the products read bf16 copies.
    bytes_moved = 28 * (weights * (2 if is_pruned else 1) + embeddings) + 3 * 2 * weights
    seconds = operations / MATRIX_RATE + bytes_moved / MEMORY_RATE
    return {
        "tflop": operations / 1e12, "gigabytes": bytes_moved / 1e9, "floor_ms": round(1000 * seconds, 3)
    }  # fmt: skip


def thresholds(options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds to choose the masks of all matrices: ours, sorting, torch.topk."""
    from bermo.nn.select import Chooser

    width = options.width
    shapes = ([(width, width)] * 4 + [(4 * width, width), (width, 4 * width)]) * 12
    scores = [torch.randn(shape, device="cuda") for shape in shapes]
    masks = [torch.ones(shape, dtype=torch.bool, device="cuda") for shape in shapes]
    kept = torch.tensor([score.numel() // 10 for score in scores], device="cuda")
    chooser = Chooser(masks, scores=scores)
    chooser.choose_(kept)
    slow = top_masks_at(scores, kept, is_global=False)
    assert all(torch.equal(a, b) for a, b in zip(masks, slow, strict=True))
    counts = kept.tolist()
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: chooser.choose_(kept),
        "sort": lambda: [score.flatten().sort(descending=True) for score in scores],
        "topk": lambda: [s.flatten().topk(k) for s, k in zip(scores, counts, strict=True)],
        "one_pass": lambda: [score.sum() for score in scores],
    }
    found = {"scores": float(sum(score.numel() for score in scores))}
    for name, way in ways.items():
        found[f"{name}_ms"] = _graph_ms(way)
    return found


def _graph_ms(way: Callable[[], object], repeats: int = 20) -> float:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        way()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        way()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return round(statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks)), 4)


def parity(options: argparse.Namespace, precision: str, steps: int) -> dict[str, float]:
    """Losses and masks of the fast and the plain step over a run through the pruning schedule, dropout off."""
    small = argparse.Namespace(**vars(options) | {"width": 384})
    batches = [make_batch(options.batch, (24, 32)[seed % 2], seed) for seed in range(8)]
    batches = [{k: v.pin_memory() for k, v in batch.items()} for batch in batches]
    plan = [100 + 9800 * number // steps for number in range(steps)]
    losses: list[list[float]] = []
    masks: list[list[list[Tensor]]] = []
    for way in ("off", "auto"):
        step = Ours(small, "across", METHODS["movement"], way, precision, dropout=0.0)
        losses.append([])
        masks.append([])
        for number in range(steps):
            step(plan[number], batches[number % 8])
            losses[-1].append(step.loss())
            if number % 20 == 19:
                assert step.pruner is not None
                masks[-1].append([mask.mask.clone() for mask in step.pruner.masks])
        del step
        torch.cuda.empty_cache()
    gaps = [abs(a - b) / abs(a) for a, b in zip(*losses, strict=True)]
    pairs = [(x, y) for a, b in zip(*masks, strict=True) for x, y in zip(a, b, strict=True)]
    total = sum(x.numel() for x, _ in pairs)
    same = sum(int((x == y).sum()) for x, y in pairs) / total
    return {
        "largest_relative_gap": max(gaps), "equal_mask_share": same, "first_loss": losses[0][0],
        "last_loss": losses[0][-1], "steps": steps,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only", nargs="+", help="rows whose names hold one of these words")
    parser.add_argument(
        "--parity", type=int, default=200, help="steps of the parity check; 0 = none"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: dict[str, tuple[Callable[[], Any], bool]] = {
        "Hugging Face, eager": (lambda: HuggingFace(options, False), False),
        "reference pruning, eager": (lambda: HuggingFace(options, True), True),
    }
    for fast in ("off", "auto"):
        rows[f"plain, {fast}"] = (lambda fast=fast: Ours(options, "none", None, fast), False)
        rows[f"mix, {fast}"] = (lambda fast=fast: Ours(options, "across", None, fast), False)
        for name, method in METHODS.items():
            if fast == "auto" or name == "movement":
                rows[f"mix + {name}, {fast}"] = (
                    lambda fast=fast, method=method: Ours(options, "across", method, fast), True,
                )  # fmt: skip
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "transformers": transformers.__version__, "width": options.width, "batch": options.batch,
        "precision": "bf16", "steps": options.steps, "rows": [],
    }  # fmt: skip
    print(
        f"{'':34}{'length':>7}{'ms':>9}{'wall ms':>9}{'TFLOP/s':>9}{'x floor':>9}{'ready s':>9}{'MiB':>8}"
    )
    for length in options.lengths:
        for name, (make, is_pruned) in rows.items():
            if options.only and not any(word in name for word in options.only):
                continue
            try:
                found = measure(make, options, length)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                print(f"{name:34}{length:7}  failed: {str(error)[:400]}", flush=True)
                continue
            least = floor(options, length, is_pruned)
            rate = least["tflop"] / found["median_ms"] * 1000
            row = {"name": name, "length": length} | found | least | {"tflop_s": round(rate, 1)}
            report["rows"].append(row)
            print(
                f"{name:34}{length:7}{found['median_ms']:9.2f}{found['wall_ms']:9.2f}{rate:9.0f}"
                f"{found['median_ms'] / least['floor_ms']:9.2f}{found['ready_s']:9.1f}{found['peak_mib']:8.0f}",
                flush=True,
            )
    report["thresholds"] = thresholds(options)
    print("choosing all masks:", report["thresholds"], flush=True)
    if options.parity:
        report["parity"] = {}
        for precision in ("fp32", "bf16"):
            report["parity"][precision] = parity(options, precision, options.parity)
            print(f"parity {precision}:", report["parity"][precision], flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
