"""The steps that benchmarks/step.py times: ours, Hugging Face's, and the reference pruning algorithm.

`options.scores` says where the masks' scores start: "spread", normal numbers as the weights are, or "equal",
as a training starts. Before a step in the middle of the schedule thousands of others have parted them.
"""

import argparse
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from transformers import PretrainedConfig

from bermo.methods.assemble import LabelLoss
from bermo.methods.prune import PrunedLoss, PruneHook
from bermo.models.config import BermoConfig
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.fast.shadow import Shadow
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, SoftMovement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.spec import TrainSpec
from bermo.training.bottleneck import in_order_of_products
from bermo.training.fuse import NOTHING, Fused
from bermo.training.graphs import GraphedStep
from bermo.training.job import Job
from bermo.training.optimiser import make_optimizer
from bermo.training.schedule import rate_groups, seed_step
from bermo.training.step import Step, WeightedBatch, linear_parameters

# A step in the middle of the pruning schedule.
MIDDLE = 5000
METHODS: dict[str, Method | None] = {
    "magnitude": Magnitude(density=0.1),
    "movement": Movement(density=0.1, rank="score"),
    "soft movement": SoftMovement(penalty=150.0),
    "l0": L0(penalty=50.0),
}


def config_of(options: argparse.Namespace, dropout: float = 0.1) -> transformers.BertConfig:
    width = options.width
    return transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


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
        self,
        options: argparse.Namespace,
        mix: str,
        method: Method | None,
        fast: str,
        precision: str = "bf16",
        dropout: float = 0.1,
        encoder: PretrainedConfig | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = Accelerator(mixed_precision="no" if precision == "fp32" else precision)
        torch.manual_seed(0)
        settings = {"kind": mix} if mix == "none" else {"kind": mix, "dropout": dropout}
        encoder = config_of(options, dropout) if encoder is None else encoder
        config = BermoConfig(encoder, mix=settings, num_labels=2, head_dropout=dropout)
        # Random weights are drawn where they will lie: on the CPU this takes longer than the steps.
        with accelerator.device:
            model = BermoForSequenceClassification(config).to(accelerator.device)
        fast_groups: list[Any] = [(model.mix.parameters(), 1e-2)]
        objective: Any = LabelLoss(model)
        hooks, masked = (), ()
        self.pruner = None
        if method is not None:
            model.freeze_embeddings_()
            schedule = CubicSchedule(total_steps=10000, warmup_steps=100)
            self.pruner = prune_(model, method, schedule)
            if options.scores == "spread":
                spread_(self.pruner.score_parameters())
            objective, hooks = PrunedLoss(objective, self.pruner.penalty), (PruneHook(self.pruner),)
            fast_groups.append((self.pruner.score_parameters(), 1e-2))
            masked = self.pruner.simple_masks()
        groups = rate_groups(model, TrainSpec(lr=3e-5), fast_groups)
        job = Job(
            model=model,
            batches=None,
            objective=objective,
            groups=groups,
            hooks=hooks,
            masked=masked,
            evaluate=lambda _: {},
            keep=lambda _: None,
            folder=Path(),
            seed=0,
            identity="",
        )
        optimizer = make_optimizer(job, accelerator.device)
        self.model, optimizer = accelerator.prepare(model, optimizer)
        shadow = None
        if fast != "off":
            half = precision == "bf16"
            plain = linear_parameters(model) if half else {}
            masked = in_order_of_products(model, masked, itemgetter(1))
            shadow = Shadow(masked, plain, torch.bfloat16 if half else torch.float32)
        fused = Fused(**dict.fromkeys(options.without, False)) if fast == "auto" else NOTHING
        self.plain = Step(job, self.model, optimizer, 1.0, accelerator, shadow, fused)
        self.step = self.plain if fast == "off" else GraphedStep(self.plain, options.batch, tell)
        self.hooks = hooks
        self.model.train()

    def __call__(self, number: int, batch: dict[str, Tensor]) -> None:
        def prepare() -> None:
            for hook in self.hooks:
                hook.plan(number)
            seed_step(0, number, 0)

        self.step([WeightedBatch(batch, 1.0, True)], prepare)

    def loss(self) -> float:
        """Return the mean loss since the last call; this loop asks after every step."""
        value = self.plain.loss_sum.item()
        self.plain.loss_sum.zero_()
        return value


@torch.no_grad()
def spread_(scores: Sequence[nn.Parameter]) -> None:
    """Add normal numbers to scores that all start alike."""
    for one in scores:
        one.add_(torch.randn_like(one))


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
    """A linear layer as the reference has it: its mask is computed anew in every forward pass."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.scores = nn.Parameter(torch.zeros_like(linear.weight))

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self.weight * TopK.apply(self.scores, 0.2), self.bias)


class HuggingFace:
    """A plain step on Hugging Face's model, with torch's AdamW or the fused one, which Trainer takes."""

    def __init__(self, model: nn.Module, device: torch.device, is_fused: bool = False) -> None:
        self.model, self.device = model, device
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=3e-5, fused=is_fused)

    def __call__(self, number: int, batch: dict[str, Tensor]) -> None:
        moved = {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = self.model(**moved).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def hugging_face_bert(options: argparse.Namespace, is_pruned: bool) -> HuggingFace:
    """Return the step of Hugging Face's BERT; with `is_pruned`, with the reference's masks on it."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config_of(options)).cuda().train()
    if is_pruned:
        for layer in model.bert.encoder.layer:
            for name, module in list(layer.named_modules()):
                if isinstance(module, nn.Linear):
                    parent = layer.get_submodule(name.rpartition(".")[0])
                    masked = MaskedLinear(module)
                    if options.scores == "spread":
                        spread_([masked.scores])
                    setattr(parent, name.rpartition(".")[2], masked)
        model.bert.embeddings.requires_grad_(False)
    return HuggingFace(model, torch.device("cuda"))
