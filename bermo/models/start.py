"""An encoder to go on from: loaded with its masked-LM head, its dropout set, more pieces, more layers.

pieces    a new one starts as the mean of the vectors and of the biases of those that stood for it before
layers    h layers become n · h: layer i of the new ones starts as layer i mod h (Gong et al. 2019,
          "Efficient training of BERT by progressively stacking")
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PretrainedConfig, PreTrainedModel

from bermo.encoders.backbone import Loaded, create_encoder, load_encoder
from bermo.encoders.families import family_of, num_layers
from bermo.errors import BermoError
from bermo.models.config import BermoConfig, mix_options
from bermo.models.tasks import BermoForMaskedLM
from bermo.nn.heads import MaskedHead

DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
)
"""The names under which the families keep their dropout."""
Cuts = Mapping[int, tuple[int, ...]]
"""The ids of new pieces, and of those that stood for each before."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What changes of an encoder before it is trained further."""

    dropout: float = 0.0
    layers: int | None = None
    """A multiple of its layers: they are stacked."""
    cuts: Cuts = field(default_factory=dict)


def start_masked(source: str, start: Start) -> BermoForMaskedLM:
    """Load an encoder to go on from, with its masked-LM head, or one drawn from torch's generator."""
    loaded = load_encoder(source, with_head=True)
    if start.layers is not None:
        check_layers(loaded.encoder.config, source, start.layers)
    return _started(loaded, start)


def start_generator(source: str, start: Start) -> BermoForMaskedLM:
    """Load the lower half of an encoder's layers with its masked-LM head, to draw words for ELECTRA.

    Layers that share their weights, or are of several kinds, cannot be left out: then it is all of them.
    """
    loaded = load_encoder(source, with_head=True)
    config = loaded.encoder.config
    layers = start.layers or num_layers(config) - 1
    return _started(loaded, replace(start, layers=max(1, layers // 2)) if _are_alike(config) else start)


def _started(loaded: Loaded, start: Start) -> BermoForMaskedLM:
    """Build the masked LM of a loaded encoder anew, with what changes of it."""
    if start.cuts:
        loaded = _with_pieces(loaded, start.cuts)
    state, config = loaded.encoder.state_dict(), loaded.encoder.config
    if start.layers is not None:
        state = _stacked(loaded.encoder, start.layers)
        config.num_hidden_layers = start.layers
    set_dropouts_(config, dict.fromkeys(dropouts_of(config), start.dropout))
    # Built again, since a loaded one has its dropout inside its modules.
    encoder = create_encoder(config)
    encoder.load_state_dict(state)
    model = BermoForMaskedLM(BermoConfig(encoder.config, mix_options(None)), encoder)
    with torch.no_grad():
        model._adopt_(loaded)
    _freeze_foreign_biases_(model)
    return model


def check_layers(config: PretrainedConfig, name: str, layers: int) -> None:
    """Refuse layers that cannot be stacked to so many: no multiple, shared ones, or of several kinds."""
    own = num_layers(config) - 1
    if not _are_alike(config):
        raise BermoError(
            f"The layers of {name} ({config.model_type}) share their weights or are of several kinds, so they"
            " cannot be stacked. Leave --layers out."
        )
    if layers % own:
        raise BermoError(
            f"{name} has {own} layers, which cannot be stacked to {layers}. Give a multiple of {own} with"
            " --layers, or leave it out."
        )


def _are_alike(config: PretrainedConfig) -> bool:
    """Tell whether each layer has weights of its own, in the same places."""
    return "*" not in family_of(config).layers.path and not getattr(config, "layer_types", None)


def _stacked(encoder: PreTrainedModel, layers: int) -> dict[str, Tensor]:
    """Return an encoder's weights with its layers copied on top of each other, layer i of it to i + L; of
    fewer layers than it has, the lowest.
    """
    own, path = num_layers(encoder.config) - 1, family_of(encoder.config).layers.path
    inside = re.compile(rf"{re.escape(path)}\.(\d+)\.(.+)")
    stacked: dict[str, Tensor] = {}
    for key, weight in encoder.state_dict().items():
        match = inside.fullmatch(key)
        if match is None:
            stacked[key] = weight
            continue
        for index in range(int(match[1]), layers, own):
            stacked[f"{path}.{index}.{match[2]}"] = weight
    return stacked


@torch.no_grad()
def _with_pieces(loaded: Loaded, cuts: Cuts) -> Loaded:
    """Give an encoder, in place, and its masked-LM head the vectors and biases of new pieces."""
    encoder = loaded.encoder
    size = max(encoder.config.vocab_size, max(cuts) + 1)
    encoder.resize_token_embeddings(size, mean_resizing=False)
    table = cast(nn.Embedding, encoder.get_input_embeddings()).weight
    head = None if loaded.head is None else dict(loaded.head)
    if head is not None:
        bias = head["decoder.bias"]
        head["decoder.bias"] = torch.cat([bias, bias.new_zeros(size - len(bias))])
    for new, before in cuts.items():
        table[new] = table[list(before)].mean(0)
        if head is not None:
            head["decoder.bias"][new] = head["decoder.bias"][list(before)].mean()
    return replace(loaded, head=head)


def _freeze_foreign_biases_(model: BermoForMaskedLM) -> None:
    """Keep biases of our head at zero that the family's own head lacks (ModernBERT), to save it."""
    config = model.core.backbone.config
    if family_of(config).masked_head is None:
        return
    with torch.device("meta"):
        whole = AutoModelForMaskedLM.from_config(copy.deepcopy(config))
    for theirs, own in head_modules(whole, model.head):
        if theirs.bias is None:
            own.bias.requires_grad_(False).zero_()


def head_modules(whole: PreTrainedModel, head: MaskedHead) -> list[tuple[Any, Any]]:
    """Pair the parts of a family's own masked-LM head with those of ours."""
    parts = family_of(whole.config).masked_head
    assert parts is not None
    return [(whole.get_submodule(parts.dense), head.dense), (whole.get_submodule(parts.norm), head.norm)]


def dropouts_of(config: PretrainedConfig) -> dict[str, float]:
    """Return the probabilities of dropout in a config, by the family's own names."""
    return {name: getattr(config, name) for name in DROPOUTS if hasattr(config, name)}


def set_dropouts_(config: PretrainedConfig, values: Mapping[str, float]) -> None:
    """Set probabilities of dropout in a config."""
    for name, value in values.items():
        setattr(config, name, value)
