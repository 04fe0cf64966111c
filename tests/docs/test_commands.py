"""Every command and every Python block of the documents runs, in the order of their page, in one folder.

A page works alone and beside what the others left: each process of the tests has one folder for all its
pages.
"""

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.methods.probing import fitting
from bermo.nn import probes
from bermo.nn.probes import Settings
from bermo.ship.compress import plan as planning
from tests.docs.documents import ROOT, Command, blocks, commands, documents, name_of
from tests.docs.user_files import write_user_files

TRAIN = "--max-length 16 --epochs 1 --batch-size 8 --device cpu"
SMALLER = {
    "train": TRAIN,
    "pretrain": "--length 16 --steps 4 --batch-size 3 --held-out 0.4 --precision fp32 --device cpu",
    "analyse": "--max-texts 12 --rows 8 --max-length 16 --device cpu",
    "shrink": "--device cpu --examples 8",
    "export": "--max-loss 100",
    "bench": "--rounds 1 --lengths 16 --batch 1,2",
    "atlas": f"{TRAIN} --head random --pooling first --rounds 1 --lengths 16 --batch 1,2",
    "compress": "--rounds 1 --lengths 16 --batch 1,2 --max-loss 100 --forms onnx-int8-signed",
}
"""Options that make a command small enough for a test; the last of two wins."""
NO_GOAL_MET = 3
"""What `bermo compress` ends with where no candidate meets the goal: a tiny model may not."""
REFUSED = "Nothing was written. Try another form."
"""A model that has hardly begun to learn has logits near zero, which rounding moves too far."""
VALUES = {"fine", "good", "bad"}
"""Words of a printed line that depend on the training."""
PAGES = [path for path in documents() if commands(path)]
PYTHON = [
    path
    for path in documents()
    if blocks(path, "python") and not {"reference", "notebooks"} & set(path.parts)
]


def smaller(words: tuple[str, ...]) -> list[str]:
    """Return a command of ours without its first word, offline and tiny."""
    verb = words[1]
    known = [word.replace("bert-base-uncased", "box").replace("2,4,6", "1,3") for word in words[1:]]
    known += SMALLER.get(verb, "").split()
    if verb == "compress" and not {"--quick", "--no-training"} & set(known):
        known += ["--epochs", "1", "--batch-size", "8"]
    if "best" in known:
        known += ["--rounds", "1", "--lengths", "16", "--batch", "1,2", "--forms", "onnx,onnx-int8-signed"]
    if verb == "run":
        known += (
            [] if "--tiny" in known else ["train.precision=fp32", "data.max_length=16", "train.together=1"]
        )
        known += [] if "--tiny" in known or "--seeds" in known else ["--seeds", "1"]
    if "--trees" in known:
        known += ["--max-texts", "60"]
    if verb == "probe":
        known = _smaller_probe(known)
    if "--short-length" in known:
        known += ["--length", "40"]
    if verb == "pretrain" and "elmo" in known:
        known += ["--cells", "16", "--projection", "8", "--vocabulary", "300"]
    elif verb == "pretrain" and "--model" not in known:
        known += ["--config", "tiny", "--vocabulary", "300"]
    if verb == "train" and "--seeds" in known:
        known += ["--seeds", "2"]
    return known


def few_steps(classes: int, rows: int, spec: fitting.ProbeSpec) -> Settings:
    """A probe that has hardly begun to learn prints the same lines."""
    return Settings(penalties=(1e-3, 1e-4), evaluations=2, mix_steps=60, seed=spec.seed)


def _smaller_probe(words: list[str]) -> list[str]:
    if "finetune" in words:
        words += ["--epochs", "1", "--seeds", "1", "--precision", "fp32", "--limit", "24"]
        words += ["data.max_length=16", "train.batch_size=8"]
    else:
        words += ["--limit", "60", "--no-controls"]
    if "--words" in words:
        return words
    known = words.index("--tasks") + 1 if "--tasks" in words else None
    if known is not None:
        words[known] = "tense"
    return words


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, in which the commands of all documents are given one after the other."""
    folder = tmp_path_factory.mktemp("user")
    write_user_files(folder)
    return folder


@pytest.fixture(autouse=True)
def own_leavings() -> Iterator[None]:
    """What a page has left stays: each training collects garbage, and would walk through all of it."""
    yield
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("bench_here", "quick_traces", "shallow_box", "warm_python")
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_command_of_a_document_runs_in_the_folder_of_all_documents(
    path: Path,
    one_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(planning, "AROUND", (1.0,))
    monkeypatch.setattr(probes, "LEAST_STEPS", 4)
    monkeypatch.setattr(fitting, "settings_for", few_steps)
    monkeypatch.chdir(one_folder)
    for command in commands(path):
        if command.words[0] == "bermo":
            _run(command, capsys)
        else:
            _check_exists(command)


def _run(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(smaller(command.words))
    printed = capsys.readouterr()
    allowed = (0, NO_GOAL_MET) if command.words[1] in ("compress", "atlas") else (0,)
    if command.words[1] == "export" and REFUSED in printed.err:
        return
    assert code in allowed, (command.words, printed.err)
    for line in command.printed:
        assert words_of(line) <= words_of(printed.out) | VALUES, (line, printed.out)


def words_of(text: str) -> set[str]:
    """Return the words of what is printed, without numbers and bars."""
    return set(re.findall(r"[A-Za-z_][\w-]*", text))


def _check_exists(command: Command) -> None:
    """A command that a test cannot run here must at least name files that exist."""
    program, *rest = command.words
    assert program in ("pip", "make", "accelerate", "python", "git"), command.words
    if program == "python" and not rest[0].startswith("-"):
        assert (ROOT / rest[0]).exists(), command.words


# A machine without a GPU, where transformers.Trainer asks for pinned memory.
@pytest.mark.filterwarnings("ignore:'pin_memory'")
@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_the_python_of_a_document_runs_in_the_folder_of_all_documents(
    path: Path, one_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(one_folder)
    for code in blocks(path, "python"):
        exec(code.replace('"bert-base-uncased"', '"box"'), {})


def test_every_file_of_the_repository_that_a_document_names_exists() -> None:
    named = re.compile(
        r"(?<![\w/])(?:benchmarks|scripts|tests|results|bermo)/[\w./-]+\.(?:py|sh|json|md|svg|txt)\b"
    )
    for path in documents():
        for name in named.findall(path.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{name_of(path)} names {name}"
