"""What is trained on bare text: a masked LM, with sentence pairs or without, ELECTRA, a biLM, XLNet.

    masked LM      which word stood at each of the K positions        BERT (Devlin et al. 2018)
    pairs          does B follow A, from the first token           BERT's NSP, ALBERT's SOP, StructBERT
    replaced       which tokens did a small generator replace      ELECTRA (Clark et al. 2020)
    neighbours     which word comes next, and which came before      ELMo (Peters et al. 2018)
    permuted       which word comes next in a random order           XLNet (Yang et al. 2019)

Only the K chosen positions of a row reach the projection to the vocabulary. Shapes are fixed, and nothing
waits for the device. Axes: B rows, T tokens, K positions, V pieces of the vocabulary.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import BertConfig, ElectraConfig, PretrainedConfig, XLNetConfig

from bermo.encoders.elmo import ElmoConfig, ElmoModel
from bermo.encoders.two_streams import freeze_segments_, guess_states
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoModel
from bermo.models.tasks import BermoForMaskedLM
from bermo.nn.heads import PooledHead, take_rows
from bermo.nn.words import TeacherMaps

GENERATOR_PART = 4  # ELECTRA's generator is a quarter as wide as the encoder that learns from it


@dataclass(frozen=True)
class Guesses:
    """What the model says of a batch: scores of the words at each position, and of what else is trained."""

    words_BKV: Tensor
    pairs_B2: Tensor | None = None
    replaced_BT: Tensor | None = None
    is_replaced_BT: Tensor | None = None
    teacher: list[Tensor] | None = None
    """Guessed vectors of a teacher: those of words in some layers, and that of the row."""


class MaskedPretraining(nn.Module):
    """An encoder, its masked-LM head at the chosen positions, and a head for sentence pairs if asked for."""

    def __init__(self, words: BermoForMaskedLM, pair_kinds: int) -> None:
        super().__init__()
        self.words = words
        size = words.config.hidden_size
        self.pairs = PooledHead(size, size, pair_kinds, dropout=0.0) if pair_kinds else None
        self.maps: TeacherMaps | None = None

    @property
    def encoder(self) -> BermoModel:
        """What is kept in the end."""
        return self.words.core

    def forward(
        self,
        input_ids: Tensor,
        places: Tensor,
        targets: Tensor,
        weights: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        own_words: Tensor | None = None,
    ) -> Guesses:
        """Return the scores of the words at the positions (B, K), of the pair, and a teacher's vectors.

        `own_words` (B, T) tells which tokens make up a word: the position of its first one.
        """
        inputs = (input_ids, attention_mask, token_type_ids)
        hidden, teacher = _read(self.encoder, self.maps, inputs, own_words)
        words_BKV = self.words.head(take_rows(hidden, places))
        pairs_B2 = None if self.pairs is None else self.pairs(hidden[:, 0])
        return Guesses(words_BKV, pairs_B2, teacher=teacher)


class ReplacedPretraining(nn.Module):
    """ELECTRA: a small generator fills the chosen positions, the encoder tells which tokens were replaced."""

    def __init__(self, generator: BermoForMaskedLM, encoder: BermoModel) -> None:
        super().__init__()
        self.generator, self.encoder = generator, encoder
        # Both read the same word vectors, and so does the generator's last layer.
        shared = cast(nn.Embedding, encoder.get_input_embeddings())
        generator.set_input_embeddings(shared)
        generator.head.decoder.weight = shared.weight
        size = encoder.config.hidden_size
        self.dense, self.out = nn.Linear(size, size), nn.Linear(size, 1)
        self.maps: TeacherMaps | None = None

    def forward(
        self,
        input_ids: Tensor,
        places: Tensor,
        targets: Tensor,
        weights: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        own_words: Tensor | None = None,
    ) -> Guesses:
        """Return the generator's scores, for each token whether it looks replaced, and a teacher's vectors.

        The encoder reads replaced tokens where the teacher reads the true ones.
        """
        hidden = self.generator.core(input_ids, attention_mask, token_type_ids).last_hidden_state
        words_BKV = self.generator.head(take_rows(hidden, places))
        drawn_BK = torch.where(weights > 0, _sample(words_BKV.detach().float()), targets)
        read_BT = input_ids.scatter(1, places, drawn_BK)
        is_replaced_BT = torch.zeros_like(input_ids).scatter(1, places, (drawn_BK != targets).long())
        hidden, teacher = _read(self.encoder, self.maps, (read_BT, attention_mask, token_type_ids), own_words)
        replaced_BT = self.out(nn.functional.gelu(self.dense(hidden))).squeeze(-1)
        return Guesses(words_BKV, None, replaced_BT, is_replaced_BT, teacher)


class NeighbourPretraining(nn.Module):
    """ELMo: the forward LSTMs guess the next word, the backward ones the one before, by one softmax."""

    def __init__(self, encoder: BermoModel) -> None:
        super().__init__()
        self.encoder = encoder
        config = encoder.config.backbone
        self.out = nn.Linear(config.projection_size, config.vocab_size)

    def forward(
        self,
        input_ids: Tensor,
        places: Tensor,
        targets: Tensor,
        weights: Tensor,
        attention_mask: Tensor | None = None,
    ) -> Guesses:
        """Return the scores of the words that are guessed: forwards at the first half of the places."""
        hidden = self.encoder(input_ids, attention_mask).last_hidden_state
        halves = zip(hidden.chunk(2, dim=-1), places.chunk(2, dim=1), strict=True)
        return Guesses(self.out(torch.cat([take_rows(half, some) for half, some in halves], dim=1)))


class PermutedPretraining(nn.Module):
    """XLNet: a token is guessed from those that are not, and from those before it in a random order."""

    def __init__(self, encoder: BermoModel) -> None:
        super().__init__()
        self.encoder = encoder
        freeze_segments_(encoder.backbone)
        self.bias = nn.Parameter(torch.zeros(encoder.config.backbone.vocab_size))

    def forward(
        self, input_ids: Tensor, places: Tensor, targets: Tensor, weights: Tensor, ranks: Tensor
    ) -> Guesses:
        """Return the scores of the words at the places; `ranks` (B, T) say which token reads which."""
        states_BKD = guess_states(self.encoder.backbone, input_ids, ranks, places, weights)
        words = cast(nn.Embedding, self.encoder.get_input_embeddings()).weight
        return Guesses(nn.functional.linear(states_BKD, words, self.bias))


Pretraining = MaskedPretraining | ReplacedPretraining | NeighbourPretraining | PermutedPretraining


def _read(
    encoder: BermoModel,
    maps: TeacherMaps | None,
    inputs: tuple[Tensor, Tensor | None, Tensor | None],
    own_words: Tensor | None,
) -> tuple[Tensor, list[Tensor] | None]:
    """Return the states of the last layer, and a teacher's vectors as guessed, if there is a teacher."""
    if maps is None or own_words is None:
        return encoder(*inputs).last_hidden_state, None
    outputs = encoder(*inputs, output_hidden_states=True)
    return outputs.last_hidden_state, maps(outputs.hidden_states, own_words)


