"""bermo serve: models over HTTP, their requests gathered into batches."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bermo.errors import BermoError
from bermo.fields import positional
from bermo.ship.serve.address import check_names, take_address
from bermo.ship.serve.spec import ServeSpec
from bermo.verbs.importing import importing_answers
from bermo.verbs.verb import Verb

PACKAGES = ("starlette", "uvicorn")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Which models are served, where, and within which limits."""

    folders: tuple[Path, ...] = positional(
        "folders of exports, runs or models; a folder's name is the model's name",
        is_list=True,
        metavar="folder",
    )
    spec: ServeSpec = ServeSpec()


def run(options: ServeOptions) -> int:
    from bermo.runs.model_files import find_model
    from bermo.verbs.starting import say_start

    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise BermoError(
            f'This needs {" and ".join(missing)}. Install the extra: pip install "bermo[serve]".'
        )
    check_names(options.folders)
    for folder in options.folders:
        find_model(folder)
    say_start("serve", ", ".join(str(folder) for folder in options.folders))
    with take_address(options.spec) as listener:
        with importing_answers(*options.folders):
            from bermo.report.terminal import TerminalDisplay
            from bermo.ship.serve.run import serve

        return serve(options.folders, options.spec, listener, TerminalDisplay())


VERB = Verb(
    help="serve models over HTTP: answers and vectors, batches on the fly",
    options=ServeOptions,
    run=run,
    usage="bermo serve FOLDER [FOLDER …] [--port 8000] [options]",
)
