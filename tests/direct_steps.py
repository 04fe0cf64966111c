"""Steps on the CPU whose updates are those of a GPU, in Triton's interpreter, with copies in float32."""

from dataclasses import replace
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers.utils import ModelOutput

from bermo.methods.assemble import LabelLoss
from bermo.methods.prune import PrunedLoss, PruneHook
from bermo.nn.fast.shadow import Shadow
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.training.fuse import NOTHING, Fused, Fusion
from bermo.training.job import Job, ModelCall
from bermo.training.stack import stack
from bermo.training.step import Step, WeightedBatch, linear_parameters
from tests.small_models import small_batch, without_dropout

MATRICES = replace(NOTHING, adam=True)
"""The update alone: the forward and backward passes stay torch's, as the interpreter is slow."""
TABLES = replace(MATRICES, embeddings=True)
"""The update of tables by their rows; matrices are left to torch."""


class Each:
    """A loss for each of two stacked models, from half of the rows each."""

    call = ModelCall(only_for_loss=frozenset({"labels"}))

    def count(self, batch: dict[str, Tensor]) -> int:
        return 2

    def __call__(self, outputs: ModelOutput, batch: dict[str, Tensor]) -> Tensor:
        logits, labels = outputs.logits.chunk(2), batch["labels"].chunk(2)
        pairs = zip(logits, labels, strict=True)
        return torch.stack([nn.functional.cross_entropy(a, b) for a, b in pairs])


def make_step(
    is_pruned: bool = False,
    num_models: int = 1,
    is_direct: bool = True,
    family: str = "bert",
    fused: Fused = MATRICES,
) -> Step:
    """A step as on a GPU. Stacked models have frozen embeddings, unless tables are fused; models of these
    have one layer and no copies.
    """
    torch.manual_seed(0)
    layers = 1 if fused.embeddings else 2
    model: nn.Module = without_dropout(family, layers)
    hooks, masked, objective = (), (), LabelLoss(model)
    if num_models > 1:
        models = [model, without_dropout("bert", layers)]
        for one in () if fused.embeddings else models:
            one.freeze_embeddings_()
        models[1].head.load_state_dict({k: v + 0.1 for k, v in model.head.state_dict().items()})
        model, objective = stack(models).train(), Each()
    if is_pruned:
        pruner = prune_(
            model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=9, warmup_steps=1)
        )
        pruner.at(5)
        hooks, masked = (PruneHook(pruner),), pruner.simple_masks()
        objective = PrunedLoss(objective, pruner.penalty)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "lr": torch.tensor(1e-2), "weight_decay": 0.1},
        {"params": [p for p in trained if p.dim() <= 1], "lr": torch.tensor(3e-2)},
    ]
    job = Job(
        model=model,
        batches=None,
        objective=objective,
        groups=groups,
        masked=masked,
        hooks=hooks,
        evaluate=lambda _: {},
        keep=lambda _: None,
        folder=Path(),
        seed=0,
        identity="",
        members=(None,) * num_models if num_models > 1 else (),
    )
    accelerator = Accelerator(cpu=True)
    optimizer = accelerator.prepare(
        torch.optim.AdamW(groups, lr=torch.tensor(1e-3), weight_decay=0.0, fused=True)
    )
    plain = {} if fused.embeddings else linear_parameters(model)
    shadow = Shadow(masked, plain, torch.float32, num_models)
    step = Step(job, model, optimizer, 0.1, accelerator, shadow)
    if is_direct:
        step.fusion, step.is_fused = Fusion(model, shadow, fused), fused.embeddings
    step.start_()
    return step


def train(step: Step, num_steps: int = 2) -> None:
    batch = small_batch(step.model)
    if step.num_models > 1:
        batch = {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}
    for _ in range(num_steps):
        step.run([WeightedBatch(batch, 1.0, True)], is_update=True)


def assert_alike(mine: Step, other: Step) -> None:
    """Weights, moments and step numbers are the same but for rounding."""
    states = [step.optimizer.optimizer.state for step in (mine, other)]
    for name, a, b in zip(mine.names, mine.parameters, other.parameters, strict=True):
        # Adam makes a whole step of a gradient that is 0 but for rounding, as that of a key's bias.
        assert (a - b).abs().mean() < (1e-2 if name.endswith(("key.bias", "c_attn.bias")) else 1e-5), name
        for key, value in states[1][b].items():
            torch.testing.assert_close(states[0][a][key], value, rtol=1e-2, atol=1e-5, msg=name)
