"""How a sentence encoder was trained to pool: what sentence-transformers writes beside its weights.

modules.json -> the folder of its Pooling module ("1_Pooling") -> config.json -> first, last or mean
"""

import json
from pathlib import Path, PurePath
from typing import Any

from bermo.encoders.where import resolve
from bermo.files import DAMAGED
from bermo.spec import Pooling

MODES: dict[str, Pooling] = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
"""The switches of the pooling modules that we have too."""
NAMES: dict[str, Pooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}
"""How sentence-transformers 6 names them."""


def trained_pooling(name: str | Path) -> Pooling | None:
    """Return the pooling that the encoder's folder or repository names, None where it names none of ours."""
    source = resolve(name)
    modules = _read(source, "modules.json")
    folders = [
        str(module.get("path", ""))
        for module in (modules if isinstance(modules, list) else [])
        if isinstance(module, dict) and str(module.get("type", "")).endswith("Pooling")
    ]
    folder = (folders or ["1_Pooling"])[0]
    # A name that leads elsewhere is none of a module.
    values = _read(source, f"{folder}/config.json") if PurePath(folder).name == folder else None
    return pooling_of(values)


def pooling_of(values: Any) -> Pooling | None:
    """Return the pooling that the config of a Pooling module names, None where it is none of ours."""
    named = values if isinstance(values, dict) else {}
    modes = [mode for mode, is_on in named.items() if is_on is True and mode.startswith("pooling_mode_")]
    if not modes and isinstance(named.get("pooling_mode"), str):
        return NAMES.get(named["pooling_mode"])
    # Several modes at once are glued together, which is none of ours.
    return MODES.get(modes[0]) if len(modes) == 1 else None


def _read(source: str, file: str) -> Any:
    """Return a JSON file of the folder or repository, None where there is none."""
    from transformers.utils import cached_file

    from bermo.encoders.hub import is_local

    try:
        path = cached_file(
            source,
            file,
            local_files_only=is_local(source),
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, *DAMAGED):
        return None
