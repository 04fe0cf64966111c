"""The first hour of a new user (first_hour.sh) on few rows: every command ends well, every screen fits."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "first_hour.sh"
WIDTH = 80


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_first_hour_runs_to_its_end_and_every_screen_fits_80_columns(
    tmp_path: Path, warm_python: Path
) -> None:
    environment = os.environ | {
        "FIRST_HOUR": "tiny",
        "COLUMNS": str(WIDTH),
        "PATH": f"{warm_python}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "BERMO_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path / "hour")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for name in ("runs/mine/model/config.json", "small-onnx-int8/model.onnx", "report.html"):
        assert (tmp_path / "hour" / name).is_file()
    shown = [line for line in done.stdout.splitlines() if not line.startswith(("$ ", '{"', "all "))]
    assert [line for line in shown if cell_len(line) > WIDTH] == []
