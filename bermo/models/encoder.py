"""An encoder with its layers mixed, as a transformers model: backbone -> mix, its config, save and load.

    BermoModel(input_ids, attention_mask).last_hidden_state = mix(h_0 … h_L)

At inference the mix streams while the backbone runs. A head that reads one token of each text says so
(`rows`), and then only these rows are mixed.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from bermo.encoders.backbone import (
    EncoderName,
    Loaded,
    create_encoder,
    hidden_states,
    load_encoder,
    make_inputs,
    visit,
)
from bermo.encoders.card import PIPELINES, Evaluated, with_header
from bermo.encoders.failures import loading
from bermo.encoders.families import family_of, num_layers
from bermo.encoders.shape import Structure
from bermo.encoders.structure import resize_
from bermo.encoders.tied import note_tied_
from bermo.encoders.tokens import filter_of, filter_tokens_
from bermo.encoders.trust import COPY_ANEW, ONLY_TENSORS, check_finite, check_loaded, check_weights
from bermo.errors import BermoError
from bermo.files import reading, share_tensors_, write_text
from bermo.models.config import BermoConfig, MixChoice, mix_options
from bermo.models.saved import check_saved
from bermo.nn.heads import take_rows
from bermo.nn.inner import InnerMix
from bermo.nn.masked import INSIDE
from bermo.nn.mix import GateMix, LayerMix, Mix, build_mix
from bermo.sums import SUMS_FILE


class BermoPreTrainedModel(PreTrainedModel):
    """What all bermo models share: made from a backbone, saved with a card, loaded by the Auto classes."""

    config_class = BermoConfig
    base_model_prefix = "bermo"
    reads_masked_head = False
    # Masks and scores of a checkpoint; the masked weights stand beside them.
    _keys_to_ignore_on_load_unexpected = (re.escape(INSIDE),)  # type: ignore[assignment]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @classmethod
    def from_backbone(
        cls,
        source: EncoderName,
        mix: MixChoice = "across",
        pooling: str | None = None,
        head_dropout: float = 0.1,
        **labels: Any,
    ) -> Self:
        """Put a mix and a head on an encoder: its name, folder, config (then with random weights), or a
        loaded model of transformers, which is copied.

        The folder of a model that bermo trained or shrank gives its encoder, in the shape that it has there.

        `labels` are num_labels, id2label, label2id and problem_type, as everywhere in transformers. What
        starts at random is drawn from torch's generator: call torch.manual_seed first.
        """
        options = mix_options(mix)
        is_ours, structure = _saved_shape(source)
        if not is_ours:
            loaded = load_encoder(source, with_head=cls.reads_masked_head)
        elif isinstance(source, BermoPreTrainedModel):
            loaded = Loaded(encoder=copy.deepcopy(source.core.backbone))
        else:
            loaded = Loaded(encoder=BermoModel.from_pretrained(str(source)).backbone)
        config = BermoConfig(
            loaded.encoder.config, options, pooling, head_dropout, structure=structure, **labels
        )
        config.kept_tokens = getattr(filter_of(loaded.encoder), "parts", None)
        model = cls(config, loaded.encoder)
        with torch.no_grad():
            model._adopt_(loaded)
        return model.eval()

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path | None, *args: Any, **kwargs: Any
    ) -> Any:
        """Load a model that `save_pretrained` wrote, or a checkpoint of transformers.Trainer.

        A plain encoder is refused, and so are weights that are missing, unknown or not finite, and pickles.
        """
        name = pretrained_model_name_or_path
        if name is not None:
            check_saved(cls, name, kwargs)
            check_weights(name)
        wants_report = kwargs.pop("output_loading_info", False)
        options = {**kwargs, **ONLY_TENSORS, "output_loading_info": True}
        with loading("weights", str(name)):
            loaded: Any = super().from_pretrained(name, *args, **options)
        model, report = loaded
        # A model without a head leaves the one that was saved; any other takes all that was saved.
        has_head = not issubclass(cls, BermoModel)
        unknown = [key for key in report["unexpected_keys"] if has_head or not key.startswith("head.")]
        check_loaded(str(name), report["missing_keys"], unknown)
        check_finite(str(name), model)
        return (model, report) if wants_report else model

    @property
    def core(self) -> "BermoModel":
        """The encoder with its mix, under any head."""
        return cast(BermoModel, self.base_model)

    @property
    def mix(self) -> Mix:
        """What mixes the layers: `mix.weights` are the shares of `mix.layers`."""
        return self.core.layer_mix

    @property
    def supports_gradient_checkpointing(self) -> bool:  # type: ignore[override]
        return bool(self.core.backbone.supports_gradient_checkpointing)

    def freeze_embeddings_(self) -> None:
        """Stop training what turns ids into the input of the first layer."""
        backbone = self.core.backbone
        for name in family_of(backbone.config).layers.embeddings:
            backbone.get_submodule(name).requires_grad_(False)

    def gradient_checkpointing_enable(  # type: ignore[override]
        self, gradient_checkpointing_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Trade time for memory in training, where the family can."""
        if (gradient_checkpointing_kwargs or {}).get("use_reentrant"):
            raise BermoError(
                "Reentrant checkpointing hides the layers' gradients from the mix."
                ' Leave use_reentrant out, or pass {"use_reentrant": False}.'
            )
        super().gradient_checkpointing_enable(gradient_checkpointing_kwargs, **kwargs)

    def get_input_embeddings(self) -> nn.Module:
        return self.core.backbone.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.core.backbone.set_input_embeddings(value)

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any
    ) -> None:
        """Write config, safetensors and, where there is none yet, a model card.

        Of a pruned model that is not folded, the masked weights are written, and beside them what
        transformers.Trainer needs to go on: the weights themselves, their masks and scores.
        """
        card = Path(save_directory) / "README.md"
        if is_main_process and not Path(save_directory).is_file() and not card.exists():
            write_text(card, model_card(self))
        if is_main_process and Path(save_directory).is_dir():
            # The sums of a model that was here before.
            (Path(save_directory) / SUMS_FILE).unlink(missing_ok=True)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            share_tensors_(Path(save_directory), Path(save_directory) / "config.json")

    def how_to_load(self) -> list[str]:
        """Return the lines of Python that load the saved folder."""
        name = type(self).__name__
        is_bare = name == "BermoModel"
        auto = name.replace("Bermo", "Auto") if is_bare else name.replace("BermoFor", "AutoModelFor")
        return [
            "import bermo  # registers the model with the Auto classes",
            f"from transformers import {auto}",
            f'model = {auto}.from_pretrained("this folder or repository")',
        ]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LayerMix | GateMix | InnerMix):
            module.reset_parameters()

    def _adopt_(self, loaded: Loaded) -> None:
        """Take over pretrained weights that the head can start from; a model without a head has none."""


