"""What a command says before torch is imported: its first line, and every mistake that files can show."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.verbs import VERBS

OWN = "train --train my.csv --valid dev.csv"
REFUSED = {
    OWN + " --epochs 0": "epochs must be",
    OWN + " --model ./nowhere": 'no folder "./nowhere"',
    OWN + " --teacher nowhere": "no folder nowhere",
    OWN + " --out .": "nothing there is overwritten",
    OWN + " --prune movement": "needs --density",
    OWN + " --density 0.5": "--density belongs to pruning",
    OWN + " --label feeling": "feeling",
    OWN + " --tracker wandb": "wandb",
    "train --train no.csv --valid dev.csv": "There is no file no.csv",
    "train --task sst3": 'no task "sst3"',
    "train --task sst2 --data nowhere": "no folder nowhere",
    "predict run no.txt": "There is no file no.txt",
    "predict nowhere texts.txt": "no folder nowhere",
    "evaluate nowhere dev.csv": "no folder nowhere",
    "evaluate run no.csv": "There is no file no.csv",
    "evaluate run dev.csv --against nowhere": "no folder nowhere",
    "evaluate run dev.csv --metric acuracy": 'Did you mean "accuracy"?',
    OWN + " --metric nothing": 'There is no metric "nothing". Known: accuracy, exact_match, f1, macro_f1',
    "pretrain --text no.txt": "There is no file no.txt",
    "pretrain --text texts.txt --tokenizer ./nowhere": 'no folder "./nowhere"',
    "pretrain --text texts.txt --out .": "nothing there is overwritten",
    "probe --tasks tens": 'Did you mean "tense"?',
    "probe --model ./nowhere": 'no folder "./nowhere"',
    "probe --data nowhere": "no folder nowhere",
    "probe --protocol finetune train.lrr=1": 'no field "lrr"',
    "analyse ./nowhere --text texts.txt": 'no folder "./nowhere"',
    "analyse box --text no.txt": "There is no file no.txt",
    "analyse box --data no.csv": "There is no file no.csv",
    "shrink nowhere --out small": "no folder nowhere",
    "shrink run --out .": "nothing there is overwritten",
    "shrink run --out small --fisher": "--density (the share kept) or --speedup",
    "shrink run --out small --vocabulary no.txt": "There is no file no.txt",
    "export nowhere --to onnx": "no folder nowhere",
    "export run --to onyx": 'Did you mean "onnx"?',
    "export run --to onnx --data no.csv": "There is no file no.csv",
    "export run --to onnx --out my.csv": "my.csv exists and is not overwritten",
    "bench run nowhere": "no folder nowhere",
    "bench run --data no.csv": "There is no file no.csv",
    "compress run --latency fast": '--latency "fast" cannot be read',
    "compress nowhere --speedup 2": "no folder nowhere",
    "compress run --speedup 2 --train no.csv": "There is no file no.csv",
    "compress run --speedup 2 --no-training": "nothing to choose from",
    "atlas --tiny --methods int9": 'Did you mean "int8"?',
    "atlas --train my.csv": "needs --train FILE and --valid FILE",
    "atlas --tiny --pick fast": '"fast" cannot be read',
    "atlas --tiny --out my.csv": "my.csv is a file",
    "encode nowhere texts.txt --out vectors.npy": "no folder nowhere",
    "similar nowhere texts.txt --query a": "no folder nowhere",
    "similar run texts.txt": "There is nothing to search for",
    "serve nowhere": "no folder nowhere",
    "push nowhere me/small": "no folder nowhere",
    "push run small --dry-run": '"small" is not in the form OWNER/NAME',
    "push run a/b/c": '"a/b/c" is not in the form OWNER/NAME',
    "show sst3": 'Did you mean "sst2"?',
    "run sst3": 'Did you mean "sst2"?',
    "run sst2 train.lr=fast": "train.lr must be a number",
    "run sst2 data.folder=nowhere": "no folder nowhere",
    "run sst2 --tiny --workers 2": "--workers belongs to --on local",
    "search --task box/tense --space lrr=1..2": 'Did you mean "lr"?',
    "search --train no.csv --space lr=1e-5..1e-4": "There is no file no.csv",
    "jobs sst3": 'Did you mean "sst2"?',
    "report nowhere": "There is no nowhere",
    "demo --out my.csv": "my.csv is a file",
    "doctor --jsn": 'Did you mean "--json"?',
    "list --al": 'Unknown option "--al"',
}
HEAVY = {"torch", "transformers", "numpy", "accelerate", "tokenizers"}
PROGRAM = f"""
import contextlib, io, json, sys
sys.argv[0] = "bermo"
from bermo.cli import main
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as told:
        code = main(command.split())
    heavy = sorted(set(sys.modules) & {HEAVY!r})
    print(json.dumps([code, told.getvalue(), heavy]))
"""


def test_mistakes_are_answered_before_anything_heavy_is_imported(files: Path) -> None:
    assert {command.split()[0] for command in REFUSED} == set(VERBS)
    model = files / "run" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    before = sorted(files.rglob("*"))
    words = [sys.executable, "-c", PROGRAM, json.dumps(list(REFUSED))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for (command, sentence), (code, told, heavy) in zip(REFUSED.items(), answers, strict=True):
        assert (code, heavy) == (2, []), (command, told)
        assert sentence in told, (command, told)
    assert sorted(files.rglob("*")) == before


def test_the_first_line_says_what_is_read(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--max-length 16 --epochs 1 --batch-size 8 --device cpu --out run"
    assert main([*OWN.split(), *small.split()]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "bermo train: reading my.csv and dev.csv …"
