"""Workers of the bench in this process: starting one for each candidate takes longer than a test."""

from typing import Any

from bermo.ship.bench.worker import Entry, Served


class WorkerHere:
    """Answer as a worker does, without a process and a pipe; tests/ship/bench starts real ones."""

    def __init__(self, entry: Entry) -> None:
        self.served = Served(entry)

    def ask(self, what: str, *arguments: Any) -> Any:
        """Return the candidate's answer."""
        return getattr(self.served, what)(*arguments)

    def close(self, *ended_by: object) -> None:
        """There is no process to end."""
