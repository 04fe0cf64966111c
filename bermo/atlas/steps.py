"""What a compression method is: a chain of commands, and what its authors published. No torch is imported.

Method = Train | Shrink | Export | Compress, one after the other, from the dense model of the same seed
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bermo.ship.runtimes.forms import FormName, Values
from bermo.spec import KeepBy

Group = Literal[
    "as it is",
    "quantisation",
    "pruning",
    "fewer layers",
    "fewer tokens",
    "low rank",
    "students",
    "chains",
    "fine-tuning",
]

Which = Literal[KeepBy, "even", "theseus"]


@dataclass(frozen=True, kw_only=True)
class Train:
    """`bermo train`: the dense run's spec with fields of its groups changed.

    A taught model starts from layers of the dense one and learns from its answers; one that is not starts
    from the encoder, as the dense one does.
    """

    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields by their group: {"prune": {"method": "magnitude", "density": 0.1}}."""
    is_taught: bool = False
    layers: float = 1.0
    """The share of the encoder's layers that the model has."""
    tied: float | None = None
    """The share of the layers that have weights of their own; the others share them (`--tie-layers`)."""
    goes_on: bool = False
    """Whether it starts from the model that the step before it made, and not from the encoder."""
    which: Which = "first"
    """The layers that a student takes from its teacher (first, even), that replace groups of the teacher's
    (theseus), or that stay of the encoder (`--keep-by`).
    """
    cost: float = 1.0
    """How long it takes beside the dense training."""


@dataclass(frozen=True, kw_only=True)
class Shrink:
    """`bermo shrink`: what is dead, or chosen by Fisher information, is deleted; so are unused words."""

    fisher: float | None = None
    """The share of the weights that the search without training keeps."""
    cuts_words: bool = False
    low_rank: float | None = None
    embedding_rank: float | None = None
    """The ranks of what becomes two factors, or shares of their numbers."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """`bermo export`: the model in the form that is shipped."""

    to: FormName = "onnx-int8"
    is_calibrated: bool = False
    keep_fp32: int = 0
    """So many matrices that int8 hurts most are computed in fp32."""
    values: Values | None = None
    """How a sparse container stores weights."""


@dataclass(frozen=True, kw_only=True)
class Compress:
    """`bermo compress`: its own choice for a wanted speed-up."""

    speedup: float = 8.0
    cost: float = 3.0


Step = Train | Shrink | Export | Compress


@dataclass(frozen=True, kw_only=True)
class Published:
    """A method's row in the literature, as its authors or a survey give it; "–" where nothing is said."""

    name: str
    on: str
    kept: str
    faster: str
    smaller: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to a smaller model."""

    name: str
    group: Group
    summary: str
    steps: tuple[Step, ...]
    published: tuple[Published, ...] = ()
    is_usual: bool = True
    """Whether it takes part where no methods are named; the others are named, or asked for with `all`."""

    needs_steps: bool = False
    """Whether a few hundred steps prune nothing: the tiny form leaves it out, unless it is named."""

    @property
    def cost(self) -> float:
        """How long its trainings take beside the dense one."""
        return sum(step.cost for step in self.steps if isinstance(step, Train | Compress))
