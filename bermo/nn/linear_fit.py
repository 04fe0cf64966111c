"""The best linear readout of fixed vectors: logistic regression or ridge, its penalty by cross-validation.

    classes   mean cross-entropy of softmax(W z + b) + λ/2 ‖W‖²       by L-BFGS, in float64
    labels    the same of σ(W z + b), summed over labels: each against all others
    numbers   mean (w z + b − y)² / 2 + λ/2 ‖w‖²                      solved directly
    z = (x − mean) / deviation over the rows that are fitted
    with weights each row's loss counts by that of its class, or of each label that it has

The penalty λ is the one with the least loss on rows that were held out. Standardisation is folded into the
weights, so that W and b read x itself. scikit-learn's C is 1 / (λ N).

Axes: N rows, D units, C outputs (classes, or one number).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001)
"""From strong to weak: each fit starts from the one before it, and the first rise of the loss ends it."""
USUAL_PENALTY = 0.01
FOLDS = 5
EXACT = 200
ROUGH = 30
"""Iterations of the last fit, and of those that need only tell penalties apart."""
ONE_FOLD = 5e6
NO_FOLD = 1e8
"""Products of a pass (N · D · C) over which one part is held out, not five; or none, and the fit is rough."""
SMALL = 1e-6
"""Share of the mean deviation that is added to each, so that none is zero."""
DEAD = 1e-3
"""Units that deviate less than this share of the median are dead: all-MiniLM-L6-v2 has three of them."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What a fit may cost: the iterations of each fit that leaves a part out, those of the last fit, and
    whether that goes on from the first of them.
    """

    rough: int
    exact: int
    goes_on: bool


THOROUGH = Effort(rough=ROUGH, exact=EXACT, goes_on=False)
QUICK = Effort(rough=10, exact=50, goes_on=True)
"""For many rows, in half of the time."""


@dataclass(frozen=True, kw_only=True)
class LinearFit:
    """W (C, D) and b (C,) that read vectors as they are, the penalty, and its loss on held-out rows."""

    weight_CD: Tensor
    bias_C: Tensor
    penalty: float
    held_out_loss: float


def fit_linear(
    x_ND: Tensor,
    targets_N: Tensor,
    num_classes: int | None,
    weights_C: Tensor | None = None,
    effort: Effort = THOROUGH,
) -> LinearFit:
    """Fit classes (integer targets), labels (0 and 1, one column each) or, with None, numbers; the penalty is
    chosen by cross-validation.
    """
    x_ND, targets_N = _exact(x_ND, targets_N, num_classes)
    weights_C = None if weights_C is None else weights_C.double()
    chosen = _choose_penalty(x_ND, targets_N, num_classes, effort, weights_C)
    is_huge = x_ND.numel() * (num_classes or 1) > NO_FOLD
    start = chosen.start if effort.goes_on else None
    iterations = ROUGH if is_huge else effort.exact
    fitted = fit_with_penalty(x_ND, targets_N, num_classes, chosen.penalty, start, iterations, weights_C)
    return replace(fitted, held_out_loss=chosen.loss)


def held_out_loss(
    x_ND: Tensor, targets_N: Tensor, num_classes: int | None, effort: Effort = THOROUGH
) -> float:
    """Return the loss that `fit_linear` has on held-out rows; NaN where they are too few to hold some out."""
    x_ND, targets_N = _exact(x_ND, targets_N, num_classes)
    return _choose_penalty(x_ND, targets_N, num_classes, effort, None).loss


def _exact(x_ND: Tensor, targets_N: Tensor, num_classes: int | None) -> tuple[Tensor, Tensor]:
    has_classes = num_classes is not None and targets_N.ndim == 1
    return x_ND.double(), targets_N if has_classes else targets_N.double()


def fit_with_penalty(
    x_ND: Tensor,
    targets_N: Tensor,
    num_classes: int | None,
    penalty: float,
    start: LinearFit | None = None,
    iterations: int = EXACT,
    weights_C: Tensor | None = None,
) -> LinearFit:
    """Fit with one penalty, from another fit where one is given."""
    rows = _standardised(x_ND.double(), targets_N)
    return _fit(rows, num_classes, penalty, start, iterations, weights_C)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The rows of a fit, z = (x − mean) / deviation, and their targets."""

    z_ND: Tensor
    mean_D: Tensor
    deviation_D: Tensor
    targets_N: Tensor


