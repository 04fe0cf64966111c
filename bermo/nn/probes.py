"""Training of probes (probe_kinds.py), one for each layer and penalty, all together.

    loss = Σ over probes of [mean cross-entropy + λ ‖weights‖²]

No probe sees another's gradient, and Adam scales every weight by itself, so training them together is
training each alone; the layers' vectors are read once for all penalties. Of each probe the weights with the
best accuracy on the dev part are kept, and of each layer the best penalty. A layer whose probes get no
better leaves the problem, so the others go on faster. At a rate that falls to 0 (`is_falling`) probes are
trained to the end, and dev chooses the penalty alone. With many classes `start_at_means_` saves most of the
steps. A mix is trained to the end (`fit_mix`), since its shares are read.

Axes: L layers, N rows, B rows of a batch, D units, P penalties, C classes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from bermo.nn.probe_kinds import MixProbes, Probes

EVAL_ROWS = 2048
LEAST_STEPS = 40
"""Steps between two evaluations on the dev part, where an epoch has fewer."""


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
    is_falling: bool = False
    """The rate falls linearly to 0 at the last evaluation, the only one: no weights before it are kept and no
    layer leaves. A few epochs of many rows then reach what takes tens of them at a constant rate."""
    mix_rate: float = 2e-2
    """Of a mix's logits and scale, whose gradients are sums over all units."""
    mix_steps: int = 4000
    """Steps of a mix: its shares move long after its accuracy has stopped to grow."""
    is_by_loss: bool = False
    """Choose by the mean log-probability of the dev part's labels in place of the right answers."""
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
    optimizer = torch.optim.Adam(probes.parameters(), lr=settings.rate, fused=True)
    kept = [parameter.detach().clone() for parameter in probes.parameters()]
    best_LP = torch.full(probes.squares().shape, -torch.inf)
    measure = likelihood if settings.is_by_loss else accuracy
    idle_L = torch.zeros(len(best_LP), dtype=torch.long)
    active, evaluations = list(range(len(best_LP))), 0
    rows = _row_batches(len(train.labels_N), settings, device)
    reader = _Reader(train, probes.reads(active), min(settings.batch_size, len(train.labels_N)))
    while evaluations < settings.evaluations and active:
        batches = next(rows)
        for done, batch in enumerate(batches):
            if settings.is_falling:
                share = 1 - (evaluations + done / len(batches)) / settings.evaluations
                optimizer.param_groups[0]["lr"] = share * settings.rate
            _step_(probes, optimizer, *reader.read(batch), penalties_P)
        evaluations += 1
        advance(evaluations)
        if settings.is_falling and evaluations < settings.evaluations:
            continue
        dev_AP = measure(probes, dev, probes.reads(active)).cpu()
        is_better_AP = dev_AP > best_LP[active]
        best_LP[active] = torch.where(is_better_AP, dev_AP, best_LP[active])
        idle_L[active] = torch.where(is_better_AP.any(1), 0, idle_L[active] + 1)
        _keep(probes, kept, active, is_better_AP)
        going = [at for at, layer in enumerate(active) if idle_L[layer] < settings.patience]
        if len(going) < len(active):
            _narrow_(probes, optimizer, torch.tensor(going, dtype=torch.long, device=device))
            active = [active[at] for at in going]
            reader.layers = probes.reads(active)
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
    """Train a mix in place to the minimum of its loss; no evaluation is chosen, dev chooses the penalty."""
    train, dev, test = parts
    train_mix_(probes, train, settings, advance)
    dev_1P, test_1P = (accuracy(probes, part, probes.reads([0])).cpu() for part in (dev, test))
    chosen = dev_1P.argmax(1)
    return ProbeFit(
        dev_L=dev_1P.amax(1),
        test_L=test_1P.gather(1, chosen[:, None])[:, 0],
        penalty_L=chosen,
        evaluations=1,
    )


