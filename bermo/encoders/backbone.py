"""The encoders under the mix, and the only file that knows Hugging Face's internals.

    resolve(name) -> load_encoder(name) -> hidden_states(encoder, …)   all layers at once, with gradients
                                        -> visit(encoder, …)           layer by layer, at inference

h_0 is what enters the first layer, h_j what enters layer j, and h_L the encoder's output after any final
norm: exactly the `hidden_states` of transformers. `visit` reads them with hooks while the encoder runs.
"""

import copy
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import BaseModelOutput

from bermo.encoders import where
from bermo.encoders.capitals import keep_case_
from bermo.encoders.failures import loading
from bermo.encoders.families import family_of, has_segments, longest_input, num_layers
from bermo.encoders.family import MaskedHeadPaths
from bermo.encoders.half_bias import set_half_biases_
from bermo.encoders.hub import is_local
from bermo.encoders.layers import is_mixed_inside, layer_modules, mix_inside_
from bermo.encoders.trust import COPY_ANEW, ONLY_DATA, ONLY_TENSORS, check_finite, check_weights, config_of
from bermo.encoders.windows import set_windows_
from bermo.errors import BermoError
from bermo.nn.fast.overrides import NoSymbols
from bermo.sums import check_sums

EncoderName = str | Path | PretrainedConfig | PreTrainedModel
"""An encoder on the hub, in a folder, only its config, for random weights, or a loaded model."""
REGISTERING = threading.Lock()
"""Held while hooks are registered: torch counts up their numbers without one, so two could get the same."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An encoder without its pooler, and the pretrained weights that a head of ours can start from."""

    encoder: PreTrainedModel
    pooler: Mapping[str, Tensor] | None = None
    head: Mapping[str, Tensor] | None = None


def load_config(name: str | Path) -> PretrainedConfig:
    """Read an encoder's config and check that its family is supported, before anything large moves."""
    folder = where.resolve(name)
    with loading("config", str(name)):
        check_sums(folder)
    config = config_of(folder)
    if is_mixed_inside(config):
        config = config.backbone
    family_of(config)
    return config


def create_encoder(config: PretrainedConfig) -> PreTrainedModel:
    """Build an encoder with random weights, in the default dtype, without a pooler."""
    family = family_of(config)
    config._attn_implementation = config._attn_implementation or family.attention.implementation
    with loading("config", config.name_or_path or config.model_type):
        encoder = AutoModel.from_config(config, dtype=torch.get_default_dtype(), **ONLY_DATA)
    _remove_pooler_(encoder)
    set_half_biases_(encoder)
    set_windows_(encoder)
    if getattr(config, "inner_mix", "none") != "none":
        mix_inside_(encoder, family)
    return encoder


def load_encoder(source: EncoderName, with_head: bool = False) -> Loaded:
    """Load an encoder by name, folder or config (then with random weights), in float32; copy a loaded one.

    With `with_head`, also look for the checkpoint's masked-LM head. Weights that the checkpoint lacks are
    an error, since an encoder that is random in part looks like one that trains badly.
    """
    if isinstance(source, PretrainedConfig):
        return Loaded(encoder=create_encoder(copy.deepcopy(source)))
    if isinstance(source, PreTrainedModel):
        return _copy_loaded(source, with_head)
    config = load_config(source)
    folder = where.resolve(source)
    if folder == str(where.BOX) and not list(where.BOX.glob("*.safetensors")):
        config.name_or_path = "box"
        return Loaded(encoder=create_encoder(config))
    if getattr(config, "inner_mix", "none") != "none":
        return Loaded(encoder=_load_mixed_inside(config, folder))
    parts = _head_parts(config) if with_head else None
    loader = AutoModelForMaskedLM if parts is not None else AutoModel
    check_weights(folder)
    with loading("weights", str(source)), NoSymbols():
        model, report = loader.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            attn_implementation=family_of(config).attention.implementation,
            output_loading_info=True,
            local_files_only=is_local(folder),
            **ONLY_TENSORS,
        )
    missing = _missing(model, report["missing_keys"])
    _check_whole(str(source), missing)
    check_finite(folder, model.base_model)
    has_head = parts is not None and not any(key.startswith("head:") for key in missing)
    loaded = _take_apart_(model, folder, parts if has_head else None)
    return replace(loaded, pooler=None) if any(key.startswith("pooler") for key in missing) else loaded


def _copy_loaded(source: PreTrainedModel, with_head: bool) -> Loaded:
    """Copy the encoder inside a model of transformers, in float32: what was given stays as it is."""
    parts = _head_parts(source.config) if with_head else None
    has_head = type(source).__name__.endswith("ForMaskedLM")
    return _take_apart_(copy.deepcopy(source).float(), source.name_or_path or "", parts if has_head else None)


