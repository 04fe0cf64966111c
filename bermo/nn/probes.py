"""Probes: small classifiers on frozen vectors, one for each layer and each penalty, trained together as one problem.

    linear   softmax(W x + b)
    hidden   softmax(V relu(W x + b) + c)                          one hidden layer
    mix      softmax(W (γ Σ_j s_j x_j) + b),  s = softmax(a)       a learned mix of the layers (Tenney et al. 2019)

    loss = Σ over probes of [mean cross-entropy + λ ‖weights‖²]

No probe sees another's gradient, and Adam scales every weight by itself, so training them together is training each alone;
the layers' vectors are read once for all penalties. Of each probe the weights
with the best accuracy on the dev part are kept, and of each layer the penalty with the best.

Axes: L layers, N rows, B rows of a batch, D units, P penalties, C classes, H hidden units.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

EVAL_ROWS = 2048
LEAST_STEPS = 40
"""Steps between two looks at the dev part, where an epoch has fewer."""
SMALL = 1e-4
LARGEST = 1e3
"""Deviations beyond which a value is cut: a unit that hardly moves in training would blow up half precision."""


class LinearProbes(nn.Module):
    """W x + b for every layer and penalty: (L, B, D) -> (L, P, B, C)."""

    def __init__(self, layers: int, units: int, penalties: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers, units, penalties, classes))
        self.bias = nn.Parameter(torch.zeros(layers, 1, penalties, classes))

    def forward(self, x_LBD: Tensor) -> Tensor:
        logits_LBPC = _product(x_LBD, self.weight) + self.bias
        return logits_LBPC.transpose(1, 2)

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights, (L, P)."""
        return self.weight.square().sum((1, 3))


