"""Whether the model hub can be reached: known in seconds, where the hub's library tries for a minute."""

import socket
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from bermo.errors import BermoError

PATIENCE = 3.0
"""Seconds until a hub that does not answer counts as out of reach."""


def check_hub(name: str) -> None:
    """Refuse a model that can only be on a hub out of reach; one in the hub's cache is read from there."""
    if constants.HF_HUB_OFFLINE or can_ask():
        return
    if not _is_cached(name):
        raise BermoError(
            f'There is no folder "{name}", and the model hub cannot be reached to look for a model of that'
            " name. Pass a folder, or box."
        )


def is_local(name: str) -> bool:
    """Tell whether only files on this machine may be read: a folder's, or the cache of a hub that cannot be
    asked.
    """
    return Path(name).is_dir() or constants.HF_HUB_OFFLINE or not can_ask()


@cache
def can_ask() -> bool:
    """Tell whether the hub's machine takes a call; behind a proxy that is for the proxy to say."""
    address = urlsplit(constants.ENDPOINT)
    if getproxies():
        return True
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((str(address.hostname), port), PATIENCE).close()
    except OSError:
        return False
    return True


def _is_cached(name: str) -> bool:
    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except HFValidationError:  # no name that the hub could have
        return False
