"""How well a linear map reads a number out of vectors: its mean error on vectors that it was not fitted to.

error = mean |w h + b − y|      w, b by ridge regression, the penalty by cross-validation (nn/linear_fit.py)
guess = mean |mean(y of the fitted rows) − y|       what is reached without reading the vectors
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bermo.data.intervals import bootstrap
from bermo.nn.linear_fit import fit_linear


@dataclass(frozen=True, kw_only=True)
class ReadOut:
    """The mean error with its 95 % interval (bootstrap over the rows), and that of guessing the mean."""

    error: float
    low: float
    high: float
    guess: float
    rows: int


def read_out(train: tuple[Tensor, Tensor], *tests: tuple[Tensor, Tensor]) -> tuple[ReadOut, ...]:
    """Fit on vectors (N, D) and numbers (N,), and measure on each of the others."""
    x, y = train[0].double(), train[1].double()
    fitted = fit_linear(x, y, None)
    return tuple(_measured(fitted.weight_CD, fitted.bias_C, float(y.mean()), *test) for test in tests)


def _measured(weight: Tensor, bias: Tensor, mean: float, x: Tensor, y: Tensor) -> ReadOut:
    answers = (x.double() @ weight.double().T + bias.double())[:, 0]
    errors = (answers - y.double()).abs().cpu().numpy()
    low, high = bootstrap(lambda rows: float(errors[rows].mean()), len(errors))
    guess = float((y.double() - mean).abs().mean())
    return ReadOut(error=float(errors.mean()), low=low, high=high, guess=guess, rows=len(errors))


def halves(count: int, share: float = 0.5) -> tuple[Tensor, Tensor]:
    """Divide row numbers at random, the same way each time."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    cut = max(1, round(share * count))
    return order[:cut].sort().values, order[cut:].sort().values