def train_mix_(
    probes: MixProbes,
    train: LabelledVectors,
    settings: Settings,
    advance: Callable[[int], None] = lambda evaluations: None,
) -> None:
    """Train mixes in place, so that their shares do not follow their start.

    The rates fall linearly to 0 over the second half.
    """
    device = train.x_LND.device
    probes.to(device)
    penalties_P = torch.tensor(settings.penalties, device=device)
    optimizer = torch.optim.Adam(
        [
            {"params": [probes.logits, probes.scale], "lr": settings.mix_rate},
            {"params": list(probes.linear.parameters()), "lr": settings.rate},
        ],
        fused=True,
    )
    total = settings.mix_steps
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, 2 * (1 - step / total)))
    reader = _Reader(train, probes.reads([0]), min(settings.batch_size, len(train.labels_N)))
    batches = (batch for epoch in _row_batches(len(train.labels_N), settings, device) for batch in epoch)
    for step, batch in enumerate(islice(batches, total), start=1):
        _step_(probes, optimizer, *reader.read(batch), penalties_P)
        schedule.step()
        advance(step * settings.evaluations // total)


def _step_(
    probes: Probes,
    optimizer: torch.optim.Adam,
    x_LBD: Tensor,
    labels_B: Tensor,
    penalties_P: Tensor,
) -> None:
    """Take one step. No loss outlives it: its graph would hold the shapes that `_narrow_` changes.

    The gradients of the cross-entropy by the logits and of the penalty by the weights are written down, since
    finding them takes about a fifth of a step.
    """
    optimizer.zero_grad()
    logits_LPCB = probes(x_LBD).transpose(2, 3)
    logits_LPCB.backward(_logit_gradients(logits_LPCB.detach(), labels_B))
    probes.add_penalty_gradients_(penalties_P)
    optimizer.step()


def _logit_gradients(logits_LPCB: Tensor, labels_B: Tensor) -> Tensor:
    """Return ∂/∂logits of the mean cross-entropy: (softmax − 1 at the label) / rows."""
    gradients_LPCB = logits_LPCB.softmax(2)
    labels_LP1B = labels_B.expand(*logits_LPCB.shape[:2], 1, -1)
    gradients_LPCB.scatter_add_(2, labels_LP1B, gradients_LPCB.new_full((), -1.0).expand_as(labels_LP1B))
    return gradients_LPCB.div_(len(labels_B))


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


@torch.no_grad()
def accuracy(probes: Probes, part: LabelledVectors, layers: Sequence[int] | None = None) -> Tensor:
    """Return the share of right answers of every probe, (L, P); the probes are those of the given layers."""
    hits = [(logits.argmax(-1) == labels).sum(-1) for logits, labels in outputs(probes, part, layers)]
    return torch.stack(hits).sum(0) / len(part.labels_N)


@torch.no_grad()
def likelihood(probes: Probes, part: LabelledVectors, layers: Sequence[int] | None = None) -> Tensor:
    """Return the mean log-probability of the labels by every probe, (L, P)."""
    sums = [label_logs(*output).sum(-1) for output in outputs(probes, part, layers)]
    return torch.stack(sums).sum(0) / len(part.labels_N)


def label_logs(logits_LPBC: Tensor, labels_B: Tensor) -> Tensor:
    """Return the log-probability of each row's label, (L, P, B)."""
    logs = logits_LPBC.log_softmax(-1)
    return logs.gather(-1, labels_B.expand(*logs.shape[:-1])[..., None])[..., 0]


def outputs(
    probes: Probes, part: LabelledVectors, layers: Sequence[int] | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits (L, P, B, C) and the labels (B) of a part, some rows at a time."""
    count = len(part.labels_N)
    reader = _Reader(part, layers or range(len(part.x_LND)), min(EVAL_ROWS, count))
    for rows in torch.arange(count, device=part.labels_N.device).split(EVAL_ROWS):
        x_LBD, labels_B = reader.read(rows)
        yield probes(x_LBD), labels_B


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