def _sample(scores_BKV: Tensor) -> Tensor:
    """Draw a word at each position by Gumbel's trick: the largest of score + noise."""
    noise = torch.rand_like(scores_BKV).clamp(min=1e-20).log().neg().clamp(min=1e-20).log().neg()
    return (scores_BKV + noise).argmax(-1)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An encoder's numbers, for whichever family the objective needs."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    intermediate: int
    positions: int
    dropout: float
    pad: int
    inner_mix: str

    def config(self, is_electra: bool = False) -> PretrainedConfig:
        """Write the shape as a config of BERT, or of ELECTRA with word vectors as wide as its layers."""
        kind: Any = ElectraConfig if is_electra else BertConfig
        extra: dict[str, Any] = {"embedding_size": self.width} if is_electra else {}
        config: PretrainedConfig = kind(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.intermediate,
            max_position_embeddings=self.positions,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
            pad_token_id=self.pad,
            **extra,
        )
        if self.inner_mix != "none":
            config.inner_mix = self.inner_mix
        return config

    def xlnet_config(self) -> XLNetConfig:
        """Write the shape as a config of XLNet, without a memory of the row before."""
        return XLNetConfig(
            vocab_size=self.vocabulary,
            d_model=self.width,
            n_layer=self.layers,
            n_head=self.heads,
            d_inner=self.intermediate,
            dropout=self.dropout,
            pad_token_id=self.pad,
            bos_token_id=None,
            eos_token_id=None,
            mem_len=None,
            use_mems_eval=False,
        )


def build_masked(shape: Shape, pair_kinds: int) -> MaskedPretraining:
    """Build an encoder with random weights for masked LM, drawn from torch's generator."""
    return MaskedPretraining(BermoForMaskedLM.from_backbone(shape.config(), mix=None), pair_kinds)


def build_replaced(shape: Shape) -> ReplacedPretraining:
    """Build ELECTRA's two encoders with random weights; the generator is a quarter as wide."""
    config = shape.config(is_electra=True)
    encoder = BermoModel(BermoConfig(config, mix=None))
    small = copy.deepcopy(config)
    small.num_attention_heads = max(1, shape.heads // GENERATOR_PART)
    small.hidden_size = max(
        small.num_attention_heads,
        shape.width // GENERATOR_PART // small.num_attention_heads * small.num_attention_heads,
    )
    small.intermediate_size = max(1, shape.intermediate // GENERATOR_PART)
    small.inner_mix = "none"
    return ReplacedPretraining(BermoForMaskedLM.from_backbone(small, mix=None), encoder)


def build_neighbours(
    config: ElmoConfig, pieces: Sequence[Sequence[int]], kinds: Sequence[int]
) -> NeighbourPretraining:
    """Build an ELMo with random weights that spells the pieces of a vocabulary like this."""
    encoder = BermoModel(BermoConfig(config, mix=None))
    cast(ElmoModel, encoder.backbone).spelling.set_(pieces, kinds)
    return NeighbourPretraining(encoder)


def build_permuted(shape: Shape) -> PermutedPretraining:
    """Build an XLNet with random weights."""
    return PermutedPretraining(BermoModel(BermoConfig(shape.xlnet_config(), mix=None)))
