"""What stands for Python in a test's processes: it asks the server for a forked process, and is its proxy.

    python -IS client.py SOCKET WORDS…     WORDS as python takes them

Files, folder and environment are handed over, signals are passed on, and it ends as the forked process does.
When it is killed, the server kills the other. What wants a new interpreter (-I, -X, …) gets one. Nothing but
the standard library is imported, so it starts in a moment.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
HARMLESS = ("-u", "-B")
"""Options that a forked process can do without."""
BY_NUMBER = ["-m", "submitit.local._local"]
"""What is known to others by the number of its process, which a forked one does not share with its client."""
CODE_BYTES = 4


def main(path: str, words: list[str]) -> None:
    """Be a process in the place of the one that the server forks."""
    kept = list(words)
    while kept and kept[0] in HARMLESS:
        kept.pop(0)
    is_known = bool(kept) and (kept[0] in ("-m", "-c", "-") or not kept[0].startswith("-"))
    if not is_known or kept[:2] == BY_NUMBER:
        os.execv(sys.executable, [sys.executable, *words])
    # Python has handlers of its own for some; those that are ignored stay so.
    ignored = [number for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN]
    files = _open_files()
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    for number in set(PASSED_ON) - set(ignored):
        signal.signal(number, lambda sent, _: server.sendall(bytes([sent])))
    request = {
        "words": kept,
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
        "files": files,
        "ignored": ignored,
    }
    body = json.dumps(request).encode()
    socket.send_fds(server, [len(body).to_bytes(CODE_BYTES, "little")], files)
    server.sendall(body)
    # Whoever reads what the process writes waits for its end, not for ours.
    for number in files:
        if number != 2:
            os.close(number)
    _end_as(server)


def _open_files() -> list[int]:
    """The numbers of the files that whoever started this process left open for it."""
    known = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            os.fstat(int(name))
        except OSError:  # the listing itself
            continue
        known.append(int(name))
    return sorted(known)


def _end_as(server: socket.socket) -> None:
    """Wait for the forked process, and end with its code or by its signal."""
    said = server.recv(CODE_BYTES, socket.MSG_WAITALL)
    if len(said) < CODE_BYTES:
        os._exit(1)  # the tests are over
    code = int.from_bytes(said, "little", signed=True)
    if code >= 0:
        os._exit(code)
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
