"""A failure to load a file of a model, as one sentence in place of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers.utils import logging

from bermo.errors import BermoError


@contextmanager
def loading(what: str, name: str | Path) -> Iterator[None]:
    """Turn a failure to load the config, weights or tokenizer of `name` into one sentence.

    What transformers itself would print about the failure stays off the screen.
    """
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BermoError(
            f'Could not load the {what} of "{name}": {reason} Check the name, and that the folder is'
            " whole or, for a model on the hub, that there is a network."
        ) from error
    finally:
        logging.set_verbosity(level)
