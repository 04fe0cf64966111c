"""A head that starts as the best linear readout of the frozen encoder (LP-FT: Kumar et al. 2022).

    texts    out(tanh(dense(x)))   dense standardises x unit by unit, out is fitted to what it then reads
    tokens   out(x)                out is fitted

x is what the head reads at its start: mixed and pooled, in eval mode, of some of the training rows. Before
the first step the model's outputs are those of the fitted probe, and from there all layers learn. A dense
layer whose input has another width than its output (concatenated layers) stays random.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from bermo.data.features import Features
from bermo.methods.defaults import has_open_pooling
from bermo.methods.evaluate import eval_rows, predict
from bermo.methods.prepare import Prepared, build_model
from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.heads import IGNORED, PooledHead, TokenHead
from bermo.nn.linear_fit import LinearFit, fit_linear
from bermo.spec import MixSpec, Pooling, replace_in

PROBE_ROWS = 2000
POOLING_ROWS = 500
PROBE_TOKENS = 5000
"""Most training rows that the probe reads, most that choose the pooling, and most labelled tokens of tags."""
MEAN: Pooling = "mean"
SLOPE = 0.5
"""What a deviation of a unit becomes before tanh: small enough to lose little."""


def start_head_(
    model: BermoPreTrainedModel, features: Features, batch_size: int, accelerator: Accelerator
) -> None:
    """Fit the head of a new model to some of the training rows, in place."""
    head = cast(PooledHead | TokenHead, model.head)
    x_ND, targets_N = _head_inputs(model, features, PROBE_ROWS, batch_size, accelerator)
    fitted = _fit(head, x_ND, targets_N, features)
    if not torch.isfinite(fitted.weight_CD).all():
        return
    with torch.no_grad():
        head.out.weight.copy_(fitted.weight_CD)
        head.out.bias.copy_(fitted.bias_C)


def choose_pooling(prepared: Prepared, accelerator: Accelerator) -> Prepared:
    """Choose an open pooling, the family's or mean, by the probe's loss on held-out training rows.

    The probe reads the plain encoder, so that runs with and without a mix pool alike.
    """
    spec, facts = prepared.spec, prepared.facts
    if not has_open_pooling(spec, facts.kind):
        return prepared
    plain = replace_in(spec, model={"mix": MixSpec(kind="none")})
    with torch.random.fork_rng(devices=[]):
        # An encoder of random weights must not depend on what the process drew before.
        torch.manual_seed(0)
        model = build_model(replace(prepared, spec=plain))
    losses: dict[Pooling, float] = {}
    for pooling in dict.fromkeys((facts.family_pooling, MEAN)):
        model.config.pooling = pooling
        x_ND, targets_N = _head_inputs(model, prepared.train, POOLING_ROWS, eval_rows(spec), accelerator)
        losses[pooling] = _fit(cast(PooledHead, model.head), x_ND, targets_N, prepared.train).held_out_loss
    # Where rows are too few to hold some out, all losses are NaN and the family's stands first.
    best = min(losses, key=lambda pooling: losses[pooling])
    resolved = replace_in(spec, model={"pooling": best})
    return replace(prepared, spec=resolved, reasons=(*prepared.reasons, _why_pooling(best, losses)))


def _why_pooling(best: Pooling, losses: Mapping[Pooling, float]) -> str:
    if math.isnan(losses[best]) or len(losses) == 1:
        return f"pooling {best} (as the encoder's family has it)"
    others = ", ".join(f"{loss:.3g} with {name}" for name, loss in losses.items() if name != best)
    return f"pooling {best} (the probe's loss is {losses[best]:.3g}, {others})"


def _fit(head: PooledHead | TokenHead, x_ND: Tensor, targets_N: Tensor, features: Features) -> LinearFit:
    """Set the dense layer where there is one, and fit the readout of what comes out of it."""
    if isinstance(head, PooledHead):
        _standardise_(head.dense, x_ND)
        with torch.no_grad():
            x_ND = torch.tanh(head.dense(x_ND))
    num_classes = None if features.task.kind == "regression" else len(features.labels)
    return fit_linear(x_ND, targets_N, num_classes)


@torch.no_grad()
def _standardise_(dense: nn.Linear, x_ND: Tensor) -> None:
    """Let a square layer standardise its inputs, unit by unit."""
    if dense.in_features != dense.out_features:
        return
    deviation_D, mean_D = torch.std_mean(x_ND, dim=0, correction=0)
    factor_D = SLOPE / (deviation_D + torch.finfo(torch.float32).eps).clamp(min=1e-6)
    dense.weight.copy_(torch.diag(factor_D))
    dense.bias.copy_(-factor_D * mean_D)


def _head_inputs(
    model: BermoPreTrainedModel,
    features: Features,
    most_rows: int,
    batch_size: int,
    accelerator: Accelerator,
) -> tuple[Tensor, Tensor]:
    """Return what the head reads of some rows (texts, or labelled tokens), on the CPU, and their targets."""
    rows = _some_rows(features, most_rows)
    head, home = model.head, model.device
    model.head = nn.Identity()
    try:
        read = predict(model.to(accelerator.device), features, batch_size, accelerator, rows=rows)
    finally:
        model.head = head
        model.to(home)  # type: ignore[arg-type]
    targets = np.asarray(features.targets)
    if features.task.kind != "tagging":
        return torch.from_numpy(np.stack(read)), torch.from_numpy(targets[rows])
    flat = np.concatenate([targets[features.starts[row] : features.starts[row + 1]] for row in rows])
    labelled = np.flatnonzero(flat != IGNORED)[:PROBE_TOKENS]
    return torch.from_numpy(np.concatenate(read)[labelled]), torch.from_numpy(flat[labelled]).long()


def _some_rows(features: Features, most_rows: int) -> np.ndarray:
    """Draw the rows that are read, the same for every seed; of tags no more than have enough tokens."""
    drawn = np.random.default_rng(0).permutation(len(features))[:most_rows]
    if features.task.kind == "tagging":
        # About half of the tokens have a label of their own: the others are parts of words.
        drawn = drawn[: int(np.searchsorted(np.cumsum(features.lengths[drawn]), 2 * PROBE_TOKENS)) + 1]
    return np.sort(drawn)
