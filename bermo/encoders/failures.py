"""A failure to load a file of a model, as one sentence in place of a traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bermo.crashes import was_interrupted
from bermo.encoders.meta_kernels import are_left_out
from bermo.errors import BermoError
from bermo.files import POINTER, is_pointer

UNTOUCHED = (BermoError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit)
"""Errors that say themselves what they are about."""


@contextmanager
def loading(what: str, name: str | Path) -> Iterator[None]:
    """Turn a failure to load the config, weights or tokenizer of `name` into one sentence.

    What transformers itself would print about the failure stays off the screen.
    """
    try:
        with _quiet():
            yield
    except UNTOUCHED:
        raise
    # A damaged file fails in any way, and a panic of the tokenizers' library is not even an Exception.
    except BaseException as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if isinstance(error, NotImplementedError) and are_left_out():  # whoever loads tries with all kernels
            raise
        reason = _pointer(Path(name)) or _cut_off(Path(name)) or _reason(error)
        raise BermoError(f'Could not load the {what} of "{name}": {reason}') from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Let transformers, where it is imported at all, print nothing below an error."""
    if "transformers" not in sys.modules:
        yield
        return
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _pointer(path: Path) -> str | None:
    """Say which file of the folder, or that the file itself, is a pointer that `git clone` has left."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for file in filter(Path.is_file, files):
        with suppress(OSError), file.open("rb") as opened:
            if is_pointer(opened.read(64)):
                return f"{file.name} {POINTER}"
    return None


def _cut_off(path: Path) -> str | None:
    """Say which file of the folder's weights does not have all the tensors that its header lists."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else []:
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError as error:
            reason = str(error).rstrip(".")
            return (
                f"{file.name} is cut off or damaged ({file.stat().st_size:,} bytes; {reason})."
                " Copy this file anew from where the model was saved."
            )
    return None


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    if "trust_remote_code" in text:
        return "it brings code of its own, which bermo never runs. Choose a model that transformers has."
    if "use_safetensors" in text:
        return (
            "its weights are in no safetensors but in a pickle, which may run any code when it is opened:"
            " bermo never does. Choose a model with model.safetensors."
        )
    if "ignore_mismatched_sizes" in text:
        return "a tensor is of another size than config.json says. Copy the whole folder anew."
    first = text.partition("\n")[0].rstrip(".") or type(error).__name__
    return (
        f"{first}. Check the name, and that the folder is whole or, for a model on the hub, that there is a"
        " network."
    )
