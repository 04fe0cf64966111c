"""An encoder to be read: the box, a backbone, a saved model of bermo's, or the model of a run."""

import copy
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bermo.data.features import fingerprint
from bermo.encoders import backbone
from bermo.encoders.families import family_of, num_layers
from bermo.encoders.tokens import filter_of
from bermo.errors import BermoError
from bermo.files import reading
from bermo.models.tasks import BermoModel
from bermo.nn.mix import Mix
from bermo.runs.model_files import check_has_layers, resolve_model
from bermo.spec import Pooling


def check_encoder(encoder: object) -> None:
    """Refuse a name, a folder or a model in place of an encoder."""
    if not isinstance(encoder, Encoder):
        name = repr(str(encoder)) if isinstance(encoder, str | Path) else ""
        raise BermoError(
            f"encoder is {name or f'of type {type(encoder).__name__}'}, but an opened encoder was expected."
            f" Pass bermo.load_encoder({name or 'name or folder'})."
        )


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """An encoder to be read: its layers, its trained mix where it has one, its tokenizer; in eval mode."""

    name: str
    backbone: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    mix: Mix | None = None

    @property
    def num_layers(self) -> int:
        """How many layers there are to read: h_0 … h_L."""
        return num_layers(self.backbone.config)

    @property
    def hidden_size(self) -> int:
        """Units of a layer's vectors."""
        return int(self.backbone.config.hidden_size)

    @property
    def pooling(self) -> Pooling:
        """The token that speaks for a text in this family, or the mean of all."""
        return family_of(self.backbone.config).pooling

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.backbone.parameters()).device

    @cached_property
    def fingerprint(self) -> str:
        """A name of everything that decides its vectors: config, weights, mix and tokenizer."""
        config = self.backbone.config.to_dict()
        for machine in ("_name_or_path", "transformers_version"):
            config.pop(machine, None)
        total = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
        total.update(fingerprint(self.tokenizer).encode())
        modules = (self.backbone,) if self.mix is None else (self.backbone, self.mix)
        for module in modules:
            for name, value in sorted(module.state_dict().items()):
                total.update(name.encode())
                total.update(value.detach().cpu().contiguous().numpy().data)
        return total.hexdigest()


def load_encoder(
    name: str | Path,
    *,
    device: str | None = None,
    untrained_seed: int | None = None,
    lowercase: Literal["off"] | None = None,
) -> Encoder:
    """Load a backbone by name or folder, the box, a saved model of bermo's, or the model of a run.

    With `untrained_seed`, the same shape with random weights.

        >>> bermo.load_encoder("box").num_layers  # with the embeddings
        7
    """
    folder = resolve_model(name)
    check_has_layers(folder)
    tokenizer = backbone.load_tokenizer(folder, lowercase)
    if not tokenizer.is_fast:
        raise BermoError(f'The tokenizer of "{name}" is slow. Put a tokenizer.json beside it.')
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(untrained_seed or 0)
        encoder, mix = _load(folder)
        if filter_of(encoder) is not None:
            raise BermoError(
                f"{name} hands on fewer tokens from layer to layer (--keep-tokens), so its layers cannot be"
                " read token by token. Read the encoder that it was made from."
            )
        if untrained_seed is not None:
            # Buffers are nothing that is learned: ELMo's say how its pieces are spelled.
            known = dict(encoder.named_buffers())
            encoder, mix = backbone.create_encoder(copy.deepcopy(encoder.config)), None
            encoder.load_state_dict({k: known[k] for k in encoder.state_dict() if k in known}, strict=False)
    backbone.limit_length_(tokenizer, encoder.config)
    target = device or ("cuda" if torch.cuda.is_available() else "cpu")
    for module in (encoder,) if mix is None else (encoder, mix):
        module.eval().requires_grad_(False).to(target)
    return Encoder(name=Path(str(name)).name, backbone=encoder, tokenizer=tokenizer, mix=mix)


def _load(folder: str) -> tuple[PreTrainedModel, Mix | None]:
    if not _is_bermo(folder):
        return backbone.load_encoder(folder).encoder, None
    model: BermoModel = BermoModel.from_pretrained(folder, dtype=torch.float32)
    return model.backbone, None if model.config.mix["kind"] == "none" else model.layer_mix


def _is_bermo(folder: str) -> bool:
    path = Path(folder) / "config.json"
    if not path.exists():
        return False
    with reading(path, "Copy the model's folder anew."):
        return bool(json.loads(path.read_text(encoding="utf-8")).get("model_type") == "bermo")