def _take_apart_(model: PreTrainedModel, name: str, parts: MaskedHeadPaths | None) -> Loaded:
    """Return the encoder inside a model, with the weights of its pooler and of its masked-LM head."""
    encoder = cast(PreTrainedModel, model.base_model)
    # A folder's last name says where the encoder came from; its path is this machine's own business.
    encoder.config.name_or_path = Path(name).name if Path(name).is_dir() else name
    head = None if parts is None else _head_weights(model, parts)
    set_half_biases_(encoder)
    set_windows_(encoder)
    return Loaded(encoder=encoder, pooler=_remove_pooler_(encoder), head=head)


def box() -> PreTrainedModel:
    """Return the encoder in the package, ready to use; its tokenizer is `load_tokenizer("box")`."""
    return load_encoder("box").encoder.eval()


def _load_mixed_inside(config: PretrainedConfig, folder: str) -> PreTrainedModel:
    """Load an encoder with an inner mix out of the bermo model that it was saved as."""
    check_weights(folder)
    with loading("weights", folder):
        local = is_local(folder)
        model = AutoModel.from_pretrained(folder, dtype=torch.float32, local_files_only=local, **ONLY_TENSORS)
    encoder: PreTrainedModel = model.backbone
    encoder.config.name_or_path = Path(folder).name
    return encoder


def load_tokenizer(name: str | Path, lowercase: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer beside the encoder, and refuse one that holds nothing but special tokens.

    With lowercase "off" it keeps the case of letters, whatever case its vocabulary was made for.
    """
    folder = where.resolve(name)
    if Path(folder).is_dir() and not any(Path(folder).glob("*.json")):
        raise BermoError(f'"{name}" holds neither a model nor a tokenizer: there is no config.json.')
    with loading("tokenizer", str(name)):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=is_local(folder), **ONLY_DATA)
        special = set(tokenizer.all_special_ids)  # a word for the unknown that is unknown has no end
    if not isinstance(tokenizer.model_max_length, int | float):
        raise BermoError(
            f'model_max_length in tokenizer_config.json of "{name}" must be a number, but got'
            f" {tokenizer.model_max_length!r:.40}. {COPY_ANEW}"
        )
    if len(tokenizer) <= len(special) + 1:
        raise BermoError(
            f'There is no tokenizer in "{name}": the one that loads knows {len(tokenizer)} tokens, all'
            " special, so every word would be unknown. Put the model's tokenizer.json beside its config."
        )
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise BermoError(f'The tokenizer of "{name}" has no padding token. Set pad_token in it.')
        tokenizer.pad_token = tokenizer.eos_token
    if lowercase == "off":
        keep_case_(tokenizer)
    return tokenizer


def limit_length_(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> None:
    """Let texts be no longer than the encoder has positions, whatever the tokenizer's own files say."""
    longest = longest_input(config)
    if longest is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)


def make_inputs(
    encoder: PreTrainedModel,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    inputs_embeds: Tensor | None,
) -> dict[str, Any]:
    """Gather the arguments of a call; segment ids go only where the family has a use for them."""
    facts = family_of(encoder.config).inputs
    inputs: dict[str, Any] = {"input_ids": input_ids, "inputs_embeds": inputs_embeds}
    inputs = {name: value for name, value in inputs.items() if value is not None}
    if attention_mask is not None:
        inputs["attention_mask"] = attention_mask = attention_mask.long()
        if facts.has_float_mask:
            inputs["attention_mask"] = attention_mask.to(encoder.dtype)
        if facts.is_decoder:
            # Positions count real tokens, so that padding on the left moves nothing.
            inputs["position_ids"] = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        if facts.reads_neighbours and input_ids is not None:
            words = encoder.get_input_embeddings()(inputs.pop("input_ids"))
            inputs["inputs_embeds"] = words * attention_mask[..., None]
    if token_type_ids is not None and has_segments(encoder.config):
        inputs["token_type_ids"] = token_type_ids
    return {**inputs, **facts.options}


def hidden_states(
    encoder: PreTrainedModel, inputs: Mapping[str, Any], output_attentions: bool = False
) -> BaseModelOutput:
    """Run the encoder and return all of h_0 … h_L, ready for gradients and for torch.compile."""
    if output_attentions:
        inputs = {**inputs, "output_attentions": True}
    outputs = encoder(**inputs, output_hidden_states=True)
    return BaseModelOutput(
        last_hidden_state=outputs.last_hidden_state,
        hidden_states=(*outputs.hidden_states[:-1], outputs.last_hidden_state),
        attentions=outputs.attentions if output_attentions else None,
    )


