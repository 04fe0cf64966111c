"""What a user may have meant: names that other tools have for our verbs and options, and slips."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from bermo.aliases import OPTION_ALIASES
from bermo.fields import leaves
from bermo.spec import RunSpec

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
ALIKE = 0.7
"""How alike two names are, from 0 to 1, for one to be taken as a slip of the other."""
ALMOST = 0.9
"""With this a slip is likelier than an option of another verb: --task for --tasks."""

VERB_ALIASES: Mapping[str, str] = {
    "finetune": "train",
    "fine-tune": "train",
    "fit": "train",
    "prune": "train",
    "distil": "train",
    "distill": "train",
    "eval": "evaluate",
    "test": "evaluate",
    "score": "evaluate",
    "infer": "predict",
    "inference": "predict",
    "classify": "predict",
    "benchmark": "bench",
    "time": "bench",
    "quantize": "export",
    "quantise": "export",
    "convert": "export",
    "onnx": "export",
    "upload": "push",
    "publish": "push",
    "analyze": "analyse",
    "info": "doctor",
    "check": "doctor",
    "recipes": "list",
    "tasks": "list",
}
"""What others call a verb of ours."""


def verb_hint(name: str, verbs: Iterable[str]) -> str:
    """Say which verb was meant, or name them all."""
    known = sorted(verbs)
    meant = VERB_ALIASES.get(name.lower())
    if meant not in known:
        close = get_close_matches(name.lower(), known, n=1, cutoff=ALIKE)
        meant = close[0] if close else None
    return f' Did you mean "{meant}"?' if meant else f" Known: {', '.join(known)}."


def option_hint(verb: str | None, flag: str, flags: Mapping[str, Iterable[str]]) -> str:
    """Say which option of the verb was meant, or which verbs have it; `flags` are those of each verb."""
    own = set(flags[verb or ""])
    written = "--" + flag.strip("-").lower().replace("_", "-")
    for meant in (written, *OPTION_ALIASES.get(written, ())):
        if meant.split()[0] in own:
            return f' Did you mean "{meant}"?'
    if near := get_close_matches(written, own, n=1, cutoff=ALMOST):
        return f' Did you mean "{near[0]}"?'
    others = [f"bermo {name}" for name, known in flags.items() if name and name != verb and flag in known]
    if others:
        return f" It belongs to {', '.join(others)}. See: {_command(verb)} --help"
    close = get_close_matches(written, own, n=1, cutoff=ALIKE)
    return f' Did you mean "{close[0]}"?' if close else f" See: {_command(verb)} --help"


def word_hint(verb: str | None, word: str, flags: Mapping[str, Iterable[str]]) -> str:
    """Say how a file is named to a verb that takes no bare word."""
    is_training = "--train" in flags[verb or ""] and Path(word).expanduser().is_file()
    return f" Did you mean --train {word}?" if is_training else f" See: {_command(verb)} --help"


def whose_options(sentence: str, verb: str, flags: Mapping[str, Iterable[str]]) -> str:
    """Say whose the options are that a sentence names and the verb lacks; a recipe has fields instead."""
    named = dict.fromkeys(FLAG.findall(sentence))
    lacking = [flag for flag in named if flag not in flags[verb] and not _is_told(sentence, flag, flags)]
    if verb == "run" and lacking:
        fields = {leaf.shown: leaf.dotted for leaf in leaves(RunSpec)}
        changes = ", ".join(f"{fields[flag]}=VALUE for {flag}" for flag in lacking if flag in fields)
        return f" (In bermo run: {changes}.)" if changes else ""
    for name in ("train", *flags):
        if lacking and set(lacking) <= set(flags[name]):
            return f" ({' and '.join(lacking)}: of bermo {name}.)"
    return ""


def _is_told(sentence: str, flag: str, flags: Mapping[str, Iterable[str]]) -> bool:
    """Tell whether the sentence names a verb that has the option, or nobody has it."""
    owners = [name for name, known in flags.items() if name and flag in known]
    return not owners or any(f"bermo {name}" in sentence for name in owners)


def _command(verb: str | None) -> str:
    return f"bermo {verb}" if verb else "bermo"
