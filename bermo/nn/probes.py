"""Probes: small classifiers on frozen vectors, one for each layer and penalty, all trained together.

    linear   softmax(W x + b)
    hidden   softmax(V relu(W x + b) + c)                     one hidden layer
    mix      softmax(W (γ Σ_j s_j x_j) + b), s = softmax(a)   a learned mix of layers (Tenney et al. 2019)

    loss = Σ over probes of [mean cross-entropy + λ ‖weights‖²]

No probe sees another's gradient, and Adam scales every weight by itself, so training them together is
training each alone; the layers' vectors are read once for all penalties. Of each probe the weights with the
best accuracy on the dev part are kept, and of each layer the best penalty. A layer whose probes get no
better leaves the problem, so the others go on faster. With many classes `start_at_means_` saves most of the
steps. A mix is trained to the end (`fit_mix`), since its shares are read.

Axes: L layers, N rows, B rows of a batch, D units, P penalties, C classes, H hidden units.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

EVAL_ROWS = 2048
LEAST_STEPS = 40
"""Steps between two evaluations on the dev part, where an epoch has fewer."""


class LinearProbes(nn.Module):
    """W x + b for every layer and penalty: (L, B, D) -> (L, P, B, C)."""

    def __init__(self, layers: int, units: int, penalties: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers, units, penalties, classes))
        self.bias = nn.Parameter(torch.zeros(layers, 1, penalties, classes))

    def forward(self, x_LBD: Tensor) -> Tensor:
        return _product(x_LBD, self.weight, self.bias).transpose(2, 3)

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights, (L, P)."""
        return self.weight.square().sum((1, 3))

    def reads(self, active: Sequence[int]) -> Sequence[int]:
        """Return the layers that the active probes read: their own."""
        return active


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
        hidden_LPHB = torch.relu(_product(x_LBD, self.first, self.first_bias))
        logits_LPCB = self.second.permute(0, 2, 3, 1) @ hidden_LPHB
        return (logits_LPCB + self.second_bias.permute(0, 2, 3, 1)).transpose(2, 3)

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights, (L, P)."""
        return self.first.square().sum((1, 3)) + self.second.square().sum((1, 3))

    def reads(self, active: Sequence[int]) -> Sequence[int]:
        """Return the layers that the active probes read: their own."""
        return active


class MixProbes(nn.Module):
    """A linear probe on γ Σ_j softmax(a)_j x_j for every penalty; the layer axis of its outputs is 1."""

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
        """Return the sum of each probe's squared weights γW, (1, P); of W alone, γ would grow for ever."""
        return self.linear.squares() * self.scale[0, 0, :, 0].square()

    def reads(self, active: Sequence[int]) -> Sequence[int]:
        """Return the layers that are read: all."""
        return range(self.logits.shape[1])


Probes: TypeAlias = LinearProbes | HiddenProbes | MixProbes
"""Weights are (L, ·, P, ·), so that a layer and a penalty select one probe's."""


def _product(x_LBD: Tensor, weight_LDPK: Tensor, bias_L1PK: Tensor) -> Tensor:
    """Multiply each layer's rows by the matrices of all its penalties at once: (L, P, K, B).

    Rows come last: with two classes, a softmax over neighbours in memory would be the slowest part of a step.
    """
    layers, _, penalties, size = weight_LDPK.shape
    weight_LKD = weight_LDPK.flatten(2).transpose(1, 2)
    bias_LK1 = bias_L1PK.flatten(2).transpose(1, 2)
    product = torch.baddbmm(bias_LK1, weight_LKD, x_LBD.transpose(1, 2))
    return product.view(layers, penalties, size, -1)


