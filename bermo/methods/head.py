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
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput

from bermo.data.features import Features
from bermo.methods.defaults import FEW_ROWS, has_open_pooling, resolve_defaults
from bermo.methods.evaluate import eval_rows, predict
from bermo.methods.prepare import Prepared, build_model, with_pairs
from bermo.models.encoder import BermoModel
from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.heads import IGNORED, PairHead, PooledHead, Scale, TokenHead, take_rows
from bermo.nn.linear_fit import QUICK, THOROUGH, divisors, fit_linear, held_out_loss
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
    (x_ND,), targets_N = _head_inputs(model, features, PROBE_ROWS, batch_size, accelerator)
    effort = QUICK if _has_many(features) else THOROUGH
    x_ND = _before_readout(head, x_ND.to(head.out.weight.device)).cpu()
    fitted = fit_linear(x_ND, targets_N, _num_classes(features), weights_C, effort)
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
    given, train, head = spec.model.pooling, prepared.train, cast(TextHead, model.head)
    poolings = (given,) if given else tuple(dict.fromkeys((facts.family_pooling, MEAN)))
    read, targets_N = _head_inputs(model, train, POOLING_ROWS, eval_rows(spec), accelerator, poolings)
    effort = QUICK if _has_many(train) else THOROUGH
    for pooling, x_ND in zip(poolings, read, strict=True):
        loss = held_out_loss(_before_readout(head, x_ND), targets_N, _num_classes(train), effort)
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


@torch.no_grad()
def _before_readout(head: TextHead | TokenHead, x_ND: Tensor) -> Tensor:
    """Set the layer before the readout where there is one, and return what comes out of it."""
    if isinstance(head, TokenHead):
        return x_ND
    before = head.scale if isinstance(head, PairHead) else head.dense
    _standardise_(before, x_ND)
    return torch.tanh(before(x_ND))


def _num_classes(features: Features) -> int | None:
    return None if features.task.kind == "regression" else len(features.labels)


def _has_many(features: Features) -> bool:
    """Tell whether rows are many, so that a probe need not get all that it can out of them."""
    return len(features) >= FEW_ROWS


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
    poolings: Sequence[Pooling] = (),
) -> tuple[Sequence[Tensor], Tensor]:
    """Return what the head reads of some rows (texts, or labelled tokens), on the CPU, by each pooling or by
    the model's own, and the rows' targets.
    """
    rows = _some_rows(features, most_rows)
    head, home = model.head, model.device
    model.head = nn.Identity()
    model.to(accelerator.device)
    reader = _AllPoolings(model, poolings) if len(poolings) > 1 else model
    if len(poolings) == 1:
        model.config.pooling = poolings[0]
    try:
        read = predict(reader, features, batch_size, accelerator, rows=rows, is_full=_has_many(features))
    finally:
        model.head = head
        model.to(home)  # type: ignore[arg-type]
    targets = np.asarray(features.targets)
    if features.task.kind != "tagging":
        x_NE = torch.from_numpy(np.stack(read))
        return x_NE.chunk(max(1, len(poolings)), dim=1), torch.from_numpy(targets[rows])
    flat = np.concatenate([targets[features.starts[row] : features.starts[row + 1]] for row in rows])
    labelled = np.flatnonzero(flat != IGNORED)[:PROBE_TOKENS]
    return (torch.from_numpy(np.concatenate(read)[labelled]),), torch.from_numpy(flat[labelled]).long()


class _OnePass(nn.Module):
    """An encoder that goes over a batch once, however often it is asked for tokens of it."""

    def __init__(self, encoder: BermoModel) -> None:
        super().__init__()
        self.encoder, self.config = encoder, encoder.config
        self.mixed_BTD: Tensor | None = None

    def forward(self, *inputs: Tensor | None, rows: Tensor | None = None, **options: Any) -> BaseModelOutput:
        if self.mixed_BTD is None:
            self.mixed_BTD = self.encoder(*inputs, **options).last_hidden_state
        mixed_BTD = self.mixed_BTD if rows is None else take_rows(self.mixed_BTD, rows)
        return BaseModelOutput(last_hidden_state=cast(Any, mixed_BTD))


class _AllPoolings:
    """What a model's head reads of a batch by each pooling, side by side."""

    def __init__(self, model: BermoPreTrainedModel, poolings: Sequence[Pooling]) -> None:
        self.model, self.poolings = model.eval(), poolings

    def __call__(self, **inputs: Tensor) -> SequenceClassifierOutput:
        core = self.model.core
        self.model.bermo = _OnePass(core)
        try:
            read = [self._read(pooling, inputs) for pooling in self.poolings]
        finally:
            self.model.bermo = core
        return SequenceClassifierOutput(logits=cast(Any, torch.cat(read, dim=1)))

    def _read(self, pooling: Pooling, inputs: Mapping[str, Tensor]) -> Tensor:
        self.model.config.pooling = pooling
        return cast(Tensor, self.model(**inputs).logits)


def _some_rows(features: Features, most_rows: int) -> np.ndarray:
    """Draw the rows that are read, the same for every seed; of tags no more than have enough tokens."""
    drawn = np.random.default_rng(0).permutation(len(features))[:most_rows]
    if features.task.kind == "tagging":
        # About half of the tokens have a label of their own: the others are parts of words.
        drawn = drawn[: int(np.searchsorted(np.cumsum(features.lengths[drawn]), 2 * PROBE_TOKENS)) + 1]
    return np.sort(drawn)
