"""A sentence encoder: backbone -> layer mix -> pooling -> the first units -> length 1.

    v = p / ‖p‖,  p = pool(mix(h_0 … h_L))[:dimension]

A model without a mix of its own, in a shape that its family's config can say, is saved as a folder of
sentence-transformers, which loads there without bermo; any other is saved as all models of bermo's are.

Losses: ‖cos(a, b) − label‖² of pairs with a number; without numbers, each first text finds its own second
one among those of the batch (van den Oord et al. 2018; Henderson et al. 2017).

Axes: B rows, C texts of a row, T tokens, D units of a vector.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from bermo.encoders.backbone import EncoderName
from bermo.encoders.pooling import trained_pooling
from bermo.encoders.sentence import SentenceSettings, is_sentence_folder, read_settings, write_settings
from bermo.encoders.shape import is_stock
from bermo.encoders.trust import config_of
from bermo.files import share_tensors_, write_text
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoModel, BermoPreTrainedModel, model_card
from bermo.models.reading import pool_texts, rest_of, returned
from bermo.nn.heads import masked_mean, pooled_rows, take_rows
from bermo.nn.masked import INSIDE
from bermo.sums import SUMS_FILE

SHARPNESS = 20.0
"""1 / temperature of the contrast, as sentence-transformers has it."""
PREFIX = "bermo.backbone."


class BermoForSentenceEmbedding(BermoPreTrainedModel):
    """One vector for a text; `config.sentence` holds the fields of SentenceSettings but the pooling.

    >>> model = bermo.BermoForSentenceEmbedding.from_backbone("box", mix="none", pooling="mean")
    >>> model(input_ids=torch.tensor([[2, 300, 3]])).logits.shape
    torch.Size([1, 224])
    """

    def __init__(self, config: BermoConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        if getattr(config, "sentence", None) is None:
            config.sentence = options_of(SentenceSettings())
        self.bermo = BermoModel(config, backbone)
        self.post_init()

    @classmethod
    def from_settings(cls, source: EncoderName, settings: SentenceSettings) -> Self:
        """Make a sentence encoder of a plain encoder, without a mix."""
        sentence = options_of(settings)
        return cls.from_backbone(source, mix="none", pooling=settings.pooling, sentence=sentence)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path | None, *args: Any, **kwargs: Any
    ) -> Any:
        """Load a folder of sentence-transformers, one that bermo saved, or any encoder.

        An encoder whose folder does not say how it is pooled gives the mean of its last layer.
        """
        name = pretrained_model_name_or_path
        assert name is not None, "a sentence encoder is loaded from a folder"
        config = config_of(str(name))
        if isinstance(config, BermoConfig) and getattr(config, "sentence", None) is not None:
            return super().from_pretrained(name, *args, **kwargs)
        if isinstance(config, BermoConfig):
            model = cls._from_core(BermoModel.from_pretrained(name, dtype=torch.float32))
        else:
            model = cls.from_settings(name, settings_of(name))
        model = model.to(kwargs.get("dtype", torch.float32))
        report: dict[str, list[str]] = {"missing_keys": [], "unexpected_keys": []}
        return (model, report) if kwargs.get("output_loading_info") else model

    @classmethod
    def _from_core(cls, core: BermoModel) -> Self:
        """Make a sentence encoder of what lies under the head of a trained model."""
        config = cast(BermoConfig, core.config)
        config.sentence = options_of(SentenceSettings())
        model = cls(config, core.backbone)
        model.bermo = core
        return model.eval()

    @property
    def settings(self) -> SentenceSettings:
        """How a vector is made."""
        return settings_of("", cast(BermoConfig, self.config))

    @property
    def is_plain(self) -> bool:
        """Whether stock transformers can build it: no mix, and a shape that the encoder's config says."""
        config = self.config
        has_inner = getattr(config.backbone, "inner_mix", "none") != "none"
        is_even = is_stock(config.backbone, config.structure)
        return config.mix["kind"] == "none" and is_even and not has_inner

    def how_to_load(self) -> list[str]:
        """Return the lines of Python that load the saved folder: stock ones where stock code can."""
        if not self.is_plain:
            return [
                "import bermo",
                'model = bermo.BermoForSentenceEmbedding.from_pretrained("this folder")',
            ]
        cut = self.config.sentence["dimension"]
        more = "" if cut is None else f", truncate_dim={cut}"
        return [
            "from sentence_transformers import SentenceTransformer",
            f'model = SentenceTransformer("this folder or repository"{more})',
            'vectors = model.encode(["a text", "another one"])',
        ]

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
        """Take (B, T) or, for several texts a row, (B, C, T); return the vectors, (B, D) or (B, C, D).

        They are called logits, as the answers of every model are; the loss is there where labels are.
        """
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        shape = cast(Tensor, inputs_embeds if input_ids is None else input_ids).shape
        num_axes = 2 if input_ids is not None else 3
        is_nested = len(shape) > num_axes
        inputs = tuple(v.flatten(0, 1) if v is not None and is_nested else v for v in given)
        pooled, outputs = pool_texts(self.bermo, inputs, output_hidden_states, output_attentions)
        vectors = self._finish(pooled)
        vectors = vectors.unflatten(0, shape[:2]) if is_nested else vectors
        loss = None if labels is None else sentence_loss(vectors, labels)
        result = SequenceClassifierOutput(logits=cast(Any, vectors), **rest_of(outputs, loss))
        return returned(self, result, return_dict)

    def pool(self, tokens_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the vectors of texts, (B, D), from those of their tokens."""
        pooling = cast(Any, self.config.pooling)
        if pooling == "mean":
            return self._finish(masked_mean(tokens_BTD, mask_BT))
        return self._finish(take_rows(tokens_BTD, pooled_rows(pooling, mask_BT))[:, 0])

    def _finish(self, pooled_BD: Tensor) -> Tensor:
        dimension = self.config.sentence["dimension"]
        kept = pooled_BD if dimension is None else pooled_BD[:, :dimension]
        return functional.normalize(kept, dim=-1) if self.config.sentence["normalise"] else kept

    def loss_of(self, outputs: Any, labels: Tensor | None = None) -> Tensor:
        """The loss of outputs that were made without labels."""
        return sentence_loss(outputs.logits, labels)

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any
    ) -> None:
        """Write a folder of sentence-transformers where stock code can build the model, else one of ours."""
        state = kwargs.get("state_dict") or self.state_dict()
        if not self.is_plain or any(INSIDE in name for name in state):
            super().save_pretrained(save_directory, is_main_process, **kwargs)
            return
        folder = Path(save_directory)
        kwargs["state_dict"] = {
            name.removeprefix(PREFIX): value for name, value in state.items() if name.startswith(PREFIX)
        }
        self.core.backbone.save_pretrained(folder, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            (folder / SUMS_FILE).unlink(missing_ok=True)
            if not (folder / "README.md").exists():
                write_text(folder / "README.md", model_card(self))
            share_tensors_(folder, folder / "config.json")
            write_settings(folder, self.settings, self.config.hidden_size)


def settings_of(name: str | Path, config: PretrainedConfig | None = None) -> SentenceSettings:
    """Return how an encoder's folder says that vectors are made; without a word of it, mean and length 1."""
    if isinstance(config, BermoConfig):
        return SentenceSettings(
            pooling=cast(Any, config.pooling), **(getattr(config, "sentence", None) or {})
        )
    if is_sentence_folder(name):
        return read_settings(name)
    return SentenceSettings(pooling=trained_pooling(name) or "mean")


def sentence_loss(vectors_BCD: Tensor, labels_B: Tensor | None) -> Tensor:
    """Return the squared error of the cosines of pairs, or without labels the contrast within the batch."""
    first_BD, *others = functional.normalize(vectors_BCD.float(), dim=-1).unbind(1)
    if labels_B is not None:
        return functional.mse_loss((first_BD * others[0]).sum(-1), labels_B.float())
    scores = SHARPNESS * first_BD @ torch.cat(others).T
    return functional.cross_entropy(scores, torch.arange(len(first_BD), device=scores.device))


def options_of(settings: SentenceSettings) -> dict[str, Any]:
    """Return what a config keeps of them: all but the pooling, which it has already."""
    values = asdict(replace(settings, prompts=dict(settings.prompts)))
    del values["pooling"]
    return values
