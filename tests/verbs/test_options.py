"""What a user may type: every option of every verb with its default, and how it becomes a dataclass."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bermo.cli import build_parser, main
from bermo.errors import BermoError
from bermo.fields import REQUIRED, group, leaves, option, positional
from bermo.verbs import VERBS
from bermo.verbs.options import add_options, read_options, show_value

HEAVY = {"torch", "transformers", "numpy", "rich", "accelerate", "safetensors", "tokenizers", "pyarrow"}

# Each option with its default as a user would type it: "" is none, "required" has to be given, "off" is a
# switch.
OPTIONS = {
    "demo": "--out=runs/demo",
    "train": """
        --out --model=box --mix --mix-dropout=0.1 --layer-dropout=0.0 --layers --mix-init
        --pooling --head --contrast --average --head-dropout=0.1 --freeze-embeddings=off --first-layers
        --keep-layers --keep-by --pairs --untrained=off
        --task=own --data --train --valid --split --separator --hub --text --label --label-separator
        --max-length=128 --stride=128 --limit --max-unknown=0.05
        --lowercase --cache --epochs --batch-size --accumulation=1 --lr --mix-lr=0.01
        --weight-decay=0.0 --warmup=0.1 --clip=1.0 --precision=fp32 --device=auto --group-lengths=True
        --evaluations --patience --give-up --checkpoint-minutes=5.0 --fast=auto --together=1 --keep=best
        --tracker=none --prune=none --prune-by=movement --density --penalty --threshold=0.1 --scope
        --block=1,1 --scores=zeros --rank --prune-warmup --initial-warmup=1 --final-warmup=1
        --score-lr=0.01 --teacher --distill-hard=0.1 --distill-soft=0.9 --temperature=2.0
        --distill-hidden=0.0 --distill-relations=0.0 --distill-embeddings=0.0 --layer-map --student-layers
        --student-neurons=1.0 --student-heads=1.0 --distill-neighbours=0.0
        --class-weights --metric --tune-thresholds=off --teacher-answers
        --unlabelled --distill-as --distill-cosine=0.0 --distill-patient=0.0 --distill-attention=0.0
        --distill-last-attention=0.0 --low-rank
        --embedding-rank --keep-tokens --mix-path --rewind --quantize --quantize-from --theseus --mixout
        --rdrop --tie-layers
        --adversarial --lora --lora-lr --seeds=1 --kind
    """,
    "evaluate": """run file --text --label --unknown=error --separator --batch-size=64 --device=auto
        --precision --out --against --figures --metric""",
    "predict": """
        run file --text --out --columns --id --with-text=off --truth --probabilities=off --top --format
        --separator --batch-size=64 --device=auto --precision
    """,
    "pretrain": """
        --out=runs/pretrain --text --vocabulary=8192 --words --tokenizer --held-out=0.005 --length=128
        --limit --cache --model --config=small --layers --width --heads --intermediate --positions=512
        --dropout=0.0 --later-dropout=0.1 --inner-mix=none --objective=mlm --masking=token --mask-share=0.15
        --teacher --teach-words=5.0 --teach-rows=1.0 --teach-layers=all --steps --minutes --only-head=off
        --batch-size=256 --accumulation=1 --recompute=off --lr=0.001 --mix-lr=0.01 --weight-decay=0.01
        --warmup=0.06 --clip=1.0 --precision=fp32 --device=auto --looks=10 --checkpoint-minutes=5.0
        --tracker=none --seed=1 --half=off --average=0.0 --cells --characters=50 --elmo-config=box --filters
        --highways --layer-drop=0.0 --lr-batch --optimizer=adamw --projection --short-length --short-steps
    """,
    "probe": """
        changes* --model=box --tasks=all --data --protocol=frozen --layers --probe --pooling --words
        --pieces --rank
        --no-controls=off --limit --lowercase --max-unknown=0.05 --precision --batch-size --seeds --epochs
        --cache --out
    """,
    "analyse": """
        models* --model --text --data --measures --out=look --senses --sense-test=senseval2 --pairs --trees
        --max-texts=1000 --max-length=128 --rows=128 --max-unknown=0.05 --device=auto --map --base --sentence
        --heads --corpus --words --layer
    """,
    "push": "folder name --public=off --bench --dry-run=off",
    "shrink": """
        run --out=required --vocabulary --read-share=0.001 --low-rank --embedding-rank
        --stock=off --fisher=off --density --speedup --data
        --train --valid --examples=2048 --batch-size=32 --length=128 --device=auto
    """,
    "export": """
        run --to=required --out --data --max-loss=1.0 --calibrate --keep-fp32=0 --values=fp16
        --words=int8 --layout=bermo
        --for=throughput --forms
        --batch=1,32 --lengths=32,128 --rounds=3 --threads
    """,
    "bench": """
        folders+ --baseline --data --batch=1,32 --lengths=32,128 --rounds=5 --threads --device=cpu
        --precision=fp32 --other-forms=auto --out
    """,
    "compress": """
        run --latency --speedup --size --train --valid --data --vocabulary --quick=off --candidates
        --no-training=off --epochs --batch-size --lr --precision --limit --hard --max-loss --texts
        --unlabelled --batch=1,32 --lengths=32,128 --rounds=3 --threads --out --forms --calibrate
    """,
    "serve": """
        folders+ --host=127.0.0.1 --port=8000 --batch-size=16 --queue=1024 --timeout=30.0 --max-texts=256
        --max-characters=20000 --max-bytes=2000000 --threads --device=auto
    """,
    "list": "",
    "show": "recipe",
    "run": """recipe changes* --seeds --arms --tiny=off --out --together --on --retries=2 --workers --gpus
        --address --gpus-per-run --partition --hours""",
    "jobs": "recipe changes* --seeds --arms --tiny=off --out --json=off",
    "report": "paths+ --out=report.html",
}
# A search takes the options of every trial's training, but for its folder.
OPTIONS["search"] = """--space=required --trials=20 --on --retries=2 --workers --gpus --address --gpus-per-run
    --partition --hours --out=runs/search""" + OPTIONS["train"].replace("--out ", "", 1).replace(
    " --kind", "", 1
)


def words_of(verb: str) -> set[str]:
    """The options of a verb in the form of the table above."""
    words = set()
    for leaf in leaves(VERBS[verb].options):
        if leaf.option.is_positional:
            many = "+" if leaf.is_required else "*"
            words.add(leaf.flag + (many if leaf.option.is_list else ""))
        elif leaf.is_required:
            words.add(f"--{leaf.flag}=required")
        elif leaf.default is False or leaf.flag.startswith("no-"):
            words.add(f"--{leaf.flag}=off")
        else:
            shown = "" if leaf.default in (None, ()) else f"={show_value(leaf.default)}"
            words.add(f"--{leaf.flag}{shown}")
    return words


@pytest.mark.parametrize("verb", OPTIONS)
def test_options_and_their_defaults_are_those_that_users_know(verb: str) -> None:
    assert words_of(verb) == set(OPTIONS[verb].split())


@pytest.mark.parametrize("verb", OPTIONS)
def test_the_parser_offers_exactly_the_fields(verb: str) -> None:
    flags = {flag for action in build_parser()[1][verb]._actions for flag in action.option_strings}
    assert flags - {"-h", "--help"} == {
        word.split("=")[0] for word in OPTIONS[verb].split() if word.startswith("-")
    }


@pytest.mark.parametrize("verb", VERBS)
def test_no_two_options_of_a_verb_share_a_flag(verb: str) -> None:
    flags = [leaf.flag for leaf in leaves(VERBS[verb].options)]
    assert len(flags) == len(set(flags))


def test_help_imports_no_heavy_library() -> None:
    code = f"""
