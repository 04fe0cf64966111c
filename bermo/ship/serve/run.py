"""bermo serve: the models loaded, and the end on Ctrl-C or SIGTERM.

At the first signal the server takes no more requests: /health and all new ones get 503, on connections that
are then closed. After `LAST_CALL` seconds, in which balancers and clients on open connections learn of it, it
stops to listen, waits for what it took, and ends with code 0. A second signal ends it at once.
"""

import logging
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from bermo.interrupts import SIGNALLED
from bermo.progress import Display
from bermo.runs.model_files import warn_diverged
from bermo.ship.serve.address import BACKLOG, listen
from bermo.ship.serve.app import Server
from bermo.ship.serve.model import ServedModel
from bermo.ship.serve.spec import ServeSpec

LAST_CALL = 1.0
KEPT_OPEN = 75
"""Seconds that a connection may be idle: more than balancers keep theirs (60), so that they close first."""


def serve(folders: Sequence[Path], spec: ServeSpec, listener: socket.socket, display: Display) -> int:
    """Serve the models of the folders until a signal comes; return the exit code."""
    for folder in folders:
        warn_diverged(folder, display.tell)
    server = Server([ServedModel(folder, spec) for folder in folders], spec)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    line = f"Serving {', '.join(server.models)} on http://{shown}:{port} (Ctrl-C ends)"
    listen(listener, spec)  # before the line is read, and somebody connects
    _run(server, listener, lambda: display.tell(line))
    return 0


def _run(server: Server, listener: socket.socket, started: Callable[[], None]) -> None:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        server.app(started),
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


def _stopper(server: Server, running: uvicorn.Server) -> Callable[[int, FrameType | None], None]:
    """Return what is done at a signal."""

    def stop(number: int, _: FrameType | None) -> None:
        if server.is_stopping:  # a model in a thread computes on, and what waits for it would be tracebacks
            os._exit(SIGNALLED + number)
        server.stop(lambda: setattr(running, "should_exit", True), LAST_CALL)

    return stop
