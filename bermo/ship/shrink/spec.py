"""How a model is shrunk without training: how much is kept, and the data that decides it (without torch)."""

from dataclasses import dataclass

from bermo.choices import DEVICE_HELP, Device, device_rules
from bermo.errors import BermoError
from bermo.fields import Rules, check, option
from bermo.method_spec import whole_rank

READ_SHARE = 0.001
"""Top layers are deleted that together have at most this share of the mix (see `delete.py`)."""


@dataclass(frozen=True, kw_only=True)
class FisherSpec:
    """How much is kept, a share of the weights or a speed-up on this machine, and the data that decides it.

    Data that is not given is the run's own.
    """

    density: float | None = option(None, "share of the weights that is kept", over=0, most=1)
    speedup: float | None = option(None, "how many times faster, by times measured on this machine", least=1)
    folder: str | None = option(
        None, "the folder with the named task's files; default: the run's data", "data", metavar="FOLDER"
    )
    train: str | None = option(None, "your training file; default: the run's", metavar="FILE")
    valid: str | None = option(None, "your validation file; default: the run's", metavar="FILE")
    examples: int = option(2048, "training rows to learn from", least=1)
    batch_size: int = option(32, "rows at a time, and in the timing", least=1)
    length: int = option(128, "tokens of a text in the timing", least=1)
    device: Device = option("auto", DEVICE_HELP)

    def rules(self) -> Rules:
        return device_rules(self.device)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Which matrices become two factors of low rank, by their singular values."""

    low_rank: float | None = option(
        None,
        "the layers' matrices become two factors of this rank, or of this share of their numbers if under 1",
        over=0,
    )
    embedding_rank: float | None = option(
        None,
        "the table of words becomes two factors, so many numbers a word and one matrix; a share if under 1",
        over=0,
    )

    def rules(self) -> Rules:
        return [whole_rank("low-rank", self.low_rank), whole_rank("embedding-rank", self.embedding_rank)]


def check_fisher(spec: FisherSpec) -> None:
    """Refuse a search without a goal, with two, or with a value out of bounds."""
    if (spec.density is None) == (spec.speedup is None):
        raise BermoError("--fisher takes --density (the share kept) or --speedup, one of the two.")
    check(spec)
