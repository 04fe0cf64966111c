"""A request that is not answered: its status and one sentence, which becomes {"error": sentence}."""

from collections.abc import Mapping

from bermo.errors import BermoError


class Refused(BermoError):
    """A mistake of the client, a full queue or a server that stops, with the status of HTTP that says so."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, dict(headers or {})
