"""The shape of an encoder whose layers differ from what its family's config can say, as its config keeps it.

What a layer has left of its heads and neurons, and which of its matrices are two factors of low rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import PretrainedConfig

WIDTHS = ("intermediate_size", "hidden_dim", "d_inner")
"""How configs call the neurons of a layer."""


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """What a layer has left: which of its first heads, and how many neurons in each feed-forward part; and
    the rank of each matrix that is two factors, by its path.
    """

    heads: tuple[int, ...]
    neurons: tuple[int, ...]
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Structure:
    """The shape of every distinct layer of an encoder, and whether its final norm is still there."""

    layers: tuple[LayerShape, ...]
    has_final_norm: bool = True
    embedding_rank: int | None = None
    """The rank of the table of words; None where it is whole."""

    @property
    def has_factors(self) -> bool:
        """Whether some matrix is two factors of low rank."""
        return self.embedding_rank is not None or any(shape.ranks for shape in self.layers)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Structure":
        """Read what a config holds."""
        shapes = (
            LayerShape(
                heads=tuple(shape["heads"]),
                neurons=tuple(shape["neurons"]),
                ranks=dict(shape.get("ranks", {})),
            )
            for shape in values["layers"]
        )
        return Structure(
            layers=tuple(shapes),
            has_final_norm=values["has_final_norm"],
            embedding_rank=values.get("embedding_rank"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a config; ranks are there only where something has one."""
        shapes = [
            {"heads": shape.heads, "neurons": shape.neurons}
            | ({"ranks": dict(shape.ranks)} if shape.ranks else {})
            for shape in self.layers
        ]
        rank = {} if self.embedding_rank is None else {"embedding_rank": self.embedding_rank}
        return {"layers": tuple(shapes), "has_final_norm": self.has_final_norm} | rank


def is_stock(config: PretrainedConfig, structure: Mapping[str, Any] | None) -> bool:
    """Tell whether a recorded shape is the one that the encoder's own config says."""
    if structure is None:
        return True
    known, heads = Structure.from_dict(structure), tuple(range(int(config.num_attention_heads)))
    widths = {getattr(config, name, None) for name in WIDTHS}
    is_even = all(shape.heads == heads and set(shape.neurons) <= widths for shape in known.layers)
    return is_even and known.has_final_norm and not known.has_factors
