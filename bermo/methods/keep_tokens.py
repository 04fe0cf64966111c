"""PoWER-BERT (Goyal et al. 2020) as a method: layers learn which share of the tokens they need.

    the first quarter of the steps   all tokens
    the second                       tokens times the learned factor of their rank; penalty λ Σ_j j · mean r_j
    the last half                    each layer keeps its share of the tokens, and the weights get used to it

The paper chooses λ and takes the shares that come out; here the wanted mean share is given, and the learned
factors decide how it is divided among the layers.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.data.tasks import Kind
from bermo.encoders.sites import encoder_of
from bermo.encoders.tokens import TokenFilter, check_filter, filter_of, filter_tokens_
from bermo.errors import BermoError
from bermo.methods.fewer_tokens import check_kind
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.tokens import WHOLE, parts_of

NAME = "token_learning"
"""The submodule of a model that holds what is learned about its tokens; it is not saved with it."""
PLACES = 64
"""Factors of a layer: ranks relative to the text's length."""
PENALTY = 0.1
"""λ of the paper, 10⁻³, times its usual 128 tokens."""
SOFT_FROM, HARD_FROM = 1 / 4, 1 / 2


class TokenLearning(nn.Module):
    """The factors r, and the parts that each layer keeps once they are decided."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.soft = nn.Parameter(torch.ones(layers, PLACES))
        self.register_buffer("parts", torch.full((layers,), WHOLE))
        self.parts: Tensor


class TokenHook:
    """Turns the factors on, and later the tokens off, at steps of the training."""

    def __init__(self, model: BermoPreTrainedModel, known: TokenFilter, share: float, num_steps: int) -> None:
        self.model, self.known, self.share = model, known, share
        self.learning = TokenLearning(len(known.parts)).to(model.device)
        model.add_module(NAME, self.learning)
        self.soft_step, self.hard_step = int(SOFT_FROM * num_steps), int(HARD_FROM * num_steps)

    @property
    def rate(self) -> float:
        """A rate at which factors that only the penalty moves come near zero in their steps."""
        return max(3e-3, 0.8 / max(1, self.hard_step - self.soft_step))

    def begin(self, optimizer: Optimizer) -> None: ...

    def plan(self, step: int) -> None:
        self.known.soft = self.learning.soft if self.soft_step <= step < self.hard_step else None
        if step < self.hard_step:
            return
        if bool((self.learning.parts == WHOLE).all()):
            self.learning.parts.copy_(torch.tensor(parts_of(self.learning.soft, self.share)))
        self.known.parts = self.learning.parts.tolist()
        self.model.config.kept_tokens = self.known.parts

    def apply(self) -> None: ...

    def generators(self) -> list[torch.Generator]:
        return []

    def metrics(self) -> Mapping[str, float]:
        return {"kept_tokens": sum(self.known.parts) / WHOLE / len(self.known.parts)}

    def penalty(self) -> Tensor | float:
        """Return λ Σ_j j · mean r_j while the factors are learned."""
        if self.known.soft is None:
            return 0.0
        means_L = self.learning.soft.clamp(0, 1).mean(1)
        return PENALTY * (torch.arange(1, len(means_L) + 1, device=means_L.device) * means_L).mean()


def check_tokens(model: BermoPreTrainedModel, kind: Kind) -> None:
    """Refuse a task or a model that needs every token to the end."""
    check_kind(kind)
    check_filter(encoder_of(model))
    check_reading(model)


def check_reading(model: BermoPreTrainedModel, who: str = "--keep-tokens") -> None:
    """Refuse a head that reads tokens which may be gone."""
    if model.config.pooling != "first" or not model.mix.is_per_token:
        raise BermoError(
            f"{who} keeps the first token for sure, so the head must read that one alone, but got"
            f' pooling {model.config.pooling} and the mix "{model.config.mix["kind"]}". Add --pooling first'
            " --mix none."
        )


def start_filtering_(model: BermoPreTrainedModel, share: float, num_steps: int, kind: Kind) -> TokenHook:
    """Put filters on a model's layers, which keep all tokens at first, and return what turns them on."""
    check_tokens(model, kind)
    encoder = encoder_of(model)
    layers = encoder.config.num_hidden_layers
    known = filter_of(encoder) or filter_tokens_(encoder, [WHOLE] * layers)
    known.parts = [WHOLE] * layers
    return TokenHook(model, known, share, num_steps)