def visit(
    encoder: PreTrainedModel,
    inputs: Mapping[str, Any],
    wanted: Collection[int],
    visitor: Callable[[int, Tensor], None],
) -> None:
    """Run the encoder and hand it each wanted h_j as `visitor(j, h_j)`; it keeps none of them itself."""
    last = num_layers(encoder.config) - 1
    handles: list[RemovableHandle] = []
    try:
        if set(wanted) - {last}:
            handles = _watch(encoder, wanted, visitor)
        output = encoder(**inputs, output_hidden_states=False).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    if last in wanted:
        visitor(last, output)


def _watch(
    encoder: PreTrainedModel, wanted: Collection[int], visitor: Callable[[int, Tensor], None]
) -> list[RemovableHandle]:
    """Hook what enters each layer. A shared layer is hooked once and counted at every call."""
    family, calls = family_of(encoder.config), count()

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if (index := next(calls)) in wanted:
            hidden = args[0] if args else kwargs["hidden_states"]
            visitor(index, hidden.transpose(0, 1) if family.layers.is_time_first else hidden)

    see, options = _in_this_thread(before), {"with_kwargs": True}
    with REGISTERING:
        # First of all hooks, so that h_j is seen before an inner mix turns it into what the layer reads.
        handles = [
            module.register_forward_pre_hook(see, prepend=True, **options)
            for module in layer_modules(encoder, family)
        ]
        if family.layers.collector is not None:
            collector = encoder.get_submodule(family.layers.collector)
            handles.append(collector.register_forward_pre_hook(_in_this_thread(_collect_nothing), **options))
            handles.append(collector.register_forward_hook(_in_this_thread(_only_last)))
    return handles


def _in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that acts only in this thread: another one may run the same encoder meanwhile.

    torch keeps in a second table which hooks want kwargs, so that a thread that calls a layer while another
    registers or removes a hook may call that hook without them.
    """
    owner = threading.get_ident()

    def hook_here(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        return hook(module, args, *rest) if threading.get_ident() == owner else None

    return hook_here


def _collect_nothing(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, {**kwargs, "output_hidden_states": False}


def _only_last(module: nn.Module, args: tuple[Any, ...], output: BaseModelOutput) -> BaseModelOutput:
    """Give DeBERTa, which reads its output from the collected layers, a collection of one."""
    last = output.last_hidden_state
    assert last is not None
    return BaseModelOutput(last_hidden_state=last, hidden_states=(last,))


def _remove_pooler_(encoder: PreTrainedModel) -> dict[str, Tensor] | None:
    """Take the pooler out of the encoder, for it would never be trained, and return its weights."""
    pooler = getattr(encoder, "pooler", None)
    if pooler is None:
        return None
    encoder.register_module("pooler", None)
    dense = pooler if isinstance(pooler, nn.Linear) else getattr(pooler, "dense", None)
    return None if dense is None else {k: v.detach() for k, v in dense.state_dict().items()}


def _head_parts(config: PretrainedConfig) -> MaskedHeadPaths | None:
    """Say where the family's masked-LM head is, if it is built like ours."""
    is_like_ours = getattr(config, "tie_word_embeddings", True) and getattr(config, "legacy", True)
    return family_of(config).masked_head if is_like_ours else None


def _head_weights(model: PreTrainedModel, parts: MaskedHeadPaths) -> dict[str, Tensor]:
    """Return a pretrained masked-LM head under the names of ours; a bias it lacks counts as zero."""
    weights: dict[str, Tensor] = {}
    for name, path in (("dense", parts.dense), ("norm", parts.norm)):
        module = model.get_submodule(path)
        assert isinstance(module, nn.Linear | nn.LayerNorm)
        weights[f"{name}.weight"] = module.weight.detach()
        zeros = torch.zeros(len(module.weight))
        weights[f"{name}.bias"] = zeros if module.bias is None else module.bias.detach()
    weights["decoder.bias"] = model.get_parameter(parts.bias).detach()
    return weights


def _missing(model: PreTrainedModel, keys: Collection[str]) -> list[str]:
    """Return the weights that a checkpoint lacked: the encoder's by name, a head's behind "head:"."""
    if model.base_model is model:
        return sorted(keys)
    prefix = f"{model.base_model_prefix}."
    return sorted(k.removeprefix(prefix) if k.startswith(prefix) else f"head:{k}" for k in keys)


def _check_whole(name: str, missing: Collection[str]) -> None:
    lost = [key for key in missing if not key.startswith(("head:", "pooler", "embeddings.position_ids"))]
    if lost:
        raise BermoError(
            f'"{name}" lacks {len(lost)} of the encoder\'s weights ({", ".join(lost[:3])} …), which would'
            " start random. Pass a whole checkpoint of this architecture, or its config for random weights."
        )
