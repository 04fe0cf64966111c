"""What sentence-transformers writes beside an encoder: how one vector is made of a text.

    modules.json                        Transformer -> Pooling -> [Normalize], with the folder of each
    1_Pooling/config.json               first token, last token or mean (pooling.py)
    sentence_bert_config.json           the longest text in tokens
    config_sentence_transformers.json   prompts, and `truncate_dim`: only the first units (Matryoshka)

`read_settings` and `write_settings` are each other's inverse. What is written is the form that every version
of sentence-transformers reads. There, `truncate_dim` is an argument of loading and no file has it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from bermo.encoders.pooling import MODES, pooling_of
from bermo.errors import BermoError
from bermo.files import reading, write_json
from bermo.spec import Pooling

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
PROMPTS_FILE = "config_sentence_transformers.json"
POOLING_FOLDER, NORMALISE_FOLDER = "1_Pooling", "2_Normalize"
TYPES = "sentence_transformers.models"
KNOWN = ("Transformer", "Pooling", "Normalize")
LONGEST_NAME = 255
"""Bytes of the longest name of a folder on any disk."""
COPY_ANEW = "Copy the model's folder anew."


@dataclass(frozen=True, kw_only=True)
class SentenceSettings:
    """How a sentence encoder makes one vector of a text."""

    pooling: Pooling = "mean"
    normalise: bool = True
    """Whether vectors have length 1, so that a product of two is their cosine."""
    dimension: int | None = None
    """Keep only the first so many units, where the encoder was trained for it (Matryoshka)."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Words that are put before a text, by name: "query", "document"."""
    default_prompt: str | None = None
    max_length: int | None = None

    def prompt(self, name: str | None) -> str:
        """Return the words before a text: those of a name, the default's, or none."""
        if name is None:
            return self.prompts.get(self.default_prompt or "", "")
        if name not in self.prompts:
            known = ", ".join(f'"{item}"' for item in self.prompts) or "none"
            raise BermoError(f'The model has no prompt "{name}". Known: {known}.')
        return self.prompts[name]


def is_sentence_folder(folder: str | Path) -> bool:
    """Tell whether a folder is one of sentence-transformers."""
    return (Path(folder) / MODULES_FILE).is_file()


def read_settings(folder: str | Path) -> SentenceSettings:
    """Read a folder of sentence-transformers; a module that bermo has not is refused."""
    folder = Path(folder)
    paths = _modules(folder)
    pooling = _read_object(folder / paths["Pooling"] / "config.json")
    mode = pooling_of(pooling)
    if mode is None:
        raise BermoError(
            f"{folder} pools in a way that bermo has not ({_named_modes(pooling)}). It has first token, last"
            " token and mean."
        )
    prompts = _read_object(folder / PROMPTS_FILE, is_needed=False)
    length = _read_object(folder / LENGTH_FILE, is_needed=False).get("max_seq_length")
    with reading(folder / PROMPTS_FILE, COPY_ANEW):
        return SentenceSettings(
            pooling=mode,
            normalise="Normalize" in paths,
            dimension=_number(prompts.get("truncate_dim")),
            prompts={str(name): str(text) for name, text in dict(prompts.get("prompts") or {}).items()},
            default_prompt=prompts.get("default_prompt_name"),
            max_length=_number(length),
        )


def write_settings(folder: Path, settings: SentenceSettings, width: int) -> None:
    """Write the files of sentence-transformers beside an encoder of this width."""
    names = {"Transformer": "", "Pooling": POOLING_FOLDER}
    if settings.normalise:
        names["Normalize"] = NORMALISE_FOLDER
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{TYPES}.{name}"}
        for index, (name, path) in enumerate(names.items())
    ]
    modes = {mode: ours == settings.pooling for mode, ours in MODES.items()}
    for path in filter(None, names.values()):
        (folder / path).mkdir(exist_ok=True)
    write_json(folder / POOLING_FOLDER / "config.json", {"word_embedding_dimension": width} | modes)
    if settings.normalise:
        # git and most copies drop a folder that is empty.
        write_json(folder / NORMALISE_FOLDER / "config.json", {})
    length = {} if settings.max_length is None else {"max_seq_length": settings.max_length}
    write_json(folder / LENGTH_FILE, length | {"do_lower_case": False})
    cut = {} if settings.dimension is None else {"truncate_dim": settings.dimension}
    write_json(
        folder / PROMPTS_FILE,
        {
            "prompts": dict(settings.prompts),
            "default_prompt_name": settings.default_prompt,
            "similarity_fn_name": "cosine",
        }
        | cut,
    )
    write_json(folder / MODULES_FILE, modules)


def _modules(folder: Path) -> dict[str, str]:
    """Return the folder of each module by the last part of its type, and refuse what is not known."""
    with reading(folder / MODULES_FILE, COPY_ANEW):
        listed = json.loads((folder / MODULES_FILE).read_text(encoding="utf-8"))
        paths = {str(item["type"]).rpartition(".")[2]: str(item["path"]) for item in listed}
    for name, path in paths.items():
        if name not in KNOWN:
            raise BermoError(
                f"{folder} has the module {name}, which bermo cannot read. It reads {', '.join(KNOWN)}."
            )
        if path and PurePath(path).name != path:
            raise BermoError(f'{folder / MODULES_FILE} leads out of its folder ("{path}"). {COPY_ANEW}')
        if len(path.encode()) > LONGEST_NAME:
            raise BermoError(
                f'{folder / MODULES_FILE} names a folder that no disk can hold ("{path[:20]}…"). {COPY_ANEW}'
            )
    if "Pooling" not in paths:
        raise BermoError(f"{folder / MODULES_FILE} names no Pooling, so there is no vector of a text.")
    return paths


def _named_modes(values: Mapping[str, Any]) -> str:
    named = [name for name, is_on in values.items() if name.startswith("pooling_mode_") and is_on is True]
    return ", ".join(named) or str(values.get("pooling_mode", "none named"))


def _number(value: Any) -> int | None:
    number = None if value is None else int(value)
    if number is not None and number < 1:
        raise ValueError(f"a length of {number}")
    return number


def _read_object(path: Path, is_needed: bool = True) -> dict[str, Any]:
    """Return the values of a JSON file; none where there may be none."""
    if not path.is_file():
        if is_needed:
            raise BermoError(f"{path} is missing, which {MODULES_FILE} names. {COPY_ANEW}")
        return {}
    with reading(path, COPY_ANEW):
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise TypeError(f"a {type(values).__name__} in place of an object")
        return values
