"""A forked command finds its imports done, and undoes at its end what it made itself and nothing else."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import MODEL_MAPPING, AutoConfig

from bermo import nursery
from bermo.jobs import nursery as client
from bermo.jobs.nursery import Nursery

FORKS_ONE = """
import os, sys, weakref
from bermo import nursery

class Made:
    pass

def command(*_, **__):
    made.append(Made())
    weakref.finalize(made[-1], print, "the command's own")
    sys.exit(3)

made = [Made()]
weakref.finalize(made[0], print, "the nursery's")
nursery.runpy.run_module = command
child = nursery._start({"words": [], "log": sys.argv[1], "environment": {}})
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))
"""


@pytest.mark.skipif(not nursery.FORK, reason="commands are new processes here")
@pytest.mark.usefixtures("warm_python")
def test_a_command_undoes_what_it_made_and_leaves_the_imports_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", FORKS_ONE, str(log)], stdout=subprocess.PIPE, check=False)
    assert done.returncode == 3
    assert log.read_text(encoding="utf-8") == "the command's own\n"


def test_the_module_of_the_box_is_imported_before_a_command_is_forked(
    real_box: Path,
) -> None:
    model = MODEL_MAPPING[type(AutoConfig.from_pretrained(real_box))]
    assert model.__module__ in nursery.IMPORTED


@pytest.mark.usefixtures("warm_python")
def test_all_answers_come_before_the_nursery_ends(tmp_path: Path) -> None:
    started = Nursery()
    codes = {
        started.start(["list"], tmp_path / "good.log"): 0,
        started.start(["no-verb"], tmp_path / "bad.log"): 2,
    }
    assert dict(filter(None, (started.wait(60), started.wait(60)))) == codes
    started.close()
    assert started.process.returncode == 0
    assert started.wait(60) is None
    assert "sst2" in (tmp_path / "good.log").read_text(encoding="utf-8")


FORKS_NONE = (
    "import sys; sys.argv = ['bermo'];"  # as the command does: no models are registered
    "from bermo import nursery; nursery.FORK = None; nursery.serve()"
)


def test_commands_are_new_processes_where_none_can_be_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows: pipes that no select takes, children that no waitpid without waiting tells of."""
    begin = subprocess.Popen

    def start(words: list[str], **options: Any) -> subprocess.Popen[str]:
        return begin([words[0], "-c", FORKS_NONE], **options)

    monkeypatch.setattr(client.subprocess, "Popen", start)
    started = Nursery()
    monkeypatch.undo()
    number = started.start(["no-verb"], tmp_path / "bad.log")
    assert started.wait(60) == (number, 2)
    # One that is under way when the nursery ends is stopped, and waited for.
    started.start(["list"], tmp_path / "good.log")
    started.close()
    assert started.process.returncode == 0
    ended = started.wait(60)
    assert ended is not None
    assert ended[0] == number + 1
    assert ended[1] in (0, nursery.SIGNALLED + signal.SIGTERM, nursery.SIGNALLED + signal.SIGINT)
