"""What a saved folder holds, as far as its config says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from bermo.encoders import where
from bermo.encoders.failures import loading
from bermo.errors import BermoError
from bermo.models.config import BermoConfig


def check_saved(kind: type, name: str | Path, options: Mapping[str, Any]) -> None:
    """Refuse a plain model of transformers, which has neither the mix nor the head."""
    config = options.get("config")
    if config is None:
        places = ("revision", "subfolder", "cache_dir", "token", "local_files_only")
        known = {place: options[place] for place in places if place in options}
        with loading("config", name):
            config = PretrainedConfig.get_config_dict(where.BOX if str(name) == "box" else name, **known)[0]
    model_type = config.get("model_type") if isinstance(config, dict) else config.model_type
    if model_type != BermoConfig.model_type:
        raise BermoError(
            f'"{name}" is a plain {model_type} model, without the mix and the head of {kind.__name__}. Call'
            f' {kind.__name__}.from_backbone("{name}") to put them on it.'
        )
