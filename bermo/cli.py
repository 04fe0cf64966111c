"""The command line: words -> a verb's `run`. What a verb is and does stands in `verbs/`."""

import argparse
import os
import signal
import sys
from typing import NoReturn

from bermo.errors import BermoError, nearest
from bermo.verbs import VERBS
from bermo.verbs.ending import STOPPED

FULL_DISK = "The disk is full. What was saved before is whole: make room, and the same command goes on."
DESCRIPTION = "Mix, fine-tune, prune, probe and ship Transformer encoders."


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one sentence, the nearest known name."""

    def error(self, message: str) -> NoReturn:
        raise BermoError(f"{message}. See: {self.prog} --help")


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """Declare all verbs and their options; returns the whole and the part of each verb."""
    parser = Parser(prog="bermo", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    choices = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    parts = {}
    for name, verb in VERBS.items():
        parts[name] = choices.add_parser(name, help=verb.HELP, allow_abbrev=False)
        verb.add_options(parts[name])
    return parser, parts


def main(arguments: list[str] | None = None) -> int:
    """Run the command; a user's mistake is one sentence and exit code 2."""
    try:
        return _dispatch(sys.argv[1:] if arguments is None else arguments)
    except BermoError as error:
        print(f"bermo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bermo: Stopped. What was saved is whole; the same command goes on.", file=sys.stderr)
        return STOPPED + signal.SIGINT
    except BrokenPipeError:  # `bermo list | head`: the reader has gone, and so may we
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return STOPPED + signal.SIGPIPE
    except Exception as error:
        # safetensors has an error class of its own for a full disk, with no number in it.
        if "No space left on device" not in str(error):
            raise
        print(f"bermo: {FULL_DISK}", file=sys.stderr)
        return 1


def _dispatch(arguments: list[str]) -> int:
    parser, parts = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if options.verb == "run":  # argparse takes positional words before the first option only
        options.changes += [word for word in rest if not word.startswith("-")]
        rest = [word for word in rest if word.startswith("-")]
    if rest:
        known = {
            flag for action in parts.get(options.verb, parser)._actions for flag in action.option_strings
        }
        raise BermoError(f'Unknown option "{rest[0]}".{nearest(rest[0].split("=")[0], known)}')
    if options.verb is None:
        _answer_without_verb(parser, options.version)
        return 0
    return VERBS[options.verb].run(options)


def _answer_without_verb(parser: Parser, wants_version: bool) -> None:
    if wants_version:
        from importlib.metadata import version

        print(version("bermo"))
    else:
        parser.print_help()


if __name__ == "__main__":
    sys.exit(main())
