"""The command line as a user meets it, and every kind of mistake. tests/docs runs the commands of the
documents.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

from bermo import cli
from bermo.cli import main
from bermo.models.tasks import BermoForSequenceClassification

pytestmark = pytest.mark.usefixtures("shallow_box")

ROOT = Path(__file__).parent.parent
SMALL = "--max-length 16 --epochs 1 --batch-size 8 --device cpu"


def run(command: str) -> int:
    return main(command.split()[1:])


def test_list_and_show_name_recipes_and_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bermo list") == 0
    assert run("bermo show sst2") == 0
    printed = capsys.readouterr().out
    for word in ("sst2", "box/tense", "glue/rte", "model.mix.kind", "Cost:"):
        assert word in printed


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("bermo train --modle x", 'Unknown option "--modle". Did you mean "--model"?'),
        ("bermo train --mix acros", '--mix cannot be "acros". Did you mean "across"?'),
        ("bermo train --lr fast", '--lr must be a number, but got "fast"'),
        ("bermo train --train no.csv --valid dev.csv", "no.csv"),
        ("bermo train", "No train file was given"),
        ("bermo train --task sst3", 'no task "sst3". Did you mean "sst2"'),
        ("bermo train --task sst2", "pass --data"),
        ("bermo train --task sst2 --data path/to/sst", "no folder"),
        ("bermo train --train my.csv --valid dev.csv --label sentiment", "sentiment"),
        ("bermo train --train my.csv --valid dev.csv --model ./nowhere", 'no folder "./nowhere"'),
        ("bermo train --train my.csv --valid dev.csv --out .", "nothing there is overwritten"),
        ("bermo train --train my.csv --valid dev.csv --seeds 0", "seeds must be"),
        ("bermo run sst3", 'no recipe "sst3". Did you mean "sst2"'),
        ("bermo run sst2 train.lrr=1", 'no field "lrr"'),
        ("bermo run sst2 lr", '"lr" is no change'),
        ("bermo run sst2 --arms plane", 'no arm "plane". Did you mean "plain"'),
        ("bermo predict runs/none texts.txt", "no folder runs/none"),
        ("bermo predict . texts.txt", "holds no model"),
        ("bermo fly", 'There is no verb "fly". Known: analyse,'),
        ("bermo --versoin", 'Unknown option "--versoin". Did you mean "--version"?'),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_two(
    command: str, sentence: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(files.rglob("*"))
    assert run(command) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert "Traceback" not in printed.err
    assert [p for p in sorted(files.rglob("*")) if p not in before] == []


def test_cased_text_on_an_uncased_vocabulary_that_does_not_lower_case_is_refused(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files / "cased"
    BermoForSequenceClassification.from_backbone("box").bermo.backbone.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        content = json.loads((ROOT / "bermo" / "box" / name).read_text())
        if name == "tokenizer.json":
            content["normalizer"]["lowercase"] = False
        else:
            content["do_lower_case"] = False
        (folder / name).write_text(json.dumps(content))
    rows = "\n".join(f"The Quick Brown Fox Of London,{k % 2}" for k in range(20))
    for name in ("my.csv", "dev.csv"):
        (files / name).write_text(f"text,label\n{rows}\n")
    command = f"bermo train --model {folder} --train my.csv --valid dev.csv --out run {SMALL}"
    assert run(command) == 2
    printed = capsys.readouterr().err
    assert "unknown" in printed
    assert "cased text on an uncased vocabulary" in printed
    assert not (files / "run").exists()


def test_predictions_never_overwrite_a_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"bermo train --train my.csv --valid dev.csv --out run {SMALL}") == 0
    assert run("bermo predict run texts.txt --out answers.jsonl") == 0
    assert len((files / "answers.jsonl").read_text().splitlines()) == 2
    assert run("bermo predict run texts.txt --out answers.jsonl") == 2
    assert "not overwritten" in capsys.readouterr().err


def test_a_full_disk_is_told_in_a_sentence_and_the_run_goes_on_when_there_is_room(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    often = "--checkpoint-minutes 0.0001"
    command = f"bermo train --train my.csv --valid dev.csv --out run {SMALL} {often}"
    with monkeypatch.context() as patch:
        patch.setattr("bermo.training.checkpoint.save_file", full)
        assert run(command) == 1
    assert "The disk is full" in capsys.readouterr().err
    assert run(command) == 0


def test_bars_of_transformers_stay_off_the_screen(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(f"bermo train --train my.csv --valid dev.csv --out run {SMALL}") == 0
    assert "it/s" not in capfd.readouterr().err


def test_threads_of_openmp_wait_briefly_unless_the_user_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    cli._wait_briefly()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    cli._wait_briefly()
    assert os.environ["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    cli._wait_briefly()
    assert os.environ["GOMP_SPINCOUNT"] == cli.SPINS
    monkeypatch.delenv("GOMP_SPINCOUNT")


LEAVES = """
import atexit, sys, threading, time
sys.argv = ["bermo"]
from bermo.cli import leave

class Watched:
    def __del__(self):
        print("taken down")

watched = Watched()
atexit.register(print, "registered")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("begun")
leave(7)
"""


def test_the_process_of_a_command_ends_whole_but_for_its_modules() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (7, ["begun", "thread", "registered"]), done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_at_the_end_fails_as_python_has_it() -> None:
    code = "import sys; sys.argv = ['bermo']; from bermo.cli import leave; print(1); leave(0)"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode != 0
    assert b"No space left" in done.stderr