class BermoModel(BermoPreTrainedModel):
    """mix(h_0 … h_L): any supported encoder whose output is made of all its layers."""

    def __init__(self, config: BermoConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        if backbone is None:
            backbone = create_encoder(config.backbone)
            if config.structure is not None:
                resize_(backbone, Structure.from_dict(config.structure))
        if config.kept_tokens is not None and filter_of(backbone) is None:
            filter_tokens_(backbone, config.kept_tokens)
        self.backbone = backbone
        # One object, so that a change of attention or vocabulary is seen from both sides.
        config.backbone = self.backbone.config
        self.layer_mix = build_mix(num_layers=num_layers(config.backbone), **config.mix)
        self.output_size = self.layer_mix.output_size(config.hidden_size)
        note_tied_(self, self.backbone)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        rows: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Return the mixed sequence; with `rows` (B, K), only the tokens at these positions.

        Segment ids are dropped where the family has no use for them.
        """
        inputs = make_inputs(self.backbone, input_ids, attention_mask, token_type_ids, inputs_embeds)
        wants_layers = _given(output_hidden_states, self.config.output_hidden_states)
        wants_attentions = _given(output_attentions, self.config.output_attentions)
        outputs, last = BaseModelOutput(), dict[int, Tensor]()
        layers: tuple[Tensor, ...] = ()
        if wants_layers or wants_attentions or not (self._can_stream() or self._reads_last()):
            outputs = hidden_states(self.backbone, inputs, wants_attentions)
            layers = cast(tuple[Tensor, ...], outputs.hidden_states)
            mixed = self._mix_stacked(layers, attention_mask, rows)
        elif self._can_stream():
            mixed = self._mix_streaming(inputs, attention_mask, rows)
        else:
            # The others are not made: XLNet would copy all of them, to turn them.
            visit(self.backbone, inputs, self.layer_mix.layers, last.__setitem__)
            mixed = self._mix_stacked(tuple(last.values()) * self.layer_mix.num_layers, attention_mask, rows)
        result = BaseModelOutput(
            last_hidden_state=cast(Any, mixed),
            hidden_states=cast(Any, layers) if wants_layers else None,
            attentions=outputs.attentions,
        )
        return result if _given(return_dict, self.config.return_dict) else result.to_tuple()

    def _can_stream(self) -> bool:
        # A graph that is written out for another runtime keeps running sums, not a stack of layers.
        is_compiled = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
        is_traced = is_compiled or torch.jit.is_tracing()
        return not (self.training or torch.is_grad_enabled() or is_traced)

    def _reads_last(self) -> bool:
        return set(self.layer_mix.layers) == {self.layer_mix.num_layers - 1}

    def _mix_stacked(
        self, layers: tuple[Tensor, ...], attention_mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        if rows is not None and self.layer_mix.is_per_token:
            read = self.layer_mix.layers
            kept = {n: take_rows(hidden, rows) for n, hidden in enumerate(layers) if n in read}
            return self._mix_kept(kept, len(layers))
        mixed = self.layer_mix(layers, attention_mask)
        return mixed if rows is None else take_rows(mixed, rows)

    def _mix_streaming(
        self, inputs: Mapping[str, Any], attention_mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        if rows is not None and self.layer_mix.is_per_token:
            return self.mix_rows(inputs, rows)
        stream = self.layer_mix.stream(attention_mask)
        visit(self.backbone, inputs, self.layer_mix.layers, stream.add)
        mixed = stream.result()
        return mixed if rows is None else take_rows(mixed, rows)

    def mix_rows(self, inputs: Mapping[str, Any], rows: Tensor, has_top_rows: bool = False) -> Tensor:
        """Keep only the read tokens of each layer; these are few, so one stacked mix of them is fastest.

        With `has_top_rows` the top layer gives these tokens alone already (bermo.ship.export.top).
        """
        kept: dict[int, Tensor] = {}
        top = self.layer_mix.num_layers - 1

        def keep(index: int, hidden: Tensor) -> None:
            kept[index] = hidden if has_top_rows and index == top else take_rows(hidden, rows)

        visit(self.backbone, inputs, self.layer_mix.layers, keep)
        return self._mix_kept(kept, self.layer_mix.num_layers)

    def _mix_kept(self, kept: Mapping[int, Tensor], num_layers: int) -> Tensor:
        """Mix the layers that were kept, which are those that the mix reads; any may stand for the others."""
        some = next(iter(kept.values()))
        return self.layer_mix([kept.get(index, some) for index in range(num_layers)])


def model_card(
    model: BermoPreTrainedModel, evaluated: Sequence[Evaluated] = (), dataset: str | None = None
) -> str:
    """Write what a reader of the saved folder needs: what it is made of, and how to load it."""
    config, name = cast(BermoConfig, model.config), type(model).__name__
    origin = config.backbone.name_or_path or "from random weights"
    lines = [
        f"# {name}",
        "",
        f"A {config.backbone.model_type} encoder ({origin}) whose {config.num_hidden_layers + 1} layers,"
        f' the embeddings included, are combined by the mix "{config.mix["kind"]}".',
        "",
        "```python",
        *model.how_to_load(),
        "```",
    ]
    shares = model.mix.weights.tolist()
    if len(shares) > 1:
        lines += ["", "Share of each layer in the mix:", "", "| layer | share |", "|---|---|"]
        names = ["embeddings" if layer == 0 else str(layer) for layer in model.mix.layers]
        lines += [f"| {n} | {share:.4f} |" for n, share in zip(names, shares, strict=True)]
    return with_header(
        "\n".join(lines) + "\n",
        title=name,
        pipeline=PIPELINES.get(name),
        base=config.backbone.name_or_path,
        dataset=dataset,
        evaluated=evaluated,
    )


def _saved_shape(source: EncoderName) -> tuple[bool, dict[str, Any] | None]:
    """Tell whether a source is a model that bermo trained, and return its recorded shape, if it has one."""
    if isinstance(source, BermoPreTrainedModel):
        return source.config.structure is not None, source.config.structure
    if isinstance(source, PretrainedConfig | PreTrainedModel):
        return False, None
    path = Path(source) / "config.json"
    if not (path.is_file() and any(path.parent.glob("*.safetensors"))):
        return False, None
    with reading(path, COPY_ANEW):
        values = json.loads(path.read_text(encoding="utf-8"))
        is_ours = values.get("model_type") == "bermo"
        # `load_encoder` takes an encoder that is mixed inside.
        is_mixed = is_ours and values["backbone"].get("inner_mix", "none") != "none"
        return is_ours and not is_mixed, values.get("structure") if is_ours else None


def _given(value: bool | None, default: bool | None) -> bool:
    return bool(default if value is None else value)
