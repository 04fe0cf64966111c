"""bermo push: a shipped model on the model hub, with a card. Nothing is sent unless this is typed."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import positional
from bermo.ship.push.spec import PushSpec, check_owner
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Which folder goes to the hub, and its name there."""

    folder: Path = positional("folder of a run, of bermo shrink, of bermo compress or of bermo export")
    name: str = positional("OWNER/NAME of the model on the hub")
    spec: PushSpec = PushSpec()


def run(options: PushOptions) -> int:
    from bermo.runs.model_files import find_model, warn_diverged
    from bermo.verbs.starting import check_files, say_start

    check_owner(options.name)
    find_model(options.folder)
    check_files(options.spec.bench)
    doing = "would be sent" if options.spec.dry_run else "sending"
    say_start("push", f"{doing}: {options.folder} as {options.name}")
    from bermo.printing import number_of, say
    from bermo.report.terminal import TerminalDisplay
    from bermo.ship.push.files import num_bytes
    from bermo.ship.push.send import push

    warn_diverged(options.folder, TerminalDisplay().tell)
    done = push(options.folder, options.name, options.spec)
    for name, file in done.files.items():
        say(f"{file.stat().st_size / 1e6:10.2f} MB  {name}")
    who = "everybody" if options.spec.public else "you alone"
    total = f"{number_of(len(done.files), 'file')}, {num_bytes(done.files) / 1e6:.2f} MB"
    if done.url is None:
        say(f"\n{total}, for {who} to see as {done.name}. The card, README.md:\n\n{done.card}")
    else:
        say(f"\n{total}: {done.url}")
    return 0


VERB = Verb(
    help="send a shipped model and its card to the model hub",
    options=PushOptions,
    run=run,
    usage="bermo push FOLDER OWNER/NAME [--public] [--dry-run]",
)
