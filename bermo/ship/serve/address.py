"""Where models are served, and under which names: what is wrong there is said before anything is imported."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bermo.errors import BermoError
from bermo.ship.serve.spec import ServeSpec

BACKLOG = 2048


def take_address(spec: ServeSpec) -> socket.socket:
    """Take the address before models are loaded; connections are taken only when they are."""
    with _named(spec):
        family, *_, address = socket.getaddrinfo(spec.host, spec.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
        try:
            if os.name == "posix":  # a server that has just ended leaves its address waiting
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
        return listener


def listen(listener: socket.socket, spec: ServeSpec) -> None:
    """Take connections from now on; of two servers that took an address at once one is refused here."""
    with _named(spec):
        listener.listen(BACKLOG)


@contextmanager
def _named(spec: ServeSpec) -> Iterator[None]:
    """Let what the system says of the address name it, and what to do."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BermoError(
            f"bermo cannot listen on {spec.host}:{spec.port} ({reason}). Choose another --host or --port."
        ) from None


def served_name(folder: Path) -> str:
    """Return the name by which clients ask for the model of a folder: the folder's own."""
    path = folder.expanduser().absolute()
    return (path.resolve() if path.name in ("", "..") else path).name


def check_names(folders: Sequence[Path]) -> None:
    """Refuse two folders of the same name, which clients could not tell apart."""
    known: dict[str, Path] = {}
    for folder in folders:
        name = served_name(folder)
        if name in known:
            raise BermoError(
                f'{known[name]} and {folder} would both be served as "{name}". Rename or copy one of them.'
            )
        known[name] = folder
