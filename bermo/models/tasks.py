"""Backbone -> layer mix -> head, for each kind of task; registered with the Auto classes on import.

    sequence classification and regression, one text or a pair    token classification
    span question answering    multiple choice    masked LM

All take what their transformers namesakes take, return the same typed outputs, and are built with
`from_backbone` or loaded with `from_pretrained`.
"""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from bermo.encoders import families
from bermo.encoders.backbone import Loaded
from bermo.encoders.trust import config_of
from bermo.encoders.where import resolve
from bermo.errors import BermoError
from bermo.models.config import BermoConfig, encoder_config
from bermo.models.encoder import BermoModel, BermoPreTrainedModel
from bermo.models.reading import encode, flat_pairs, pool_texts, rest_of, returned
from bermo.nn.heads import (
    MaskedHead,
    PairHead,
    PooledHead,
    TokenHead,
    pair_features,
    span_loss,
    text_loss,
    token_loss,
)


class BermoForSequenceClassification(BermoPreTrainedModel):
    """One label, one value, or several labels for a text or a pair of texts.

    With `pairs="apart"` in its config the encoder reads the two texts of a pair each by itself.

        >>> model = bermo.BermoForSequenceClassification.from_backbone("box", num_labels=3)
        >>> model(input_ids=torch.tensor([[2, 300, 3]])).logits.shape
        torch.Size([1, 3])
    """

    def __init__(self, config: BermoConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.bermo = BermoModel(config, backbone)
        self.head = _text_head(self.bermo, cast(int, config.num_labels))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        """Return (B, C) logits, and the loss where labels are given; pairs read apart are (B, 2, T)."""
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        is_apart = self.config.pairs == "apart"
        inputs = flat_pairs(given) if is_apart else given
        read, outputs = pool_texts(self.bermo, inputs, output_hidden_states, output_attentions)
        if is_apart:
            read = pair_features(*read.unflatten(0, (-1, 2)).unbind(1))
        logits = self.head(read)
        loss = None if labels is None else text_loss(logits, labels, self.config.problem_type)
        result = SequenceClassifierOutput(logits=logits, **rest_of(outputs, loss))
        return returned(self, result, return_dict)

    def loss_of(self, outputs: Any, labels: Tensor) -> Tensor:
        """The loss of outputs that were made without labels."""
        return text_loss(outputs.logits, labels, self.config.problem_type)

    def _adopt_(self, loaded: Loaded) -> None:
        if isinstance(self.head, PooledHead):
            _adopt_pooler_(self.head, loaded)


class BermoForMultipleChoice(BermoPreTrainedModel):
    """Which of several endings: each is read with the question, and their scores compete.

    >>> model = bermo.BermoForMultipleChoice.from_backbone("box")
    >>> four_endings = torch.tensor([[[2, 300, 3]] * 4])
    >>> model(input_ids=four_endings).logits.shape
    torch.Size([1, 4])
    """

    def __init__(self, config: BermoConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.bermo = BermoModel(config, backbone)
        self.head = _pooled_head(self.bermo, num_labels=1)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> MultipleChoiceModelOutput | tuple[Any, ...]:
        """Take (B, C, T) inputs; return (B, C) logits, and the loss where labels are given."""
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        shape = cast(Tensor, inputs_embeds if input_ids is None else input_ids).shape
        inputs = tuple(None if value is None else value.flatten(0, 1) for value in given)
        pooled, outputs = pool_texts(self.bermo, inputs, output_hidden_states, output_attentions)
        logits = self.head(pooled).view(shape[:2])
        loss = None if labels is None else text_loss(logits, labels, "single_label_classification")
        result = MultipleChoiceModelOutput(logits=logits, **rest_of(outputs, loss))
        return returned(self, result, return_dict)

    def loss_of(self, outputs: Any, labels: Tensor) -> Tensor:
        """The loss of outputs that were made without labels."""
        return text_loss(outputs.logits, labels, "single_label_classification")

    def _adopt_(self, loaded: Loaded) -> None:
        _adopt_pooler_(self.head, loaded)


class BermoForTokenClassification(BermoPreTrainedModel):
    """One label for each token; labels of −100 are not learned.

    >>> model = bermo.BermoForTokenClassification.from_backbone("box", num_labels=5)
    >>> model(input_ids=torch.tensor([[2, 300, 3]])).logits.shape
    torch.Size([1, 3, 5])
    """

    def __init__(self, config: BermoConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.bermo = BermoModel(config, backbone)
        self.head = TokenHead(self.bermo.output_size, cast(int, config.num_labels), config.head_dropout)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> TokenClassifierOutput | tuple[Any, ...]:
        """Return (B, T, C) logits, and the loss where labels are given."""
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = encode(self.bermo, inputs, output_hidden_states, output_attentions)
        logits = self.head(outputs.last_hidden_state)
        loss = None if labels is None else token_loss(logits, labels)
        result = TokenClassifierOutput(logits=logits, **rest_of(outputs, loss))
        return returned(self, result, return_dict)

    def loss_of(self, outputs: Any, labels: Tensor) -> Tensor:
        """The loss of outputs that were made without labels."""
        return token_loss(outputs.logits, labels)


class BermoForQuestionAnswering(BermoPreTrainedModel):
    """Where an answer starts and ends in the passage.

    >>> model = bermo.BermoForQuestionAnswering.from_backbone("box")
    >>> answer = model(input_ids=torch.tensor([[2, 300, 3]]))
    >>> answer.start_logits.shape, answer.end_logits.shape
    (torch.Size([1, 3]), torch.Size([1, 3]))
    """

    def __init__(self, config: BermoConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.bermo = BermoModel(config, backbone)
        self.head = TokenHead(self.bermo.output_size, 2, dropout=0.0)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> QuestionAnsweringModelOutput | tuple[Any, ...]:
        """Return (B, T) start and end logits, and the loss where both positions are given."""
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = encode(self.bermo, inputs, output_hidden_states, output_attentions)
        logits = self.head(outputs.last_hidden_state)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(logits, start_positions.view(-1), end_positions.view(-1))
        start, end = logits.unbind(-1)
        result = QuestionAnsweringModelOutput(
            start_logits=start.contiguous(),
            end_logits=end.contiguous(),
            **rest_of(outputs, loss),
        )
        return returned(self, result, return_dict)

    def loss_of(self, outputs: Any, start_positions: Tensor, end_positions: Tensor) -> Tensor:
        """The loss of outputs that were made without labels."""
        logits = torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
        return span_loss(logits, start_positions.view(-1), end_positions.view(-1))


class BermoForMaskedLM(BermoPreTrainedModel):
    """Which word stood under the mask; the decoder is tied to the input embeddings.

    >>> model = bermo.BermoForMaskedLM.from_backbone("box")
    >>> model(input_ids=torch.tensor([[2, 300, 3]])).logits.shape
    torch.Size([1, 3, 8192])
    """

    reads_masked_head = True

    def __init__(self, config: BermoConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        inner = config.backbone
        if families.family_of(inner).inputs.is_decoder:
            raise BermoError(
                f"{inner.model_type} reads from left to right only and cannot look at both sides of a"
                " mask. Choose an encoder for masked LM."
            )
        self.bermo = BermoModel(config, backbone)
        embeddings = cast(nn.Embedding, self.bermo.get_input_embeddings())
        act = getattr(inner, "hidden_act", getattr(inner, "activation", "gelu"))
        eps = getattr(inner, "layer_norm_eps", getattr(inner, "norm_eps", 1e-12))
        words, size = embeddings.weight.shape
        self.head = MaskedHead(self.bermo.output_size, size, words, ACT2FN[act], eps)
        self._tied_weights_keys = {"head.decoder.weight": _name_of(self, embeddings.weight)}
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.head.decoder = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> MaskedLMOutput | tuple[Any, ...]:
        """Return (B, T, vocabulary) logits, and the loss where labels are given."""
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        outputs = encode(self.bermo, inputs, output_hidden_states, output_attentions)
        logits = self.head(outputs.last_hidden_state)
        loss = None if labels is None else token_loss(logits, labels)
        result = MaskedLMOutput(logits=logits, **rest_of(outputs, loss))
        return returned(self, result, return_dict)

    def _adopt_(self, loaded: Loaded) -> None:
        if loaded.head is not None and loaded.head["dense.weight"].shape == self.head.dense.weight.shape:
            for name, weight in loaded.head.items():
                self.head.get_parameter(name).copy_(weight)


def has_segments(name: str | Path) -> bool:
    """Tell whether a saved model, or a bare encoder, reads the segment ids of sentence pairs."""
    return families.has_segments(read_config(name))


def read_config(name: str | Path) -> PretrainedConfig:
    """Return the config of a bare encoder, or of the encoder inside a saved model."""
    return encoder_config(config_of(resolve(name)))


def _text_head(model: BermoModel, num_labels: int) -> PooledHead | PairHead:
    config = model.config
    if config.pairs == "apart":
        return PairHead(model.output_size, num_labels, config.head_dropout)
    return _pooled_head(model, num_labels)


def _pooled_head(model: BermoModel, num_labels: int) -> PooledHead:
    config = model.config
    return PooledHead(model.output_size, config.hidden_size, num_labels, config.head_dropout)


def _adopt_pooler_(head: PooledHead, loaded: Loaded) -> None:
    """Start the dense layer from the checkpoint's pooler, where it has one and its shape fits."""
    if loaded.pooler is not None and loaded.pooler["weight"].shape == head.dense.weight.shape:
        head.dense.weight.copy_(loaded.pooler["weight"])
        head.dense.bias.copy_(loaded.pooler["bias"])


def _name_of(model: nn.Module, weight: Tensor) -> str:
    return next(name for name, parameter in model.named_parameters() if parameter is weight)


AutoConfig.register("bermo", BermoConfig, exist_ok=True)
AutoModel.register(BermoConfig, BermoModel, exist_ok=True)
AutoModelForSequenceClassification.register(BermoConfig, BermoForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(BermoConfig, BermoForTokenClassification, exist_ok=True)
AutoModelForQuestionAnswering.register(BermoConfig, BermoForQuestionAnswering, exist_ok=True)
AutoModelForMultipleChoice.register(BermoConfig, BermoForMultipleChoice, exist_ok=True)
AutoModelForMaskedLM.register(BermoConfig, BermoForMaskedLM, exist_ok=True)