@dataclass(frozen=True, kw_only=True)
class LabelledVectors:
    """Vectors (L, N, D), in half precision where memory matters, and the class of each row."""

    x_LND: Tensor
    labels_N: Tensor


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How probes are trained."""

    penalties: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    rate: float = 2e-3
    batch_size: int = 256
    evaluations: int = 25
    """At most so many evaluations on the dev part, one in each epoch or every 40 steps."""
    patience: int = 4
    """Evaluations without a better probe of a layer, after which its training ends."""
    mix_rate: float = 2e-2
    """Of a mix's logits and scale, whose gradients are sums over all units."""
    mix_steps: int = 4000
    """Steps of a mix: its shares move long after its accuracy has stopped to grow."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ProbeFit:
    """Shares of right answers (L,) at the best penalty of each layer by dev, and which it was."""

    dev_L: Tensor
    test_L: Tensor
    penalty_L: Tensor
    """The index of the penalty in the settings."""
    evaluations: int


def fit_probes(
    probes: Probes,
    parts: tuple[LabelledVectors, LabelledVectors, LabelledVectors],
    settings: Settings,
    advance: Callable[[int], None] = lambda evaluations: None,
) -> ProbeFit:
    """Train the probes in place on train, leave each at its best by dev, and measure it on test."""
    train, dev, test = parts
    device = train.x_LND.device
    probes.to(device)
    penalties_P = torch.tensor(settings.penalties, device=device)
    optimizer = torch.optim.Adam(probes.parameters(), lr=settings.rate)
    kept = [parameter.detach().clone() for parameter in probes.parameters()]
    best_LP = torch.full(probes.squares().shape, -1.0)
    idle_L = torch.zeros(len(best_LP), dtype=torch.long)
    active, evaluations = list(range(len(best_LP))), 0
    rows = _row_batches(len(train.labels_N), settings, device)
    reader = _Reader(train, probes.reads(active), min(settings.batch_size, len(train.labels_N)))
    while evaluations < settings.evaluations and active:
        for batch in next(rows):
            _step_(probes, optimizer, *reader.read(batch), penalties_P)
        evaluations += 1
        dev_AP = accuracy(probes, dev, probes.reads(active)).cpu()
        is_better_AP = dev_AP > best_LP[active]
        best_LP[active] = torch.where(is_better_AP, dev_AP, best_LP[active])
        idle_L[active] = torch.where(is_better_AP.any(1), 0, idle_L[active] + 1)
        _keep(probes, kept, active, is_better_AP)
        going = [at for at, layer in enumerate(active) if idle_L[layer] < settings.patience]
        if len(going) < len(active):
            _narrow_(probes, optimizer, torch.tensor(going, dtype=torch.long, device=device))
            active = [active[at] for at in going]
            reader.layers = probes.reads(active)
        advance(evaluations)
    for parameter, value in zip(probes.parameters(), kept, strict=True):
        parameter.data = value
    chosen_L = best_LP.argmax(1)
    test_LP = accuracy(probes, test).cpu()
    return ProbeFit(
        dev_L=best_LP.amax(1),
        test_L=test_LP.gather(1, chosen_L[:, None])[:, 0],
        penalty_L=chosen_L,
        evaluations=evaluations,
    )


def fit_mix(
    probes: MixProbes,
    parts: tuple[LabelledVectors, LabelledVectors, LabelledVectors],
    settings: Settings,
    advance: Callable[[int], None] = lambda evaluations: None,
) -> ProbeFit:
    """Train a mix in place to the minimum of its loss, so that its shares do not follow its start.

    The rates fall linearly to 0 over the second half. No evaluation is chosen; dev chooses the penalty.
    """
    train, dev, test = parts
    device = train.x_LND.device
    probes.to(device)
    penalties_P = torch.tensor(settings.penalties, device=device)
    optimizer = torch.optim.Adam(
        [
            {"params": [probes.logits, probes.scale], "lr": settings.mix_rate},
            {"params": list(probes.linear.parameters()), "lr": settings.rate},
        ]
    )
    total = settings.mix_steps
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, 2 * (1 - step / total)))
    layers = probes.reads([0])
    reader = _Reader(train, layers, min(settings.batch_size, len(train.labels_N)))
    batches = (batch for epoch in _row_batches(len(train.labels_N), settings, device) for batch in epoch)
    for step, batch in enumerate(islice(batches, total), start=1):
        _step_(probes, optimizer, *reader.read(batch), penalties_P)
        schedule.step()
        advance(step * settings.evaluations // total)
    dev_1P, test_1P = (accuracy(probes, part, layers).cpu() for part in (dev, test))
    chosen = dev_1P.argmax(1)
    return ProbeFit(
        dev_L=dev_1P.amax(1),
        test_L=test_1P.gather(1, chosen[:, None])[:, 0],
        penalty_L=chosen,
        evaluations=1,
    )


def _step_(
    probes: Probes,
    optimizer: torch.optim.Adam,
    x_LBD: Tensor,
    labels_B: Tensor,
    penalties_P: Tensor,
) -> None:
    """Take one step. No loss outlives it: its graph would hold the shapes that `_narrow_` changes."""
    optimizer.zero_grad()
    _loss(probes, x_LBD, labels_B, penalties_P).backward()
    optimizer.step()


class _Reader:
    """Rows of the wanted layers in float32, in memory that is reused: new memory costs more than the copy."""

    def __init__(self, part: LabelledVectors, layers: Sequence[int], most: int) -> None:
        self.part, self.layers = part, layers
        shape = (len(layers), most, part.x_LND.shape[2])
        self._stored = part.x_LND.new_empty(shape)
        self._read = torch.empty(shape, device=part.x_LND.device)

    def read(self, rows_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return x (L, B, D), good until the next call, and the labels."""
        count = len(rows_B)
        for at, layer in enumerate(self.layers):
            stored = self._stored[at, :count]
            torch.index_select(self.part.x_LND[layer], 0, rows_B, out=stored)
            self._read[at, :count].copy_(stored)
        return self._read[: len(self.layers), :count], self.part.labels_N[rows_B]


