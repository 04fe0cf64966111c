"""The command line: words -> a verb and its options. What a verb does stands in `verbs/`."""

import argparse
import io
import os
import signal
import sys
from typing import NoReturn

from bermo.errors import BermoError, nearest
from bermo.verbs import VERBS
from bermo.verbs.ending import STOPPED
from bermo.verbs.options import add_options, flags_of, read_options, take_words

FULL_DISK = "The disk is full. What was saved before is whole: make room, and the same command goes on."
BROKEN_PIPE = 13  # the number of SIGPIPE, which Windows does not have
DESCRIPTION = "Mix, fine-tune, prune, probe and ship Transformer encoders."


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one sentence, the nearest known name."""

    def error(self, message: str) -> NoReturn:
        raise BermoError(f"{message}. See: {self.prog} --help")


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """Declare all verbs and their options; return the parser of the command and those of the verbs."""
    parser = Parser(prog="bermo", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    choices = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    parsers = {}
    for name, verb in VERBS.items():
        parsers[name] = choices.add_parser(name, help=verb.help, usage=verb.usage, allow_abbrev=False)
        add_options(parsers[name], verb.options)
    return parser, parsers


def main(arguments: list[str] | None = None) -> int:
    """Run the command; a user's mistake is one sentence and exit code 2."""
    _print_any_character()
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
        return STOPPED + BROKEN_PIPE
    except Exception as error:
        # safetensors has an error class of its own for a full disk, with no number in it.
        if "No space left on device" not in str(error):
            raise
        print(f"bermo: {FULL_DISK}", file=sys.stderr)
        return 1


def _print_any_character() -> None:
    """Let the terminal show a question mark for a character it lacks, such as × in Windows' old encodings."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _dispatch(arguments: list[str]) -> int:
    parser, parsers = build_parser()
    parsed, rest = parser.parse_known_args(arguments)
    if parsed.verb is not None:
        rest = take_words(VERBS[parsed.verb].options, parsed, rest)
    if rest:
        known = flags_of(parsers.get(parsed.verb, parser)._actions)
        raise BermoError(f'Unknown option "{rest[0]}".{nearest(rest[0].split("=")[0], known)}')
    if parsed.verb is None:
        _answer_without_verb(parser, parsed.version)
        return 0
    verb = VERBS[parsed.verb]
    return verb.run(read_options(verb.options, parsed))


def _answer_without_verb(parser: Parser, wants_version: bool) -> None:
    if wants_version:
        from importlib.metadata import version

        print(version("bermo"))
    else:
        parser.print_help()


if __name__ == "__main__":
    sys.exit(main())
