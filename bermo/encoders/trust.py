"""What is read of a model that came from elsewhere: data only, whole, and numbers.

config_of(name)       its config; code that came with it (auto_map, kernels) is never run
check_weights(name)   its tensors are in safetensors; a pickle, which may run any code, is never opened
check_loaded(…)       nothing is missing, nothing is unknown
check_finite(…)       nothing is infinite or not a number
"""

import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
from transformers import __version__ as transformers_version
from transformers.utils import cached_file

from bermo.encoders.failures import loading
from bermo.encoders.hub import is_local
from bermo.errors import BermoError
from bermo.files import reading

ONLY_DATA: Mapping[str, Any] = {"trust_remote_code": False}
ONLY_TENSORS: Mapping[str, Any] = {**ONLY_DATA, "use_safetensors": True}
"""How the Auto classes are called for configs and tokenizers, and for weights."""
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
BESIDE = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""Pickles that transformers.Trainer leaves beside a model; nobody reads them here."""
MOST_LAYERS = 1000
"""Each is built before its weights are looked for."""
COPY_ANEW = "Copy the whole folder anew from where the model was saved."
CONVERT = (
    'Convert it once, where you trust it: python -c "import torch; from safetensors.torch import save_file;'
    " save_file({{name: tensor.clone() for name, tensor in torch.load('{file}', weights_only=True).items()}},"
    " '{target}', {{'format': 'pt'}})\""
)

# Or transformers would ask the hub, in the user's name, to convert a model that has no safetensors.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")


def config_of(name: str | Path) -> PretrainedConfig:
    """Read the config of a folder, or of a model on the hub."""
    name = str(name)
    if Path(name).is_dir() and not (Path(name) / "config.json").exists():
        raise BermoError(
            f'"{name}" holds no model: there is no config.json. Give the folder of a model; that of a run has'
            " one called model."
        )
    with loading("config", name):
        path = _find(name, "config.json")
        if path is not None:
            with reading(path, COPY_ANEW):
                values = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(values, dict):
                    raise TypeError(f"a {type(values).__name__} in place of an object")
            _check_config(name, values)
        return AutoConfig.from_pretrained(name, local_files_only=is_local(name), **ONLY_DATA)


def check_weights(name: str | Path) -> None:
    """Refuse a folder, or a model on the hub, whose tensors are not in safetensors."""
    with loading("weights", name):
        index = None if _find(name, WHOLE) else _find(name, INDEX)
    if index is not None:
        with reading(index, COPY_ANEW):
            files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            _check_parts(name, files)
    elif Path(name).is_dir() and not (Path(name) / WHOLE).is_file():
        _refuse_without_tensors(Path(name))


def check_loaded(name: str | Path, missing: Collection[str], unknown: Collection[str] = ()) -> None:
    """Refuse weights that do not fit the model: what is missing would stay random."""
    for word, keys in (("lacks", missing), ("holds unknown weights:", unknown)):
        if keys:
            raise BermoError(
                f"{name} {word} {_some(keys)}. The model would not be the one that was saved. {COPY_ANEW}"
            )


def check_finite(name: str | Path, model: nn.Module) -> None:
    """Refuse a model with weights that are infinite or not a number: every answer would be none."""
    bad = not_finite(model)
    if bad:
        raise BermoError(
            f"{name} has weights that are infinite or not a number: {_some(bad)}. Its training diverged, or a"
            " file is damaged. Train it again with a smaller --lr, or copy it anew."
        )


def not_finite(model: nn.Module) -> list[str]:
    """Name the tensors of a model that hold an infinite number, or what is no number."""
    return [name for name, tensor in _tensors(model) if not _is_finite(tensor)]


def _is_finite(tensor: torch.Tensor) -> bool:
    """Whether all numbers are finite. Their sum tells it in one pass; only where finite numbers add up to an
    infinite one, each is looked at.
    """
    return math.isfinite(tensor.sum(dtype=torch.float32).item()) or bool(torch.isfinite(tensor).all())


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and tensor.device.type != "meta":
            yield name, tensor.detach()


def _find(name: str | Path, file: str) -> Path | None:
    """Return a file of a folder or, from the cache or the net, of a model on the hub; None if it has none."""
    found = cached_file(
        str(name),
        file,
        local_files_only=is_local(str(name)),
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)


def _check_config(name: str, values: Mapping[str, Any]) -> None:
    kind = values.get("model_type")
    if values.get("auto_map") and kind not in CONFIG_MAPPING:
        raise BermoError(
            f'"{name}" is a model of the type "{kind}" that brings its own code, which bermo never runs, and'
            f" transformers {transformers_version} has none for it. Choose a model of a known type."
        )
    kernels = [text for text in _texts_of(values, "attn_implementation") if "/" in text]
    if kernels:
        raise BermoError(
            f'The config of "{name}" names code for its attention, {kernels[0]}, which bermo never runs. Take'
            " attn_implementation out of its config.json."
        )
    deep = [f"{key} {count:,}" for key, count in _counts_of(values) if count > MOST_LAYERS]
    if deep:
        raise BermoError(
            f'The config of "{name}" says {deep[0]}, but no encoder has over {MOST_LAYERS:,} layers.'
            f" {COPY_ANEW}"
        )
    if values.get("transformers_weights"):
        raise BermoError(
            f'The config of "{name}" names a file of weights of its own. Take transformers_weights out of its'
            f" config.json, and call the file {WHOLE}."
        )
    if (Path(name) / "adapter_config.json").is_file():
        raise BermoError(
            f'"{name}" holds an adapter beside, or in place of, a model. Merge it into its model where it was'
            " trained (merge_and_unload of peft), and give the folder of the merged model."
        )


def _texts_of(value: Any, key: str) -> Iterator[str]:
    """Yield the texts under a key, however deep it lies, with or without an underscore before it."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if str(name).lstrip("_").startswith(key):
            yield from (str(text) for text in (inner.values() if isinstance(inner, dict) else (inner,)))
        yield from _texts_of(inner, key)


def _counts_of(value: Any) -> Iterator[tuple[str, int]]:
    """Yield the numbers of layers and of groups of them, however deep they lie."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if type(inner) is int and ("layer" in str(name) or "group" in str(name)):
            yield str(name), inner
        yield from _counts_of(inner)


def _check_parts(name: str | Path, files: Iterable[str]) -> None:
    for file in files:
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise BermoError(
                f'{INDEX} of "{name}" names {file}, but only safetensors beside it are read. {COPY_ANEW}'
            )
        if Path(name).is_dir() and not (Path(name) / file).is_file():
            raise BermoError(f'"{name}" lacks {file}, a part of its weights. {COPY_ANEW}')


def _refuse_without_tensors(folder: Path) -> None:
    if (folder / "export.json").is_file():
        raise BermoError(f"{folder} is an export. Give the model that it was made from.")
    files = (path for path in folder.iterdir() if path.stem not in BESIDE)
    pickles = sorted(path for path in files if path.suffix in PICKLES)
    if not pickles:
        raise BermoError(f"{folder} has a config but no weights (there is no {WHOLE}). {COPY_ANEW}")
    raise BermoError(
        f"{folder} has its weights in {pickles[0].name}, a pickle, which may run any code when it is opened:"
        f" bermo never does. {CONVERT.format(file=pickles[0], target=folder / WHOLE)}"
    )


def _some(names: Collection[str]) -> str:
    ordered = sorted(names)
    rest = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + rest
