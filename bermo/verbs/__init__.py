"""The verbs of the command: each module declares its options (`add_options`) and does the work (`run`).

Heavy imports live inside `run`, so that --help is instant. `VERBS` is their order in the help.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Protocol, cast

from bermo.verbs import (
    analyse,
    bench,
    catalogue,
    compress,
    demo,
    export,
    predict,
    pretrain,
    probe,
    recipe,
    report,
    show,
    shrink,
    train,
)


class Verb(Protocol):
    """What a verb's module holds."""

    HELP: str

    def add_options(self, parser: ArgumentParser) -> None: ...

    def run(self, options: Namespace) -> int: ...


VERBS: Mapping[str, Verb] = {
    name: cast(Verb, module)
    for name, module in {
        "demo": demo,
        "train": train,
        "predict": predict,
        "pretrain": pretrain,
        "probe": probe,
        "analyse": analyse,
        "shrink": shrink,
        "export": export,
        "bench": bench,
        "compress": compress,
        "list": catalogue,
        "show": show,
        "run": recipe,
        "report": report,
    }.items()
}
