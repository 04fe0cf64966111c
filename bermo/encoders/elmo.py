"""ELMo as a model of transformers: its config, its encoder, and their names for the Auto classes.

    h_0 = [x; x]          the words read by their characters, once for each direction
    h_j = [h→_j; h←_j]    what the LSTMs of layer j say, forwards and backwards

Every token has the vectors of its word, so that the first piece of a word stands for it as elsewhere. Each
row starts from empty cells: nothing is remembered from the row before.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from bermo.errors import BermoError
from bermo.nn.bilm import BothWays, CharacterWords, Highway
from bermo.nn.spelling import Spelling


class ElmoConfig(PretrainedConfig):
    """The sizes of a biLM; the released ones have 2 layers of 1,024, 2,048 or 4,096 cells."""

    model_type = "elmo"

    def __init__(
        self,
        vocab_size: int = 8192,
        filters: Sequence[Sequence[int]] = ((1, 32), (2, 32), (3, 64), (4, 128)),
        character_size: int = 16,
        max_characters: int = 50,
        num_highways: int = 1,
        cells: int = 512,
        projection_size: int = 112,
        num_hidden_layers: int = 2,
        cell_clip: float = 3.0,
        projection_clip: float = 3.0,
        skips: bool = True,
        dropout: float = 0.1,
        pad_token_id: int = 0,
        **kwargs: Any,
    ) -> None:
        self.vocab_size, self.max_characters = vocab_size, max_characters
        self.filters = [list(kind) for kind in filters]
        self.character_size, self.num_highways = character_size, num_highways
        self.cells, self.projection_size, self.num_hidden_layers = cells, projection_size, num_hidden_layers
        self.cell_clip, self.projection_clip, self.skips = cell_clip, projection_clip, skips
        self.dropout = dropout
        self.hidden_size = 2 * projection_size
        super().__init__(**{"tie_word_embeddings": False, **kwargs, "pad_token_id": pad_token_id})


class ElmoModel(PreTrainedModel):
    """Characters, highways, and layers of LSTMs both ways."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    config: ElmoConfig

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.spelling = Spelling(config.vocab_size, config.max_characters)
        self.words = CharacterWords(
            config.character_size,
            [(width, count) for width, count in config.filters],
            config.num_highways,
            config.projection_size,
        )
        clips = (config.cell_clip, config.projection_clip)
        self.layers = nn.ModuleList(
            BothWays(config.projection_size, config.cells, *clips, config.skips and index > 0)
            for index in range(config.num_hidden_layers)
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Return the last layer's vectors of the tokens, and with `output_hidden_states` all layers'."""
        if output_attentions:
            raise BermoError("ELMo has no attention. Ask for its layers alone.")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        words = self.spelling.words(input_ids, mask)
        vectors = self.words(self.spelling(input_ids, mask, words))
        layers = [words.spread(torch.cat([vectors, vectors], dim=-1))]
        for layer in self.layers:
            layers.append(layer(layers[-1], words, self.config.dropout))
        wants_layers = (
            self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        )
        hidden: Any = tuple(layers) if wants_layers else None
        outputs = BaseModelOutput(last_hidden_state=layers[-1], hidden_states=hidden)  # type: ignore[arg-type]
        return outputs if return_dict is not False else outputs.to_tuple()

    def get_input_embeddings(self) -> nn.Module:
        raise BermoError(
            "ELMo has no table of word vectors, since it reads words by their characters. Choose another"
            " encoder for what changes or reads such a table."
        )

    def _init_weights(self, module: nn.Module) -> None:
        match module:
            case BothWays() | Highway() | Spelling():
                module.reset_parameters()
            case nn.Linear() | nn.Conv1d():
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
            case nn.Embedding():
                nn.init.uniform_(module.weight, -1.0, 1.0)


AutoConfig.register(ElmoConfig.model_type, ElmoConfig, exist_ok=True)
AutoModel.register(ElmoConfig, ElmoModel, exist_ok=True)
