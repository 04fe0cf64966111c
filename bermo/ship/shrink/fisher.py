"""Pruning after training, with no training: heads and neurons are chosen by Fisher information (Kwon et al.
2022).

    loss(m) ≈ loss(1) + ½ (1 − m)ᵀ I (1 − m)      I = mean over examples of g gᵀ, g = dloss/dm at m = 1

1. search: I by its diagonal, the least lost under a budget of weights or of milliseconds (`choose_structure`)
2. rearrange: in each group as many units stay, but those that go are chosen with the whole block of I
3. refit: layer by layer, the matrices that read the units are fitted by least squares to what they gave
before

The paper's third step tunes one factor a unit; here the whole matrix is fitted, of which that is a special
case:
    W' = W + (XᵀX + λ)⁻¹ Xᵀ(Y − XW)               X = the small model's units, Y = the whole model's output
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bermo.encoders.sites import layers_of
from bermo.encoders.structure import Group, groups_of
from bermo.errors import BermoError
from bermo.models.encoder import BermoPreTrainedModel
from bermo.progress import Display, Quiet
from bermo.ship.shrink.delete import shrink
from bermo.ship.shrink.search import CostTable, KeptUnits, Values, choose_structure
from bermo.training.job import Batch

# λ as a share of the mean of the diagonal of XᵀX.
RIDGE = 0.01


def fisher_shrink(
    model: BermoPreTrainedModel,
    batches: Sequence[Batch],
    tune: Sequence[Batch],
    table: CostTable,
    budget: float,
    display: Display | None = None,
) -> tuple[BermoPreTrainedModel, KeptUnits]:
    """Return a smaller copy of a trained model that meets the budget, and which units stayed.

    `batches` hold labelled training examples for the Fisher information; `tune` those of the refit.
    """
    display = display or Quiet()
    if model.config.kept_tokens is not None:
        raise BermoError(
            "Units are refitted token by token, but this model leaves tokens out from layer to layer. Train"
            " with --keep-tokens and --prune heads-and-neurons together, or choose by --fisher before."
        )
    groups = groups_of(model)
    check_families(groups)
    gradients = gate_gradients(model, batches, display)
    importance = [_importance(gradient) for gradient in gradients]
    choice = choose_structure(importance, [group.kind for group in groups], table, budget)
    kept = tuple(rearrange(gradient, units) for gradient, units in zip(gradients, choice.kept, strict=True))
    choice = KeptUnits(kept=kept, cost=choice.cost, lost=choice.lost)
    small = _without(model, choice)
    units = {group.name: gradient for group, gradient in zip(groups, kept, strict=True)}
    refit_(small, model, units, tune, display)
    return small, choice


def gate_gradients(
    model: BermoPreTrainedModel, batches: Sequence[Batch], display: Display | None = None
) -> list[Tensor]:
    """Return dloss/dm of every example for every unit of every group, (examples, units), all gates open."""
    display = display or Quiet()
    groups, was_training = groups_of(model), model.training
    needed = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.requires_grad_(False).eval()
    gradients: list[list[Tensor]] = [[] for _ in groups]
    display.start("Fisher information", len(batches), 0)
    try:
        for done, batch in enumerate(batches, start=1):
            with _gated(groups) as gates, torch.enable_grad():
                on_device = {name: value.to(model.device) for name, value in batch.items()}
                num_rows = len(batch["input_ids"])
                # The loss is a mean, and each row's own gradient is wanted.
                (model(**on_device).loss * num_rows).backward()
            for index, gate in enumerate(gates):
                rows = cast(Tensor, gate.values[0].grad)
                # The endings of a choice are rows of the encoder, and one example.
                gradients[index].append(rows.view(num_rows, -1, rows.shape[1]).sum(1).float().cpu())
            display.step(done, None)
    finally:
        display.close()
        for parameter in needed:
            parameter.requires_grad_(True)
        model.train(was_training)
    return [torch.cat(parts) for parts in gradients]


def rearrange(gradients: Tensor, kept: Sequence[int]) -> tuple[int, ...]:
    """Return as many units as `kept` with a smaller joint loss: kept and pruned units are swapped one by one.

    What is lost is ‖Σ_pruned g‖²: units whose gradients cancel can go together.
    """
    kernel = (gradients.double().T @ gradients.double()).numpy()
    pruned = np.ones(len(kernel), dtype=bool)
    pruned[list(kept)] = False
    if pruned.all() or not pruned.any():
        return tuple(kept)
    reach = kernel @ pruned
    for unit in np.flatnonzero(pruned):
        without = reach - kernel[:, unit]
        cost = 2 * without + kernel.diagonal()
        cost[pruned] = np.inf
        cost[unit] = 2 * without[unit] + kernel[unit, unit]
        best = int(cost.argmin())
        pruned[unit], pruned[best] = False, True
        reach = without + kernel[:, best]
    return tuple(int(index) for index in np.flatnonzero(~pruned))


@torch.no_grad()
def refit_(
    small: BermoPreTrainedModel,
    whole: BermoPreTrainedModel,
    kept: Mapping[str, Sequence[int]],
    batches: Sequence[Batch],
    display: Display | None = None,
) -> None:
    """Fit the reading matrices of a small model to the outputs of the whole one, in place, first to last.

    `kept` are the units that the small model has of each group, by name. What enters a matrix is read from
    the small model, so that it makes up for the layers below; an encoder that repeats one layer (ALBERT)
    reads the whole one's.
    """
    display = display or Quiet()
    groups = groups_of(small)
    twins = {group.name: group for group in groups_of(whole)}
    outputs = _outputs_of(whole, [twins[group.name] for group in groups], batches)
    repeats = len(layers_of(small)) == 1
    display.start("refitting", len(groups), 0)
    try:
        for index, group in enumerate(groups):
            sums, twin = _Sums(), twins[group.name]
            units = torch.as_tensor(list(kept[group.name]))
            for batch, output in zip(batches, outputs[index], strict=True):
                if repeats:
                    inputs = _inputs_of(whole, twin, batch, is_last=False)
                    inputs = inputs.unflatten(-1, (twin.count, twin.size))[:, units].flatten(1)
                else:
                    inputs = _inputs_of(small, group, batch, is_last=True)
                sums.add(inputs, output.to(inputs))
            _solve_(group, sums)
            display.step(index + 1, None)
    finally:
        display.close()


@dataclass
class _Gate:
    """One factor a row and unit, put on what enters the reading matrix of a group."""

    group: Group
    values: list[Tensor] = field(default_factory=list)

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        inputs = args[0]
        # A layer that is called again (ALBERT's) has the same gates.
        if not self.values:
            shape = (len(inputs), self.group.count)
            self.values.append(inputs.new_ones(shape).requires_grad_(True))
        factors = self.values[0].repeat_interleave(self.group.size, dim=1)
        return (inputs * factors[:, None], *args[1:])


class _Sums:
    """Running sums of a least-squares problem, in double precision."""

    def __init__(self) -> None:
        self.count = 0
        self.x: Tensor | float = 0.0
        self.y: Tensor | float = 0.0
        self.xx: Tensor | float = 0.0
        self.xy: Tensor | float = 0.0

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        # One batch in single precision is exact enough; it is the sum over many that must not drift.
        self.count += len(inputs)
        self.x = self.x + inputs.sum(0).double()
        self.y = self.y + outputs.sum(0).double()
        self.xx = self.xx + (inputs.T @ inputs).double()
        self.xy = self.xy + (inputs.T @ outputs).double()


def _solve_(group: Group, sums: _Sums) -> None:
    """Write W' (and the bias that goes with it) into the reading matrix of a group."""
    module = group.output.module
    weight = cast(Tensor, module.weight)
    bias = cast(Tensor | None, getattr(module, "bias", None))
    old = (weight if group.output.is_transposed else weight.T).double()
    x, y = cast(Tensor, sums.x) / sums.count, cast(Tensor, sums.y) / sums.count
    xx, xy = cast(Tensor, sums.xx) / sums.count, cast(Tensor, sums.xy) / sums.count
    # It takes the means, and the matrix is fitted to what is left.
    if bias is not None:
        xx, xy = xx - torch.outer(x, x), xy - torch.outer(x, y)
    strength = RIDGE * xx.diagonal().mean().clamp(min=1e-12)
    lifted = xx + strength * torch.eye(len(xx), dtype=xx.dtype, device=xx.device)
    new = old + torch.linalg.solve(lifted, xy - xx @ old)
    weight.copy_(new if group.output.is_transposed else new.T)
    if bias is not None:
        bias.copy_(y - x @ new)