import contextlib, sys
sys.argv = ["bermo"]
from bermo.cli import main
for verb in {[[], *([verb] for verb in VERBS)]!r}:
    with contextlib.suppress(SystemExit):
        main([*verb, "--help"])
    print("heavy after", *verb, sorted({{name.split(".")[0] for name in sys.modules}} & {HEAVY!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = [line for line in done.stdout.splitlines() if line.startswith("heavy after")]
    assert found == ["heavy after []", *(f"heavy after {verb} []" for verb in VERBS)]
    assert done.stdout.count("usage: bermo") == len(found)


@dataclass(frozen=True, kw_only=True)
class Colour:
    name: str = option("red", "its name")
    shades: tuple[int, ...] = option((1, 2), "numbers", least=0)


@dataclass(frozen=True, kw_only=True)
class Painting:
    """A verb's options with one of every kind."""

    walls: tuple[str, ...] = positional("what is painted", is_list=True)
    colour: Colour = group(Colour(), "the colour")
    coats: int = option(REQUIRED, "how often", least=1)
    brushes: tuple[Path, ...] = option((), "tools", is_list=True)
    is_quick: bool = option(False, "hurry", "quick")
    primer: bool = option(True, "leave out the primer", "no-primer")


def painting(words: str) -> Painting:
    from argparse import ArgumentParser

    parser = ArgumentParser()
    add_options(parser, Painting)
    return read_options(Painting, parser.parse_args(words.split()))


def test_what_is_typed_becomes_the_fields_of_the_dataclass() -> None:
    assert painting("north --coats 2") == Painting(walls=("north",), coats=2)
    typed = painting("a b --coats 1 --name blue --shades 3,4 --brushes x y --quick --no-primer")
    assert typed == Painting(
        walls=("a", "b"),
        coats=1,
        colour=Colour(name="blue", shades=(3, 4)),
        brushes=(Path("x"), Path("y")),
        is_quick=True,
        primer=False,
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("a --coats 0", "coats must be at least 1, but got 0."),
        ("a --coats two", '--coats must be a whole number, but got "two".'),
        ("a --coats 1 --shades 3,-1", "shades must be at least 0, but got -1."),
        ("a --coats 1 --shades ,", "--shades is empty. Give one value or more, parted by commas."),
    ],
)
def test_a_value_that_makes_no_sense_is_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(BermoError) as caught:
        painting(words)
    assert str(caught.value) == sentence


def test_words_behind_the_first_option_are_taken_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sst2", "--seeds", "2", "train.lrr=1"]) == 2
    assert 'no field "lrr"' in capsys.readouterr().err
    assert main(["probe", "--protocol", "finetune", "train.lrr=1"]) == 2
    assert 'no field "lrr"' in capsys.readouterr().err