def _loss(
    probes: Probes,
    x_LBD: Tensor,
    labels_B: Tensor,
    penalties_P: Tensor,
) -> Tensor:
    logits_KCB = probes(x_LBD).transpose(2, 3).flatten(0, 1)
    labels_KB = labels_B.expand(len(logits_KCB), -1)
    losses = functional.cross_entropy(logits_KCB, labels_KB, reduction="sum")
    return losses / len(labels_B) + (probes.squares() * penalties_P).sum()


@torch.no_grad()
def accuracy(probes: Probes, part: LabelledVectors, layers: Sequence[int] | None = None) -> Tensor:
    """Return the share of right answers of every probe, (L, P); the probes are those of the given layers."""
    count = len(part.labels_N)
    reader = _Reader(part, layers or range(len(part.x_LND)), min(EVAL_ROWS, count))
    hits = []
    for rows in torch.arange(count, device=part.labels_N.device).split(EVAL_ROWS):
        x_LBD, labels_B = reader.read(rows)
        hits.append((probes(x_LBD).argmax(-1) == labels_B).sum(-1))
    return torch.stack(hits).sum(0) / count


@torch.no_grad()
def _keep(probes: Probes, kept: Sequence[Tensor], active: Sequence[int], is_better_AP: Tensor) -> None:
    """Copy the weights of those probes that are better than ever."""
    is_better = is_better_AP.to(kept[0].device)[:, None, :, None]
    for parameter, value in zip(probes.parameters(), kept, strict=True):
        value[active] = torch.where(is_better, parameter, value[active])


def _narrow_(probes: Probes, optimizer: torch.optim.Adam, going: Tensor) -> None:
    """Leave only the probes that go on, with their state."""
    for parameter in probes.parameters():
        parameter.data, parameter.grad = parameter.data[going], None
        state = optimizer.state[parameter]
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = state[name][going]


def _row_batches(count: int, settings: Settings, device: torch.device) -> Iterator[list[Tensor]]:
    """Yield the batches of rows up to each evaluation: whole epochs, in an order drawn from the seed."""
    generator = torch.Generator().manual_seed(settings.seed)
    size = min(settings.batch_size, count)
    epochs = max(1, -(-LEAST_STEPS * size // count))
    while True:
        orders = [torch.randperm(count, generator=generator) for _ in range(epochs)]
        yield [rows for order in orders for rows in order.to(device).split(size)]