def _standardised(x_ND: Tensor, targets_N: Tensor) -> _Rows:
    deviation_D, mean_D = torch.std_mean(x_ND, dim=0, correction=0)
    deviation_D = divisors(deviation_D) + SMALL * deviation_D.mean() + torch.finfo(torch.float64).tiny
    z_ND = (x_ND - mean_D) / deviation_D
    return _Rows(z_ND=z_ND, mean_D=mean_D, deviation_D=deviation_D, targets_N=targets_N)


def _fit(
    rows: _Rows,
    num_classes: int | None,
    penalty: float,
    start: LinearFit | None,
    iterations: int,
    weights_C: Tensor | None,
) -> LinearFit:
    z_ND, mean_D, deviation_D = rows.z_ND, rows.mean_D, rows.deviation_D
    if num_classes is None:
        weight_CD, bias_C = _ridge(z_ND, rows.targets_N.double(), penalty)
    else:
        first_CD = z_ND.new_zeros(num_classes, z_ND.shape[1])
        first_C = z_ND.new_zeros(num_classes)
        if start is not None:
            first_CD = start.weight_CD * deviation_D
            first_C = start.bias_C + start.weight_CD @ mean_D
        first = first_CD, first_C
        weight_CD, bias_C = _logistic(z_ND, rows.targets_N, penalty, first, iterations, weights_C)
    weight_CD = weight_CD / deviation_D
    return LinearFit(
        weight_CD=weight_CD, bias_C=bias_C - weight_CD @ mean_D, penalty=penalty, held_out_loss=float("nan")
    )


def divisors(deviation_D: Tensor) -> Tensor:
    """Return what units are divided by: their deviations; dead units by the median of all.

    Brought to the deviation of the others, the least change of a dead unit in training would outdo them all.
    """
    usual = deviation_D.median()
    return torch.where(deviation_D > DEAD * usual, deviation_D, usual)


def _logistic(
    z_ND: Tensor,
    targets: Tensor,
    penalty: float,
    start: tuple[Tensor, Tensor],
    iterations: int,
    weights_C: Tensor | None,
) -> tuple[Tensor, Tensor]:
    num_classes, width = start[0].shape
    flat = torch.cat([tensor.flatten() for tensor in start])
    weight_CD, bias_C = flat[: num_classes * width].view(num_classes, width), flat[num_classes * width :]
    flat.grad = grad = torch.empty_like(flat)
    grad_CD, grad_C = grad[: num_classes * width].view(num_classes, width), grad[num_classes * width :]
    optimizer = torch.optim.LBFGS(
        [flat],
        max_iter=iterations,
        tolerance_grad=1e-6,
        tolerance_change=1e-10,
        line_search_fn="strong_wolfe",
    )
    slopes_NC = _slopes(targets, num_classes, weights_C) if targets.ndim == 1 else None

    @torch.no_grad()
    def closure() -> Tensor:
        logits_NC = functional.linear(z_ND, weight_CD, bias_C)
        loss, down_NC = _entropy_and_gradient(logits_NC, targets, weights_C, slopes_NC)
        torch.mm(down_NC.T, z_ND, out=grad_CD).add_(penalty * weight_CD)
        torch.sum(down_NC, 0, out=grad_C)
        return loss + penalty / 2 * weight_CD.square().sum()

    optimizer.step(closure)
    return weight_CD.clone(), bias_C.clone()


def _slopes(targets_N: Tensor, num_classes: int, weights_C: Tensor | None) -> Tensor:
    """Return what the mean cross-entropy of classes gains by each logarithm of a probability."""
    row_N = torch.full((len(targets_N),), -1.0 / len(targets_N), dtype=torch.float64, device=targets_N.device)
    if weights_C is not None:
        row_N = row_N * weights_C[targets_N]
    return functional.one_hot(targets_N, num_classes) * row_N[:, None]


