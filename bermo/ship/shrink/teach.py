"""A whole model learns the answers of a larger one, without labels: teach_(small, big, batches).

    loss = mean (student − teacher)² / mean teacher²;    the rate falls to zero over the batches

With a folder, the training goes on where it was stopped, to the same bits on the CPU: checkpoints
(training/checkpoint.py) keep weights, optimiser, rate, losses and the state of the random numbers. They
belong to one student, teacher, rate and list of batches, which are told apart by a sum over all their
numbers.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LinearLR

from bermo.errors import BermoError
from bermo.files import check_place
from bermo.training import checkpoint

Batch = Mapping[str, Tensor]
Pair = tuple[Batch, Batch]
Answer = Callable[[nn.Module, Batch], Tensor]


def teach_(
    student: nn.Module,
    teacher: nn.Module,
    batches: Iterable[Batch | Pair],
    *,
    lr: float = 1e-4,
    answer: Answer | None = None,
    folder: str | Path | None = None,
    checkpoint_minutes: float = 5.0,
) -> list[float]:
    """Train a model, in place, to answer as another does, and return the loss of each step.

    A batch is a dict of the model's inputs; where the two read other token ids, a pair: the student's and the
    teacher's. `answer(model, batch)` gives the tensor that is compared, by default the logits or, where there
    are none, the first output. The loss is the mean squared difference, over the teacher's mean square. The
    rate falls to zero over the batches. No label is used. With a `folder`, checkpoints are written there, one
    every `checkpoint_minutes` and one at the end, and the same call goes on from the last.

        >>> small = bermo.cut_encoder(bermo.box(), layers=(1, 2))
        >>> batches = [{"input_ids": torch.ones(2, 3).long()}]
        >>> len(bermo.teach_(small, bermo.box(), batches))
        1
    """
    read = answer or first_output
    listed = list(batches)
    if not listed:
        raise BermoError("There are no batches to learn from. Give at least one.")
    if not checkpoint_minutes >= 0:
        raise BermoError(f"checkpoint_minutes must be at least 0, but got {checkpoint_minutes}.")
    optimiser = AdamW([p for p in student.parameters() if p.requires_grad], lr=lr)
    fall = LinearLR(optimiser, 1.0, 0.0, total_iters=len(listed))
    state = None if folder is None else _State.find(Path(folder), student, teacher, listed, lr)
    losses = [] if state is None else state.load_(student, optimiser, fall)
    student.train()
    teacher.eval()
    for batch in listed[len(losses) :]:
        losses.append(_step_(student, teacher, batch, read, optimiser))
        fall.step()
        is_last = len(losses) == len(listed)
        if state is not None and (is_last or state.age_minutes >= checkpoint_minutes):
            state.save(student, optimiser, fall, losses)
    student.eval()
    return losses


def first_output(model: nn.Module, batch: Batch) -> Tensor:
    """Return the logits of a model, or its first output where it has none of that name."""
    out: Any = model(**batch)
    if isinstance(out, Tensor):
        return out
    logits = getattr(out, "logits", None)
    return cast(Tensor, out[0] if logits is None else logits)


def _step_(
    student: nn.Module, teacher: nn.Module, batch: Batch | Pair, read: Answer, optimiser: AdamW
) -> float:
    """Take one step, and return its loss."""
    own, theirs = batch if isinstance(batch, tuple) else (batch, batch)
    with torch.no_grad():
        wanted = read(teacher, theirs).float()
    loss = ((read(student, own).float() - wanted) ** 2).mean() / (wanted**2).mean().clamp_min(1e-12)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


@dataclass(kw_only=True)
class _State:
    """The checkpoints of one training in a folder, and the last of them that is whole."""

    folder: Path
    identity: str
    last: checkpoint.Checkpoint | None
    saved_at: float = field(default_factory=time.monotonic)

    @classmethod
    def find(
        cls, folder: Path, student: nn.Module, teacher: nn.Module, batches: Sequence[Batch | Pair], lr: float
    ) -> "_State":
        """Look for checkpoints; those of another training are not overwritten."""
        check_place(folder)
        identity, skipped = _identity(student, teacher, batches, lr), list[str]()
        last = checkpoint.find_last(folder, identity, skipped.append)
        if any("belongs to another run" in sentence for sentence in skipped):
            raise BermoError(
                f"{folder} has checkpoints of another training: student, teacher, batches or lr differ. Give"
                " them as they were before the first step, or another folder."
            )
        checkpoint.set_aside(folder, last)
        return cls(folder=folder, identity=identity, last=last)

    @property
    def age_minutes(self) -> float:
        return (time.monotonic() - self.saved_at) / 60

    def load_(self, student: nn.Module, optimiser: AdamW, fall: LinearLR) -> list[float]:
        """Put everything back as it was after the last step that was saved, and return the losses so far."""
        if self.last is None:
            return []
        checkpoint.load_(self.last, student, optimiser)
        state = self.last.state
        fall.load_state_dict(state["rate"])
        for group, rate in zip(optimiser.param_groups, fall.get_last_lr(), strict=True):
            group["lr"] = rate
        torch.set_rng_state(_from_hex(state["random"]))
        if state["random_cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(_from_hex(state["random_cuda"]))
        return list(state["losses"])

    def save(self, student: nn.Module, optimiser: AdamW, fall: LinearLR, losses: list[float]) -> None:
        """Write a checkpoint, whole or not at all."""
        is_cuda = next(student.parameters()).is_cuda
        state = {
            "step": len(losses),
            "losses": losses,
            "rate": fall.state_dict(),
            "random": _to_hex(torch.get_rng_state()),
            "random_cuda": _to_hex(torch.cuda.get_rng_state()) if is_cuda else None,
        }
        checkpoint.save(self.folder, student, optimiser, identity=self.identity, state=state)
        self.saved_at = time.monotonic()


def _identity(student: nn.Module, teacher: nn.Module, batches: Sequence[Batch | Pair], lr: float) -> str:
    """Return a sum over all weights at the beginning, all batches and the rate."""
    found = hashlib.sha256(repr(lr).encode())
    for model in (student, teacher):
        _add_(found, dict(model.named_parameters()) | dict(model.named_buffers()))
    for batch in batches:
        for part in batch if isinstance(batch, tuple) else (batch,):
            _add_(found, part)
    return found.hexdigest()


def _add_(found: Any, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def _to_hex(state: Tensor) -> str:
    return bytes(state.numpy()).hex()


def _from_hex(text: str) -> Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
