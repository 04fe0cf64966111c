"""What is sent to the model hub, under which name, and who may see it."""

from dataclasses import dataclass
from pathlib import Path

from bermo.errors import BermoError
from bermo.fields import option


@dataclass(frozen=True, kw_only=True)
class PushSpec:
    """Who may see the model, and which numbers stand on its card."""

    public: bool = option(False, "everybody may see the model; without it only you, or your organisation")
    bench: Path | None = option(
        None,
        "what bermo bench --out wrote, for the card",
        metavar="FILE",
        shown="bench.json in the folder or beside it",
    )
    dry_run: bool = option(False, "list the files and print the card; nothing is sent, and nobody is asked")


def check_owner(name: str) -> None:
    """Refuse the name of a model without that of its owner, or with more."""
    if name.count("/") != 1:
        raise BermoError(
            f'"{name}" is not in the form OWNER/NAME. Give it so, such as me/{name.rpartition("/")[2]}.'
        )
