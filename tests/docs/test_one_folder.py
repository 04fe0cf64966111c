"""The commands of all documents can be given in one folder: a folder's name stands for one command."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.documents import commands, documents, name_of

WRITE_ONCE = ("export", "shrink", "predict", "evaluate")
"""Verbs that never go on in what they have written."""


def written() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the document, the words and the output of every command that writes a folder or a file."""
    for path in documents():
        for command in commands(path):
            words = command.words
            out = output_of(words) if words[0] == "bermo" else None
            if out is not None:
                yield name_of(path), words, out


def output_of(words: tuple[str, ...]) -> str | None:
    """Return where a command writes, also where it does not say so."""
    verb = words[1]
    if verb == "report":  # a page of ours is written anew
        return None
    if "--out" in words:
        return words[words.index("--out") + 1]
    match verb:
        case "run":
            tiny = "-tiny" if "--tiny" in words else ""
            return f"runs/{words[2].replace('/', '-')}{tiny}"
        case "export":
            return f"{words[2]}-{words[words.index('--to') + 1]}"
        case "compress":
            return f"{words[2]}-small"
        case "probe":
            return f"runs/probe-{'finetune' if 'finetune' in words else 'frozen'}"
    return None


def without_arms(words: tuple[str, ...]) -> str:
    """A recipe's arms have folders of their own inside the recipe's, so it does not matter which are run."""
    return re.sub(r" --arms \S+", "", " ".join(words))


def test_a_folder_stands_for_one_command_in_all_documents() -> None:
    known: dict[str, tuple[str, str]] = {}
    for page, words, out in written():
        first = known.setdefault(out, (page, without_arms(words)))
        assert first[1] == without_arms(words), f"{out}: {first[0]} and {page}"


def test_what_is_written_once_is_asked_for_once() -> None:
    outs = [out for _, words, out in written() if words[1] in WRITE_ONCE]
    assert {out for out in outs if outs.count(out) > 1} == set()


def test_outputs_that_are_not_named_are_known() -> None:
    assert output_of(("bermo", "export", "runs/a", "--to", "onnx")) == "runs/a-onnx"
    assert output_of(("bermo", "run", "paper/x", "--tiny")) == "runs/paper-x-tiny"
    assert output_of(("bermo", "train", "--train", "my.csv", "--out", "runs/a")) == "runs/a"
    assert output_of(("bermo", "predict", "runs/a", "texts.txt")) is None
    assert Path(str(output_of(("bermo", "compress", "runs/a", "--size", "1MB")))).name == "a-small"
