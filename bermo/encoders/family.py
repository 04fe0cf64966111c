"""The facts that bermo must know of a family of encoders, as types; the entries are in `families.py`.

Paths are names of submodules, joined by dots. Those of `Layers`, `MaskedHeadPaths` and `Anatomy.final_norm`
start at the encoder, or at the model with a head; all others start at one layer. A star stands for every
child.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bermo.spec import Pooling


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Where the layers are, and how hooks read what enters them."""

    path: str = "encoder.layer"
    embeddings: tuple[str, ...] = ("embeddings",)
    """Modules that turn ids into the input of the first layer."""
    is_time_first: bool = False
    """The layers take (T, B, D) in place of (B, T, D)."""
    num_streams: int = 1
    """How many tensors a layer hands on to the next one; the second may be missing."""
    collector: str | None = None
    """A module that keeps the outputs of all layers even when they are not asked for."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a call of the encoder takes."""

    has_segments: bool = True
    """Takes token_type_ids, if its config also has more than one segment."""
    is_decoder: bool = False
    """Reads from left to right only, and takes position_ids."""
    reads_neighbours: bool = False
    """The embeddings read the tokens beside each one, so padding must be set to zero first."""
    has_float_mask: bool = False
    """Subtracts its mask from 1.0, which ONNX allows for floating-point masks only."""
    first_position: int | None = 0
    """The position of a text's first token; None: the id of the padding token + 1."""
    has_last_position: bool = True
    """Learns a vector for each position, so that a text cannot be longer than they are."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of every call."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """How the family chooses its attention function."""

    implementation: str | None = None
    """The implementation to load where the default would unpad the batch and lose its shape."""
    uses_registry: bool = True
    """Calls attention through transformers' registry, so that it can be seen and changed."""
    reads_whole_table: bool = False
    """Reads the whole table of position vectors in each layer, so that tables cannot be stacked."""


@dataclass(frozen=True, kw_only=True)
class Units:
    """The heads or the neurons of a layer: the matrices that feed them, and the matrix that reads them."""

    inputs: tuple[str, ...]
    output: str
    parts: int = 1
    """How many parts one feeding matrix holds: 3 for queries, keys and values, 2 for input and gate."""
    is_interleaved: bool = False
    """The parts of one unit stand together, unit by unit."""


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """Where a layer keeps its heads and neurons, so that some can be taken out."""

    core: str
    """The module that computes attention."""
    heads: Units
    neurons: tuple[Units, ...]
    """In the order in which they compute."""
    head_size: str = "attention_head_size"
    """The attribute of the core that holds the size of a head."""
    head_counts: tuple[str, ...] = ("num_attention_heads",)
    """Attributes of the core that hold the number of heads."""
    widths: tuple[str, ...] = ("all_head_size",)
    """Attributes of the core that hold heads × size."""
    head_vectors: tuple[str, ...] = ()
    """Bare parameters of the core with one part for each head, which are never pruned."""
    norm: str | None = None
    """The norm inside the core, where the core itself adds its input and normalises."""
    has_bias_of_heads: bool = False
    """The encoder computes one position bias for each head, and gives it to all layers."""
    final_norm: str | None = None
    """The norm behind the last layer."""


@dataclass(frozen=True, kw_only=True)
class Projections:
    """The modules that give queries, keys and values (B, T, D): three, or one with all three side by side."""

    paths: tuple[str, ...]
    are_fused: bool = True
    """On a GPU, training computes three Linear layers that read one tensor as one product."""


@dataclass(frozen=True, kw_only=True)
class MaskedHeadPaths:
    """Where the masked-LM head keeps its parts: dense, activation, norm, and a decoder tied to the words."""

    dense: str
    norm: str
    bias: str


@dataclass(frozen=True, kw_only=True)
class Export:
    """How the family is written as ONNX."""

    opset: int = 23
    """From 23 on, attention and GELU are one node each, which onnxruntime runs faster."""
    can_cut_top: bool = False
    """The last layer can be computed for the one token that a head reads (`bermo.ship.export.top`)."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Everything that bermo knows of one family of encoders."""

    pooling: Pooling = "first"
    """The token whose vector stands for a text, or the mean of all of them."""
    layers: Layers = Layers()
    inputs: Inputs = field(default_factory=Inputs)
    attention: Attention = Attention()
    anatomy: Anatomy | None
    """None where there are no heads and neurons that could be taken out."""
    bare_matrices: tuple[str, ...] = ()
    """Matrices of a layer that are parameters of a larger module, not of a Linear layer of their own."""
    projections: Projections | None = None
    masked_head: MaskedHeadPaths | None = None
    export: Export = Export()