def _entropy_and_gradient(
    logits_NC: Tensor, targets: Tensor, weights_C: Tensor | None, slopes_NC: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy and its gradient; of classes (with their slopes) without autograd, which
    takes longer than the products of a fit.
    """
    if slopes_NC is None:
        with torch.enable_grad():
            logits_NC.requires_grad_()
            loss = _entropy(logits_NC, targets, weights_C)
            return loss.detach(), torch.autograd.grad(loss, logits_NC)[0]
    logs_NC = logits_NC.log_softmax(1)
    down_NC = torch.ops.aten._log_softmax_backward_data(slopes_NC, logs_NC, 1, torch.float64)
    if weights_C is None:
        return functional.nll_loss(logs_NC, targets), down_NC
    losses_N = functional.nll_loss(logs_NC, targets, reduction="none")
    return (losses_N * weights_C[targets]).mean(), down_NC


def _ridge(z_ND: Tensor, targets_N: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    mean = targets_N.mean()
    covariance_DD = z_ND.T @ z_ND / len(z_ND)
    covariance_DD.diagonal().add_(penalty)
    weight_D = torch.linalg.solve(covariance_DD, z_ND.T @ (targets_N - mean) / len(z_ND))
    return weight_D[None], mean[None]


def _held_out(targets_N: Tensor, work: int) -> list[Tensor]:
    """Return the rows of each part that is held out in turn, as mixed in classes (or in numbers) as all rows.

    With much work it is one part, with far too much none.
    """
    count = len(targets_N)
    if count < 2 * FOLDS or count * work > NO_FOLD:
        return []
    shuffled_N = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    # Of several labels, how many a row has.
    mixed_N = targets_N.cpu() if targets_N.ndim == 1 else targets_N.cpu().sum(1)
    order_N = shuffled_N[torch.argsort(mixed_N[shuffled_N], stable=True)]
    parts = [order_N[fold::FOLDS].to(targets_N.device) for fold in range(FOLDS)]
    return parts[:1] if count * work > ONE_FOLD else parts


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The penalty with the least loss on held-out rows, that loss, and the first fit that had it."""

    penalty: float
    loss: float
    start: LinearFit | None


def _choose_penalty(
    x_ND: Tensor, targets_N: Tensor, num_classes: int | None, effort: Effort, weights_C: Tensor | None
) -> _Chosen:
    parts = _held_out(targets_N, x_ND.shape[1] * (num_classes or 1))
    if not parts:
        return _Chosen(penalty=USUAL_PENALTY, loss=float("nan"), start=None)
    best = _Chosen(penalty=USUAL_PENALTY, loss=float("inf"), start=None)
    fits: list[LinearFit | None] = [None] * len(parts)
    kept = [_without(x_ND, targets_N, part) for part in parts]
    for penalty in PENALTIES:
        loss = 0.0
        for index, part in enumerate(parts):
            fits[index] = fitted = _fit(
                kept[index], num_classes, penalty, fits[index], effort.rough, weights_C
            )
            loss += _loss(fitted, x_ND[part], targets_N[part], num_classes, weights_C) / len(parts)
        if loss >= best.loss:
            break
        best = _Chosen(penalty=penalty, loss=loss, start=fits[0])
    return best


def _without(x_ND: Tensor, targets_N: Tensor, part: Tensor) -> _Rows:
    """Return all rows but those of one part."""
    is_kept = torch.ones(len(x_ND), dtype=torch.bool, device=x_ND.device)
    is_kept[part] = False
    return _standardised(x_ND[is_kept], targets_N[is_kept])


def _loss(
    fitted: LinearFit, x_ND: Tensor, targets_N: Tensor, num_classes: int | None, weights_C: Tensor | None
) -> float:
    outputs_NC = functional.linear(x_ND, fitted.weight_CD, fitted.bias_C)
    if num_classes is None:
        return functional.mse_loss(outputs_NC[:, 0], targets_N).item() / 2
    return _entropy(outputs_NC, targets_N, weights_C).item()


def _entropy(logits_NC: Tensor, targets: Tensor, weights_C: Tensor | None) -> Tensor:
    """Return the mean cross-entropy of classes (N,), or of labels (N, C) summed over a row's labels."""
    if targets.ndim == 1 and weights_C is not None:
        losses_N = functional.cross_entropy(logits_NC, targets, reduction="none")
        return (losses_N * weights_C[targets]).mean()
    if targets.ndim == 1:
        return functional.cross_entropy(logits_NC, targets)
    losses_NC = functional.binary_cross_entropy_with_logits(
        logits_NC, targets, reduction="none", pos_weight=weights_C
    )
    return losses_NC.sum(1).mean()
