"""A tiny model around an encoder, in the shape of GLiNER's: words that are compared with the labels that
stand in the same text.
"""

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from tests.tiny import make_config


class TokenRep(nn.Module):
    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Tagger(nn.Module):
    """The first tokens are labels, the others words; a score for every word and label."""

    def __init__(self, encoder: PreTrainedModel, num_labels: int = 2) -> None:
        super().__init__()
        width = encoder.config.hidden_size
        self.token_rep, self.num_labels = TokenRep(encoder), num_labels
        self.words, self.labels = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden_BTD = self.token_rep(input_ids, attention_mask)
        labels_BLD, words_BWD = hidden_BTD[:, : self.num_labels], hidden_BTD[:, self.num_labels :]
        return self.words(words_BWD) @ self.labels(labels_BLD).transpose(1, 2)


def make(family: str = "bert", layers: int = 3) -> Tagger:
    torch.manual_seed(0)
    config = make_config(family)
    config.num_hidden_layers = layers
    return Tagger(AutoModel.from_config(config)).eval()


def batches(count: int, rows: int = 8) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 40, (count, rows, 9), generator=generator)
    return [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in ids]
