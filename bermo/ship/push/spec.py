"""What is sent to the model hub, under which name, and who may see it."""

from dataclasses import dataclass
from pathlib import Path

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
