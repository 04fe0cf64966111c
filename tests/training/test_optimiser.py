"""Updates from the copies' gradients, in Triton's interpreter on the CPU, end where torch's AdamW ends."""

from pathlib import Path

import pytest
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
from bermo.training.fuse import Fused, Fusion
from bermo.training.job import Job, ModelCall
from bermo.training.stack import stack
from bermo.training.step import Step, WeightedBatch, linear_parameters
from tests.small_models import small_batch, without_dropout

adam = pytest.importorskip("bermo.nn.fast.adam", reason="needs Triton")


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter walks through a whole chunk even where a tensor is small."""
    monkeypatch.setattr(adam, "CHUNK", adam.SPAN)


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
    is_pruned: bool = False, num_models: int = 1, is_direct: bool = True, family: str = "bert"
) -> Step:
    """A step as on a GPU, but with copies in float32."""
    torch.manual_seed(0)
    model: nn.Module = without_dropout(family)
    hooks, masked, objective = (), (), LabelLoss(model)
    if num_models > 1:
        models = [model, without_dropout("bert")]
        for one in models:
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
    shadow = Shadow(masked, linear_parameters(model), torch.float32, num_models)
    step = Step(job, model, optimizer, 0.1, accelerator, shadow)
    if is_direct:
        # The update alone: the forward and backward passes stay torch's, as the interpreter is slow.
        step.fusion = Fusion(model, shadow, Fused())
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


def test_matrices_with_an_axis_of_heads_are_updated_from_their_copies_too() -> None:
    direct, plain = (make_step(is_direct=is_direct, family="xlnet") for is_direct in (True, False))
    # Each of two layers has five of three axes.
    assert sum(weight.dim() == 3 for weight in direct.direct[0].adam.parameters) == 10
    for step in (direct, plain):
        train(step, 1)
    assert_alike(direct, plain)


@pytest.mark.parametrize(
    ("family", "is_pruned", "num_models"),
    [("bert", False, 1), ("bert", True, 1), ("bert", False, 2), ("gpt2", False, 1)],
)
def test_a_direct_step_ends_where_the_plain_one_ends(family: str, is_pruned: bool, num_models: int) -> None:
    direct, plain = (make_step(is_pruned, num_models, is_direct, family) for is_direct in (True, False))
    assert not plain.direct
    (one,) = direct.direct
    assert all(w.dim() == (2 if num_models == 1 else 3) for w in one.adam.parameters)
    # The head's two, and six of each of two layers, or GPT-2's four transposed ones.
    assert len(one.copies) == 2 + (0 if is_pruned else {"bert": 12, "gpt2": 8}[family])
    for step in (direct, plain):
        train(step)
    assert_alike(direct, plain)
    torch.testing.assert_close(direct.norms, plain.norms, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(direct.loss_sum, plain.loss_sum, rtol=1e-5, atol=1e-6)
    pairs = zip(one.adam.parameters, one.copies, strict=True)
    assert all(torch.equal(copy, weight) for weight, copy in pairs)


def test_a_run_goes_on_from_direct_to_plain_and_back() -> None:
    plain = make_step(is_direct=False)
    train(plain, 3)
    first, second = make_step(), make_step(is_direct=False)
    for step, before in ((first, None), (second, first), (make_step(), second)):
        if before is not None:
            step.model.load_state_dict(before.model.state_dict())
            step.optimizer.optimizer.load_state_dict(before.optimizer.optimizer.state_dict())
            step.start_()
        train(step, 1)
    assert_alike(step, plain)


def test_a_matrix_that_nothing_reads_is_left_alone_and_copies_stay_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = make_step()
    (one,) = step.direct
    idle = one.copies[3]
    weight = next(weight for weight, copy in step.shadow.pairs() if copy is idle)
    before = weight.detach().clone()
    backward = step._backward

    def without_idle(batches: object) -> Tensor:
        loss = backward(batches)
        idle.grad = None
        return loss

    monkeypatch.setattr(step, "_backward", without_idle)
    train(step, 1)
    assert torch.equal(weight, before)
    pairs = zip(one.adam.parameters, one.copies, strict=True)
    assert all(torch.equal(copy, weight) for weight, copy in pairs)
    monkeypatch.undo()
    train(step, 1)
    assert not torch.equal(weight, before)
    assert not step._grads()