class HiddenProbes(nn.Module):
    """V relu(W x + b) + c for every layer and penalty."""

    def __init__(
        self, layers: int, units: int, penalties: int, classes: int, hidden: int = 50, seed: int = 0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        # One draw for all penalties, so that they differ in nothing else.
        first = torch.randn(layers, units, 1, hidden, generator=generator) * (2 / units) ** 0.5
        second = torch.randn(layers, hidden, 1, classes, generator=generator) * (1 / hidden) ** 0.5
        self.first = nn.Parameter(first.repeat(1, 1, penalties, 1))
        self.first_bias = nn.Parameter(torch.zeros(layers, 1, penalties, hidden))
        self.second = nn.Parameter(second.repeat(1, 1, penalties, 1))
        self.second_bias = nn.Parameter(torch.zeros(layers, 1, penalties, classes))

    def forward(self, x_LBD: Tensor) -> Tensor:
        hidden_LBPH = torch.relu(_product(x_LBD, self.first) + self.first_bias)
        logits_LPBC = hidden_LBPH.transpose(1, 2) @ self.second.transpose(1, 2)
        return logits_LPBC + self.second_bias.transpose(1, 2)

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights, (L, P)."""
        return self.first.square().sum((1, 3)) + self.second.square().sum((1, 3))


class MixProbes(nn.Module):
    """A linear probe on γ Σ_j softmax(a)_j x_j for every penalty; the layers are one, as far as shapes go."""

    def __init__(self, layers: int, units: int, penalties: int, classes: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(1, layers, penalties, 1))
        self.scale = nn.Parameter(torch.ones(1, 1, penalties, 1))
        self.linear = LinearProbes(1, units, penalties, classes)

    @property
    def weights(self) -> Tensor:
        """The share of each layer, (L, P)."""
        return self.logits.softmax(1)[0, :, :, 0]

    def forward(self, x_LBD: Tensor) -> Tensor:
        shares_PL = (self.weights * self.scale[0, 0].T).T
        mixed_PBD = torch.tensordot(shares_PL, x_LBD, 1)
        logits_PBC = torch.einsum("pbd,dpc->pbc", mixed_PBD, self.linear.weight[0])
        return (logits_PBC + self.linear.bias[0].transpose(0, 1))[None]

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights, (1, P); the mix is free."""
        return self.linear.squares()


Probes: TypeAlias = LinearProbes | HiddenProbes | MixProbes
"""Weights are (L, ·, P, ·), so that one probe's are found by its layer and its penalty."""


def _product(x_LBD: Tensor, weight_LDPK: Tensor) -> Tensor:
    """Multiply each layer's rows by the matrices of all its penalties at once: (L, B, P, K)."""
    layers, _, penalties, size = weight_LDPK.shape
    return torch.bmm(x_LBD, weight_LDPK.flatten(2)).view(layers, -1, penalties, size)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Vectors (L, N, D), in half precision where memory matters, and the class of each row."""

    x_LND: Tensor
    labels_N: Tensor


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How probes are trained."""

    penalties: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    rate: float = 2e-3
    batch_size: int = 256
    looks: int = 25
    """Most looks at the dev part, one an epoch or every 40 steps."""
    patience: int = 4
    """Looks without a better probe anywhere, after which training ends."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ProbeFit:
    """Shares of right answers (L,) at the best penalty of each layer by dev, and which it was."""

    dev_L: Tensor
    test_L: Tensor
    penalty_L: Tensor
    """The place of the penalty in the settings."""
    looks: int


def fit_probes(
    probes: Probes,
    parts: tuple[Part, Part, Part],
    settings: Settings,
    advance: Callable[[int], None] = lambda looks: None,
) -> ProbeFit:
    """Train the probes in place on train, leave each at its best by dev, and say how good it is on test."""
    train, dev, test = parts
    device = train.x_LND.device
    probes.to(device)
    penalties_P = torch.tensor(settings.penalties, device=device)
    optimizer = torch.optim.Adam(probes.parameters(), lr=settings.rate)
    best_LP = torch.full(probes.squares().shape, -1.0, device=device)
    kept = [parameter.detach().clone() for parameter in probes.parameters()]
    idle = looks = 0
    rows = _row_batches(len(train.labels_N), settings, device)
    while looks < settings.looks and idle < settings.patience:
        for batch in next(rows):
            loss = _loss(probes, train.x_LND[:, batch].float(), train.labels_N[batch], penalties_P)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        looks += 1
        found_LP = accuracy(probes, dev)
        is_better_LP = found_LP > best_LP
        idle = 0 if bool(is_better_LP.any()) else idle + 1
        best_LP = torch.where(is_better_LP, found_LP, best_LP)
        _keep(probes, kept, is_better_LP)
        advance(looks)
    with torch.no_grad():
        for parameter, value in zip(probes.parameters(), kept, strict=True):
            parameter.copy_(value)
    chosen_L = best_LP.argmax(1)
    test_L = accuracy(probes, test).gather(1, chosen_L[:, None])[:, 0]
    return ProbeFit(
        dev_L=best_LP.amax(1).cpu(), test_L=test_L.cpu(), penalty_L=chosen_L.cpu(), looks=looks
    )


def standardise_(parts: Sequence[Tensor]) -> None:
    """Turn x into (x − mean) / deviation of the first part, for each layer and unit, in place.

    A layer at a time: a copy of all layers in float32 would take twice the memory of the vectors.
    """
    for layer in range(len(parts[0])):
        variance, mean = torch.var_mean(parts[0][layer].float(), dim=0, correction=0)
        factor = (variance.sqrt() + SMALL).reciprocal()
        for x_LND in parts:
            x_LND[layer] = ((x_LND[layer].float() - mean) * factor).clamp(-LARGEST, LARGEST)


def _loss(
    probes: Probes,
    x_LBD: Tensor,
    labels_B: Tensor,
    penalties_P: Tensor,
) -> Tensor:
    logits_LPBC = probes(x_LBD)
    count = logits_LPBC.shape[0] * logits_LPBC.shape[1]
    flat = logits_LPBC.reshape(-1, logits_LPBC.shape[-1])
    losses = functional.cross_entropy(flat, labels_B.repeat(count), reduction="sum")
    return losses / len(labels_B) + (probes.squares() * penalties_P).sum()


@torch.no_grad()
def accuracy(probes: Probes, part: Part) -> Tensor:
    """Return the share of right answers of every probe, (L, P)."""
    right: Tensor | None = None
    for begin in range(0, len(part.labels_N), EVAL_ROWS):
        rows = slice(begin, begin + EVAL_ROWS)
        answers_LPB = probes(part.x_LND[:, rows].float()).argmax(-1)
        hits_LP = (answers_LPB == part.labels_N[rows]).sum(-1)
        right = hits_LP if right is None else right + hits_LP
    assert right is not None, "a part has rows"
    return right / len(part.labels_N)


@torch.no_grad()
def _keep(probes: Probes, kept: list[Tensor], is_better_LP: Tensor) -> None:
    """Copy the weights of those probes that are better than ever."""
    for parameter, value in zip(probes.parameters(), kept, strict=True):
        torch.where(is_better_LP[:, None, :, None], parameter, value, out=value)


def _row_batches(count: int, settings: Settings, device: torch.device) -> Iterator[list[Tensor]]:
    """Yield, for each look, its batches of rows: whole epochs in an order drawn from the seed."""
    generator = torch.Generator().manual_seed(settings.seed)
    size = min(settings.batch_size, count)
    epochs = max(1, -(-LEAST_STEPS * size // count))
    while True:
        orders = [torch.randperm(count, generator=generator) for _ in range(epochs)]
        yield [rows for order in orders for rows in order.to(device).split(size)]
