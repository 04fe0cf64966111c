"""What a training gave: the result of one seed and of all seeds together, as files."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bermo.files import read_sealed, reading, write_sealed
from bermo.typed import check_fields


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """What one training gave: its scores in percent, whether it failed, and what it cost."""

    seed: int
    metric: str
    score: float
    values: dict[str, float]
    last_score: float
    diverged: str | None
    best_step: int
    steps: int
    loss: float
    seconds: float
    rows_per_second: float
    peak_memory_mib: float
    mix_layers: list[int]
    mix_weights: list[float]
    num_parameters: int
    encoder_density: float
    """Share of the encoder's weights that is not pruned; embeddings do not count, biases and norms do."""
    unknown_share: float
    truncated_share: float
    device: str
    versions: dict[str, str]
    together: int = 1
    """Seeds that were trained at once; `seconds` and `rows_per_second` are then those of all of them, and
    batches are padded to the longest of all, a little more than `padding_share` says."""
    padding_share: float = math.nan
    """Share of the first epoch's tokens that were padding; NaN where a result does not say."""
    encoder_kept: int = 0
    """The number of the encoder's weights that are not pruned; 0 where a result does not say."""
    density: float = math.nan
    """Share kept of the weights that pruning can remove, as --density counts them: no embeddings, biases and
    norms. NaN where a result does not say."""
    frozen_score: float = math.nan
    """The score before the first step, of the frozen encoder with a fitted head; NaN with a random head."""
    undertrained: str | None = None
    """Why it is no better than guessing although it did not collapse: it has not learned enough."""

    @property
    def failed(self) -> Literal["diverged", "undertrained"] | None:
        """In which way the training failed, if it did."""
        return "diverged" if self.diverged else "undertrained" if self.undertrained else None

    @property
    def reason(self) -> str | None:
        """Why the training failed, if it did."""
        return self.diverged or self.undertrained

    @property
    def kept(self) -> float:
        """The share kept, as --density counts it where the result says so."""
        return self.encoder_density if math.isnan(self.density) else self.density

    @property
    def own_seconds(self) -> float:
        """The seconds of this seed alone: of seeds trained together, an even part of theirs."""
        return self.seconds / self.together

    @property
    def verdict(self) -> str:
        """How the training ended, in a few words."""
        return f"{self.failed}: {self.reason}" if self.failed else "fine"

    @property
    def has_shares(self) -> bool:
        """Whether the mix has several layers, and a training that diverged has left numbers in it."""
        return len(self.mix_weights) > 1 and not any(map(math.isnan, self.mix_weights))


ONE_ANSWER = "every prediction is"
"""How `diverged` begins where the last evaluation gave one answer to everything."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The seeds together: mean, deviation and 95 % interval of the score over those that did not diverge."""

    metric: str
    mean: float
    deviation: float
    interval: tuple[float, float] | None
    num_diverged: int
    seeds: list[SeedResult]


def read_seed(folder: Path) -> SeedResult | None:
    """Return the result of a finished seed, or None."""
    path = folder / "result.json"
    if not path.exists():
        return None
    with reading(path, "Delete it, and the command of the run trains this seed again."):
        values = read_sealed(path)
        verdicts = {name: values.get(name) for name in ("diverged", "undertrained")}
        result = SeedResult(**(_numbers(values) | verdicts))
        check_fields(result)
        if len(result.mix_weights) > 1 and len(result.mix_layers) != len(result.mix_weights):
            raise ValueError("its mix has more layers than weights, or fewer")
        return result


def _numbers(value: Any) -> Any:
    """Turn null back into NaN, which it stands for in a file."""
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return math.nan if value is None else value


def write_result(path: Path, result: SeedResult | RunResult) -> None:
    """Write a result as JSON."""
    write_sealed(path, asdict(result))
