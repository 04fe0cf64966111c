"""What the command answers to names that other tools have, and to slips of the keyboard."""

import ast
from pathlib import Path

import pytest

import bermo
from bermo import choices
from bermo.aliases import OPTION_ALIASES
from bermo.cli import main
from bermo.fields import leaves
from bermo.verbs import VERBS
from bermo.verbs.hints import FLAG, VERB_ALIASES, whose_options

PACKAGE = Path(bermo.__file__).parent
FLAGS = {name: {leaf.shown for leaf in leaves(verb.options)} for name, verb in VERBS.items()}
EVERY_FLAG = set.union(*FLAGS.values()) | {"--help", "--version"}
OF_OTHER_PROGRAMS = {"--query-gpu", "--format", "--no-deps"}
"""Flags in our texts that belong to nvidia-smi and pip."""


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("trian", 'There is no verb "trian". Did you mean "train"?'),
        ("finetune", 'There is no verb "finetune". Did you mean "train"?'),
        ("analyze", 'Did you mean "analyse"?'),
        ("fly", 'There is no verb "fly". Known: analyse, atlas,'),
        ("train --learning-rate 1e-3", 'Unknown option "--learning-rate". Did you mean "--lr"?'),
        ("train --learning_rate=1e-3", 'Unknown option "--learning_rate=1e-3". Did you mean "--lr"?'),
        ("train --num_train_epochs 3", 'Did you mean "--epochs"?'),
        ("train --per-device-train-batch-size 8", 'Did you mean "--batch-size"?'),
        ("train --model-name-or-path box", 'Did you mean "--model"?'),
        ("train --output_dir x", 'Did you mean "--out"?'),
        ("train --train-file my.csv", 'Did you mean "--train"?'),
        ("similar box my.csv --text film", 'Did you mean "--query"?'),
        ("analyse box --text my.csv --limit 5", 'Did you mean "--max-texts"?'),
        ("train --validation-file my.csv", 'Did you mean "--valid"?'),
        ("train --max-seq-length 64", 'Did you mean "--max-length"?'),
        ("pretrain --max-seq-length 64", 'Did you mean "--length"?'),
        ("pretrain --epochs 3", 'Did you mean "--steps"?'),
        ("train --fp16", 'Did you mean "--precision fp16"?'),
        ("train --Batch-Size 8", 'Did you mean "--batch-size"?'),
        ("train --epocs 8", 'Did you mean "--epochs"?'),
        ("train --what-is-this 8", 'Unknown option "--what-is-this". See: bermo train --help'),
        (
            "report runs --density 1",
            "It belongs to bermo train, bermo shrink, bermo search. See: bermo report --help",
        ),
        ("train my.csv", '"my.csv" is one word too many. Did you mean --train my.csv?'),
        ("train something", '"something" is one word too many. See: bermo train --help'),
        ("train --device gpu", '--device cannot be "gpu". Did you mean "cuda"?'),
        ("train --precision float16", '--precision cannot be "float16". Did you mean "fp16"?'),
    ],
)
def test_a_name_of_another_tool_or_a_slip_is_answered_with_what_was_meant(
    command: str, answer: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert answer in capsys.readouterr().err


def test_every_alias_leads_to_an_option_or_verb_that_exists() -> None:
    meant = {word.split()[0] for words in OPTION_ALIASES.values() for word in words}
    assert meant <= EVERY_FLAG
    assert set(VERB_ALIASES.values()) <= set(VERBS)
    assert not set(VERB_ALIASES) & set(VERBS)


@pytest.mark.parametrize(
    "command",
    ["train --train my.csv --valid dev.csv", "pretrain --text my.csv", "analyse box --text my.csv"],
)
def test_a_gpu_that_is_not_there_is_refused_with_what_is(
    command: str, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "has_gpu_driver", lambda: False)
    assert main([*command.split(), "--device", "cuda"]) == 2
    told = capsys.readouterr().err
    assert "--device cuda needs a GPU" in told
    assert "only the CPU" in told


def flags_in(path: Path) -> set[str]:
    """Every option in the texts of a file's code, but for its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in bare)
    texts = [node.value for node in constants if isinstance(node.value, str)]
    return {flag for text in texts for flag in FLAG.findall(text)}


def test_every_option_that_a_sentence_names_exists() -> None:
    for path in PACKAGE.rglob("*.py"):
        if (
            path.name not in ("hints.py", "aliases.py") and path.parent.name != "figures"
        ):  # figures has CSS names
            assert flags_in(path) <= EVERY_FLAG | OF_OTHER_PROGRAMS, path


@pytest.mark.parametrize(
    ("sentence", "verb", "note"),
    [
        ("Try a smaller --lr.", "train", ""),
        ("Try a smaller --lr.", "run", " (In bermo run: train.lr=VALUE for --lr.)"),
        ("Train with --prune and --density.", "export", " (--prune and --density: of bermo train.)"),
        ("Use bermo train --prune movement.", "export", ""),
        ("Pass --calibrate FILE.", "predict", " (--calibrate: of bermo export.)"),
    ],
)
def test_a_sentence_says_whose_the_options_are_that_the_verb_lacks(
    sentence: str, verb: str, note: str
) -> None:
    assert whose_options(sentence, verb, {"": set(), **FLAGS}) == note


def test_an_error_of_a_recipe_names_its_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sst2", "prune.method=movement"]) == 2
    assert "prune.density=VALUE for --density.)" in capsys.readouterr().err
