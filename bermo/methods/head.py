"""A head that starts as the best linear readout of the frozen encoder (LP-FT: Kumar et al. 2022).

    texts    out(tanh(dense(x)))   dense standardises x unit by unit, out is fitted to what it then reads
    pairs    out(tanh(scale(x)))   the same, of what the vectors of two texts say of each other
    tokens   out(x)                out is fitted

x is what the head reads at its start: mixed and pooled, in eval mode, of some of the training rows. Before
the first step the model's outputs are those of the fitted probe, and from there all layers learn. A dense
layer whose input has another width than its output (concatenated layers) stays random.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from bermo.data.features import Features
from bermo.methods.defaults import has_open_pooling, resolve_defaults
from bermo.methods.evaluate import eval_rows, predict
from bermo.methods.prepare import Prepared, build_model, with_pairs
from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.heads import IGNORED, PairHead, PooledHead, Scale, TokenHead
from bermo.nn.linear_fit import LinearFit, divisors, fit_linear
from bermo.spec import PAIRS, MixSpec, Pairs, Pooling, chosen, replace_in

PROBE_ROWS = 2000
POOLING_ROWS = 500
PROBE_TOKENS = 5000
"""Most training rows that the probe reads, most that choose the pooling, and most labelled tokens of tags."""
MEAN: Pooling = "mean"
TextHead = PooledHead | PairHead
SLOPE = 0.5
"""What a deviation of a unit becomes before tanh: small enough to lose little."""


def start_head_(
    model: BermoPreTrainedModel,
    features: Features,
    batch_size: int,
    accelerator: Accelerator,
    weights_C: Tensor | None = None,
) -> None:
    """Fit the head of a new model to some of the training rows, in place; weights are of the classes."""
    head = cast(TextHead | TokenHead, model.head)
    x_ND, targets_N = _head_inputs(model, features, PROBE_ROWS, batch_size, accelerator)
    fitted = _fit(head, x_ND, targets_N, features, weights_C)
    if not torch.isfinite(fitted.weight_CD).all():
        return
    with torch.no_grad():
        head.out.weight.copy_(fitted.weight_CD)
        head.out.bias.copy_(fitted.bias_C)


@dataclass(frozen=True, kw_only=True)
class _Way:
    """A way to read pairs and to pool, and the loss of its probe on held-out rows."""

    prepared: Prepared
    pairs: Pairs
    pooling: Pooling
    loss: float


def choose_reading(prepared: Prepared, accelerator: Accelerator) -> Prepared:
    """Choose what is open, the pooling and how pairs are read, by probes' losses on held-out training rows.

    The probes read the plain encoder, so that runs with and without a mix read alike. A pooling is the
    family's or mean.
    """
    model = prepared.spec.model
    if model.pairs is not None and not has_open_pooling(prepared.spec, prepared.facts.kind):
        return prepared
    known = [prepared] if model.pairs else [with_pairs(prepared, pairs) for pairs in PAIRS]
    ways = [way for one in known for way in _ways(one, accelerator)]
    # Where rows are too few to hold some out, all losses are NaN and what is usual stands first.
    best = min(ways, key=lambda way: way.loss)
    losses = {way.pooling: way.loss for way in ways if way.pairs == best.pairs}
    reasons = list(prepared.reasons)
    if model.pairs is None:
        reasons.append(_why_pairs(best, ways))
    if model.pooling is None:
        reasons.append(_why_pooling(best.pooling, losses))
    read = replace_in(best.prepared.spec, model={"pooling": best.pooling})
    resolved = resolve_defaults(read, prepared.facts)
    return replace(best.prepared, spec=resolved.spec, reasons=(*reasons, *resolved.reasons))


def _ways(prepared: Prepared, accelerator: Accelerator) -> Iterator[_Way]:
    """Yield the poolings that are open, with pairs read as the spec says."""
    spec, facts = prepared.spec, prepared.facts
    plain = replace_in(spec, model={"mix": MixSpec(kind="none")})
    with torch.random.fork_rng(devices=[]):
        # An encoder of random weights must not depend on what the process drew before.
        torch.manual_seed(0)
        model = build_model(replace(prepared, spec=plain))
    given = spec.model.pooling
    for pooling in [given] if given else dict.fromkeys((facts.family_pooling, MEAN)):
        model.config.pooling = pooling
        x_ND, targets_N = _head_inputs(model, prepared.train, POOLING_ROWS, eval_rows(spec), accelerator)
        loss = _fit(cast(TextHead, model.head), x_ND, targets_N, prepared.train).held_out_loss
        yield _Way(prepared=prepared, pairs=chosen(spec.model.pairs), pooling=pooling, loss=loss)


def _why_pairs(best: _Way, ways: Sequence[_Way]) -> str:
    read = {"joined": "the two texts of a pair are read as one", "apart": "the two texts are read apart"}
    if math.isnan(best.loss):
        return f"{read[best.pairs]} (as usual)"
    other = min((way for way in ways if way.pairs != best.pairs), key=lambda way: way.loss)
    return f"{read[best.pairs]} (the probe's loss is {best.loss:.3g}, {other.loss:.3g} {other.pairs})"


def _why_pooling(best: Pooling, losses: Mapping[Pooling, float]) -> str:
    if math.isnan(losses[best]) or len(losses) == 1:
        return f"pooling {best} (as the encoder's family has it)"
    others = ", ".join(f"{loss:.3g} with {name}" for name, loss in losses.items() if name != best)
    return f"pooling {best} (the probe's loss is {losses[best]:.3g}, {others})"


def _fit(
    head: TextHead | TokenHead,
    x_ND: Tensor,
    targets_N: Tensor,
    features: Features,
    weights_C: Tensor | None = None,
) -> LinearFit:
    """Set the layer before the readout where there is one, and fit the readout of what comes out of it."""
    if not isinstance(head, TokenHead):
        before = head.scale if isinstance(head, PairHead) else head.dense
        _standardise_(before, x_ND)
        with torch.no_grad():
            x_ND = torch.tanh(before(x_ND))
    num_classes = None if features.task.kind == "regression" else len(features.labels)
    return fit_linear(x_ND, targets_N, num_classes, weights_C)


@torch.no_grad()
def _standardise_(layer: nn.Linear | Scale, x_ND: Tensor) -> None:
    """Let a scale or a square layer standardise its inputs, unit by unit."""
    if isinstance(layer, nn.Linear) and layer.in_features != layer.out_features:
        return
    deviation_D, mean_D = torch.std_mean(x_ND, dim=0, correction=0)
    factor_D = SLOPE / (divisors(deviation_D) + torch.finfo(torch.float32).eps).clamp(min=1e-6)
    layer.weight.copy_(factor_D if isinstance(layer, Scale) else torch.diag(factor_D))
    layer.bias.copy_(-factor_D * mean_D)


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
