"""A verb's options: the fields of its dataclass as arguments of argparse, and back."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from bermo.fields import Leaf, check, leaves, without_none
from bermo.values import from_texts

T = TypeVar("T")
METAVARS = {int: "N", float: "X", Path: "PATH"}


def add_options(parser: ArgumentParser, kind: type) -> None:
    """Declare an argument for every field of the verb's dataclass, in the groups that the fields name."""
    known = leaves(kind)
    has_positional = any(leaf.option.is_positional for leaf in known)
    groups: dict[str | None, Any] = {None: parser}
    for leaf in known:
        if leaf.title not in groups:
            groups[leaf.title] = parser.add_argument_group(leaf.title)
        if leaf.option.is_positional:
            _add_positional(parser, leaf)
        else:
            _add_flag(groups[leaf.title], leaf, has_positional)


def _add_positional(parser: ArgumentParser, leaf: Leaf) -> None:
    counts = ("+", "*") if leaf.option.is_list else (None, "?")
    count = counts[0 if leaf.is_required else 1]
    shown = leaf.option.metavar or leaf.flag
    # argparse takes a list for required unless its default is named.
    extra: dict[str, Any] = {} if leaf.is_required else {"default": None}
    parser.add_argument(leaf.dotted, nargs=count, metavar=shown, help=_escape(leaf.help), **extra)


def _add_flag(parser: Any, leaf: Leaf, has_positional: bool) -> None:
    extra: dict[str, Any] = {"metavar": leaf.option.metavar or _metavar(leaf)}
    if leaf.is_switch:
        word = "false" if leaf.flag.startswith("no-") else "true"
        extra["metavar"] = "true|false"
        # Where words without a flag are expected, a switch takes no value: it would swallow the next word.
        extra = {"action": "store_const"} if has_positional else {**extra, "nargs": "?"}
        extra["const"] = word
    elif leaf.option.is_list:
        extra["nargs"] = "+"
    elif leaf.option.is_repeated:
        extra["action"] = "append"
    if leaf.is_required:
        extra["required"] = True
    parser.add_argument(f"--{leaf.flag}", dest=leaf.dotted, help=_escape(leaf.help + _shown(leaf)), **extra)


def _metavar(leaf: Leaf) -> str:
    hint = without_none(leaf.hint)
    if get_origin(hint) is not tuple:
        return METAVARS.get(hint, "X")
    word = METAVARS.get(get_args(hint)[0], "X")
    return word if leaf.option.is_list or leaf.option.is_repeated else f"{word},{word}"


def _shown(leaf: Leaf) -> str:
    """The default in brackets, where there is one; a switch is off unless it is given."""
    if leaf.option.shown is not None:
        return f" [{leaf.option.shown}]"
    is_off = leaf.default is None or leaf.default is False or leaf.default == ()
    if leaf.is_required or is_off or leaf.flag.startswith("no-"):
        return ""
    return f" [{show_value(leaf.default)}]"


def _escape(text: str) -> str:
    return text.replace("%", "%%")  # argparse formats help texts


def show_value(value: object) -> str:
    """Write a field's value as its flag would take it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def read_options(kind: type[T], arguments: Namespace) -> T:
    """Return the verb's options as they were typed, checked; a value that makes no sense is one sentence."""
    given = {leaf.dotted: getattr(arguments, leaf.dotted) for leaf in leaves(kind)}
    return check(from_texts(kind, {name: text for name, text in given.items() if text not in (None, [])}))


def take_words(kind: type, arguments: Namespace, rest: Iterable[str]) -> list[str]:
    """Give words behind the first option to the verb's positional that takes them; return what is left.

    argparse gives a list or an optional word only what stands before the first option.
    """
    known = [leaf for leaf in leaves(kind) if leaf.option.is_positional]
    lists = [leaf.dotted for leaf in known if leaf.option.is_list]
    missing = [leaf.dotted for leaf in known if getattr(arguments, leaf.dotted) is None]
    left = []
    for word in rest:
        is_word = word == "-" or not word.startswith("-")
        if lists and is_word:
            getattr(arguments, lists[0]).append(word)
        elif missing and is_word:
            setattr(arguments, missing.pop(0), word)
        else:
            left.append(word)
    return left


def flags_of(actions: Iterable[Any]) -> set[str]:
    """All flags that a parser knows."""
    return {flag for action in actions for flag in action.option_strings}
