"""Any model of transformers with the words of some texts only: encoders, models with a head, masked models.

    cut_vocabulary(model, tokenizer, texts) -> (a smaller model, its tokenizer)

A model of the same class is built with fewer words, and every tensor of the old one that has a row for each
word gives it the rows of those that stay: the embeddings, a head tied to them, its bias. All other tensors
are the same. For the texts given the hidden states are the same to the bit.
"""

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from torch import nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from bermo.encoders.backbone import load_tokenizer
from bermo.encoders.failures import loading
from bermo.encoders.sentence import is_sentence_folder
from bermo.encoders.trust import ONLY_TENSORS, check_finite, check_loaded, check_weights, config_of
from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.progress import Display
from bermo.ship.shrink.vocabulary import VocabularyCut, cut_tokenizer, plan_cut, renumber_tokens_

M = TypeVar("M", bound=PreTrainedModel)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A model of transformers' own class with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def is_plain(folder: Path) -> bool:
    """Tell whether a folder holds a model of transformers' own, which is neither of bermo's classes nor a
    sentence encoder.
    """
    return not isinstance(config_of(folder), BermoConfig) and not is_sentence_folder(folder)


def load_plain(folder: Path) -> Plain:
    """Load a model as the class that its config names, in the precision that it is stored in."""
    config = config_of(folder)
    name = next(iter(config.architectures or ()), "")
    known: Any = getattr(transformers, name, None)
    if not (isinstance(known, type) and issubclass(known, PreTrainedModel)):
        known = AutoModel
    check_weights(folder)
    with loading("weights", folder):
        model, report = known.from_pretrained(folder, dtype="auto", output_loading_info=True, **ONLY_TENSORS)
    missing = set(report["missing_keys"])
    if missing and all(key.startswith("pooler.") for key in missing):
        # A bare encoder that was saved without its pooler: the hidden states do not depend on one.
        model.pooler = None
        missing.clear()
    check_loaded(folder, missing)
    check_finite(folder, model)
    return Plain(model=model.eval(), tokenizer=load_tokenizer(folder))


def cut_vocabulary(
    model: M, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], display: Display | None = None
) -> tuple[M, PreTrainedTokenizerBase]:
    """Return a copy of a model of transformers, and of its tokenizer, with the words of some texts only.

    Special tokens and all single letters or bytes stay, so other texts are cut into smaller pieces. For the
    texts given the tokens are the same with other numbers, and the hidden states the same to the bit.

        >>> encoder = bermo.load_encoder("box")
        >>> small, tokenizer = bermo.cut_vocabulary(encoder.backbone, encoder.tokenizer, ["a fine film"])
        >>> len(tokenizer) < len(encoder.tokenizer)
        True
    """
    cut = plan_cut(tokenizer, model.config, texts, display)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        small = cut_tokenizer(tokenizer, cut, Path(folder), texts)
    return with_words(model, cut), small


@torch.no_grad()
def with_words(model: M, cut: VocabularyCut) -> M:
    """Return a copy of a model that has the rows of the words that stay."""
    config: Any = copy.deepcopy(model.config)
    old_size = int(config.vocab_size)
    if max(cut.ids) >= old_size:
        raise BermoError(
            f"The tokenizer has a token with the number {max(cut.ids)}, but the model only {old_size} words."
            " Give the tokenizer that belongs to the model."
        )
    config.vocab_size = len(cut.ids)
    renumber_tokens_(config, cut)
    small = type(model)(config).to(model.dtype)  # type: ignore[arg-type]
    leave_out_(small, model)
    rows, wanted = torch.tensor(cut.ids), small.state_dict()
    state = {name: _rows(tensor, wanted[name], rows) for name, tensor in model.state_dict().items()}
    small.load_state_dict(state)
    small.train(model.training)
    return small.to(model.device)


def leave_out_(model: nn.Module, known: nn.Module) -> None:
    """Take the parts out of a new model, in place, that the known one lacks, such as a pooler."""
    for name, _ in list(model.named_children()):
        if getattr(known, name, None) is None:
            setattr(model, name, None)


def _rows(tensor: torch.Tensor, wanted: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.shape == wanted.shape else tensor[rows.to(tensor.device)]
