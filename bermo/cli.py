"""The command line: words -> a verb and its options. What a verb does stands in `verbs/`."""

import argparse
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NoReturn

from bermo.crashes import describe, was_interrupted
from bermo.errors import BermoError, FolderHeld
from bermo.interrupts import (
    INTERRUPTED,
    SIGNALLED,
    STOPPED,
    die_quietly,
    follow_ctrl_c,
    own_process_,
    raise_again,
    repeat_lost,
)
from bermo.printing import visible
from bermo.verbs import VERBS
from bermo.verbs.hints import option_hint, verb_hint, whose_options, word_hint
from bermo.verbs.options import add_options, flags_of, read_options, take_words

BROKEN_PIPE = 13  # the number of SIGPIPE, which Windows does not have
SPINS = "2000"  # about 0.1 ms: longer than Python takes from one operation to the next
DESCRIPTION = "Mix, fine-tune, prune, probe and ship Transformer encoders."


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one sentence, the nearest known name."""

    def error(self, message: str) -> NoReturn:
        raise BermoError(f"{message}. See: {self.prog} --help")


@cache
def build_parser(only: str | None = None) -> tuple[Parser, dict[str, Parser]]:
    """Declare all verbs, or only one, and their options; return the parser of the command and those of the
    verbs.
    """
    parser = _bare_parser()
    choices = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    parsers = {}
    for name in VERBS if only is None else (only,):
        verb = VERBS[name]
        parsers[name] = choices.add_parser(name, help=verb.help, usage=verb.usage, allow_abbrev=False)
        add_options(parsers[name], verb.options)
    return parser, parsers


def _bare_parser() -> Parser:
    parser = Parser(prog="bermo", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


class Flags(Mapping[str, set[str]]):
    """The flags of each verb, and under "" those of the command; a verb is declared when it is looked up."""

    def __getitem__(self, name: str) -> set[str]:
        return flags_of((build_parser(name)[1][name] if name else _bare_parser())._actions)

    def __iter__(self) -> Iterator[str]:
        return chain([""], VERBS)

    def __len__(self) -> int:
        return 1 + len(VERBS)


def command() -> NoReturn:
    """Be the command `bermo`: run it, and end this process by its exit code."""
    leave(main())


def leave(code: int) -> NoReturn:
    """End the process, threads and what is registered for its end done, but leave its modules as they are: to
    take down torch's and transformers' takes a sixth of a second.
    """
    import atexit
    import threading

    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # Python says what it thinks of it
        sys.exit(code)
    os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: whatever goes wrong is one sentence, never a traceback.

    2 is for a mistake of the user, 1 for a failure of the machine or of bermo, 75 for a stop after which the
    same command goes on.
    """
    if arguments is None:
        return _run_process(sys.argv[1:])
    _prepare_streams()
    try:
        code = _dispatch(arguments)
        # Here rather than when Python ends, where a reader that is gone or a full disk gives a traceback.
        sys.stdout.flush()
        return code
    except SystemExit:
        raise
    except BaseException as error:
        code = _explain(error)
        # Read when the group of several processes is ended: after an error the others may wait for ever.
        sys.last_value = error.with_traceback(None)
        return code


def _run_process(arguments: list[str]) -> int:
    """Run the command as the one thing that this process does, so that its signals are ours."""
    own_process_()
    _wait_briefly()
    raise_again()
    follow_ctrl_c()
    repeat_lost()
    try:
        code = main(arguments)
    except KeyboardInterrupt as error:  # in its last moments: main explains any other
        code = _explain(error)
    finally:
        try:
            die_quietly()
        except KeyboardInterrupt:  # the work is done: only the signals are left to be set
            die_quietly()
    return code


def _wait_briefly() -> None:
    """Let OpenMP's threads sleep soon where they wait for each other, unless the user says how they wait.

    Without a word they spin for 300,000 rounds, 10 ms and more, and so take the core from the thread that
    they wait for wherever another process computes too. It is read when torch is imported.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS


def _explain(error: BaseException) -> int:
    """Print one sentence about what ended the command, and return the exit code."""
    if isinstance(error, BrokenPipeError):  # `bermo list | head`: the reader has gone, and so may we
        _discard_output()
        return SIGNALLED + BROKEN_PIPE
    if was_interrupted(error):
        sentence, code = INTERRUPTED, STOPPED
    elif isinstance(error, BermoError):
        sentence, code = str(error), STOPPED if isinstance(error, FolderHeld) else 2
    else:
        sentence, code = describe(error), 1
        _discard_output()
    with suppress(OSError):
        print(f"bermo: {visible(sentence)}", file=sys.stderr)
    return code


def _prepare_streams() -> None:
    """Let the terminal show a question mark for a character it lacks, such as × in Windows' old encodings.

    A stream that was closed before we started takes what is printed and drops it.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8", newline="\n"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Drop what is still to be printed where nothing can be: Python would try once more when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    asked = arguments[0] if arguments and arguments[0] in VERBS else None
    if arguments and not arguments[0].startswith("-") and asked is None:
        raise BermoError(f'There is no verb "{arguments[0]}".{verb_hint(arguments[0], VERBS)}')
    parser, _ = build_parser(asked)
    parsed, rest = parser.parse_known_args(arguments)
    if parsed.verb is not None:
        rest = take_words(VERBS[parsed.verb].options, parsed, rest)
    if rest:
        _refuse_word(rest[0], parsed.verb)
    if parsed.verb is None:
        _answer_without_verb(parser, parsed.version)
        return 0
    verb = VERBS[parsed.verb]
    try:
        return verb.run(read_options(verb.options, parsed))
    except BermoError as error:
        note = whose_options(str(error), parsed.verb, Flags())
        if not note:
            raise
        raise BermoError(f"{error}{note}") from error


def _refuse_word(word: str, verb: str | None) -> NoReturn:
    """Say of an option that the verb does not have, or of a word too many, what may have been meant."""
    known = Flags()
    if not word.startswith("-"):
        raise BermoError(f'"{word}" is one word too many.{word_hint(verb, word, known)}')
    flag = word.split("=")[0]
    raise BermoError(f'Unknown option "{word}".{option_hint(verb, flag, known)}')


def _answer_without_verb(parser: Parser, wants_version: bool) -> None:
    if wants_version:
        from importlib.metadata import version

        print(version("bermo"))
    else:
        parser.print_help()


if __name__ == "__main__":
    sys.exit(main())