@contextmanager
def _gated(groups: Sequence[Group]) -> Iterator[list[_Gate]]:
    gates = [_Gate(group) for group in groups]
    handles = [gate.group.output.module.register_forward_pre_hook(gate) for gate in gates]
    try:
        yield gates
    finally:
        _remove(handles)


def _outputs_of(
    model: BermoPreTrainedModel, groups: Sequence[Group], batches: Sequence[Batch]
) -> list[list[Tensor]]:
    """Return the outputs of the reading matrices for the real tokens of each batch, in half precision."""
    outputs: list[list[Tensor]] = [[] for _ in groups]
    for batch in batches:
        seen: list[list[Tensor]] = [[] for _ in groups]
        handles = [
            group.output.module.register_forward_hook(_keep_output(seen[index]))
            for index, group in enumerate(groups)
        ]
        try:
            _run(model, batch)
        finally:
            _remove(handles)
        for index, parts in enumerate(seen):
            outputs[index].append(_real(parts, batch).half())
    return outputs


def _inputs_of(model: BermoPreTrainedModel, group: Group, batch: Batch, is_last: bool) -> Tensor:
    """Return the inputs of a reading matrix for real tokens; if `is_last`, nothing runs after it."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0].detach())
        if is_last:
            raise _Enough

    handle = group.output.module.register_forward_pre_hook(keep)
    try:
        _run(model, batch)
    except _Enough:
        pass
    finally:
        handle.remove()
    return _real(seen, batch)


class _Enough(Exception):
    """All that was wanted of a forward pass has been seen."""


def _keep_output(into: list[Tensor]) -> Any:
    return lambda module, args, output: into.append(output.detach())


def _remove(handles: Sequence[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


def _run(model: BermoPreTrainedModel, batch: Mapping[str, Tensor]) -> None:
    model.eval()
    with torch.no_grad():
        model(**{name: value.to(model.device) for name, value in batch.items()})


def _real(parts: Sequence[Tensor], batch: Batch) -> Tensor:
    """Put the real tokens of all calls under each other."""
    mask = batch["attention_mask"].flatten(0, -2).bool().to(parts[0].device)
    return torch.cat([part[mask] for part in parts])


def _importance(gradients: Tensor) -> Values:
    return cast(Values, gradients.double().square().mean(0).numpy())


def check_families(groups: Sequence[Group]) -> None:
    """Refuse a family whose gates cannot be read."""
    if any(group.output.parameter != "weight" for group in groups):
        raise BermoError(
            "The gates of XLNet's heads cannot be read one by one, so there is no Fisher search for it."
            " Prune it while it trains: --prune heads-and-neurons."
        )


@torch.no_grad()
def _without(model: BermoPreTrainedModel, choice: KeptUnits) -> BermoPreTrainedModel:
    """Return a copy of a model that has only the chosen units."""
    groups = groups_of(model)
    saved = [group.output.original.detach().clone() for group in groups]
    try:
        for group, units in zip(groups, choice.kept, strict=True):
            gone = torch.ones(group.count, dtype=torch.bool)
            gone[list(units)] = False
            group.zero_units_(gone)
        return shrink(model, read_share=0.0)
    finally:
        for group, weight in zip(groups, saved, strict=True):
            group.output.original.copy_(weight)
