"""bermo serve: the models loaded, the address taken, and the end on Ctrl-C or SIGTERM.

At the first signal the server takes no more requests: /health and all new ones get 503, on connections that
are then closed. After `LAST_CALL` seconds, in which balancers and clients on open connections learn of it, it
stops to listen, waits for what it took, and ends with code 0. A second signal ends it at once.
"""

import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from bermo.errors import BermoError
from bermo.interrupts import SIGNALLED
from bermo.progress import Display
from bermo.runs.model_files import warn_diverged
from bermo.ship.serve.app import Server
from bermo.ship.serve.model import ServedModel, check_names
from bermo.ship.serve.spec import ServeSpec

LAST_CALL = 1.0
KEPT_OPEN = 75
"""Seconds that a connection may be idle: more than balancers keep theirs (60), so that they close first."""
BACKLOG = 2048


def serve(folders: Sequence[Path], spec: ServeSpec, display: Display) -> int:
    """Serve the models of the folders until a signal comes; return the exit code."""
    check_names(folders)
    for folder in folders:
        warn_diverged(folder, display.tell)
    with _listening(spec) as listener:
        server = Server([ServedModel(folder, spec) for folder in folders], spec)
        listener.listen(BACKLOG)  # before the line below is read, and somebody connects
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        display.tell(f"Serving {', '.join(server.models)} on http://{shown}:{port} (Ctrl-C ends)")
        return _run(server, listener)


def _listening(spec: ServeSpec) -> socket.socket:
    """Take the address before models are loaded; connections are taken only when they are."""
    try:
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
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BermoError(
            f"bermo cannot listen on {spec.host}:{spec.port} ({reason}). Choose another --host or --port."
        ) from None


def _run(server: Server, listener: socket.socket) -> int:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        server.app(),
        http="h11",  # the one whose headers have a longest size
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEPT_OPEN,
        backlog=BACKLOG,
    )
    running = uvicorn.Server(config)
    running.handle_exit = _stopper(server, running)  # type: ignore[assignment,method-assign]
    running.run([listener])
    return SIGNALLED + signal.SIGINT if running.force_exit else 0


def _stopper(server: Server, running: uvicorn.Server) -> Callable[[int, FrameType | None], None]:
    """Return what is done at a signal."""

    def stop(_: int, __: FrameType | None) -> None:
        if server.is_stopping:
            running.should_exit = running.force_exit = True
        server.stop(lambda: setattr(running, "should_exit", True), LAST_CALL)

    return stop
