"""The verbs of the command: each module declares its options as a dataclass and does the work in `run`.

Heavy imports live inside `run`, so that --help imports none of them. A verb's module is imported when the
verb is asked for: a command pays for its own options alone.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

from bermo.verbs.verb import Verb

MODULES: Mapping[str, str] = {
    "demo": "bermo.verbs.demo",
    "train": "bermo.verbs.train",
    "evaluate": "bermo.verbs.evaluate",
    "predict": "bermo.verbs.predict",
    "encode": "bermo.verbs.encode",
    "similar": "bermo.verbs.similar",
    "pretrain": "bermo.verbs.pretrain",
    "probe": "bermo.verbs.probe",
    "analyse": "bermo.verbs.analyse",
    "shrink": "bermo.verbs.shrink",
    "export": "bermo.verbs.export",
    "bench": "bermo.verbs.bench",
    "compress": "bermo.verbs.compress",
    "atlas": "bermo.verbs.atlas",
    "serve": "bermo.verbs.serve",
    "push": "bermo.verbs.push",
    "list": "bermo.verbs.catalogue",
    "show": "bermo.verbs.show",
    "run": "bermo.verbs.recipe",
    "jobs": "bermo.verbs.jobs",
    "search": "bermo.verbs.search",
    "report": "bermo.verbs.report",
    "doctor": "bermo.verbs.doctor",
}
"""The module of each verb, in the order of the help; its `VERB` is the verb."""


class Verbs(Mapping[str, Verb]):
    """The verbs by their names."""

    def __getitem__(self, name: str) -> Verb:
        return cast(Verb, import_module(MODULES[name]).VERB)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)

    def __contains__(self, name: object) -> bool:
        return name in MODULES


VERBS = Verbs()
