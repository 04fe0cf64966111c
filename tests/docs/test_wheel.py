"""The wheel holds every file that the package reads, and runs the demo in an empty environment."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.docs.documents import ROOT

NEEDED = {
    "bermo/py.typed",
    "bermo/box/config.json",
    "bermo/box/model.safetensors",
    "bermo/box/tokenizer.json",
    "bermo/box/tokenizer_config.json",
    "bermo/report/page.css",
    "bermo/report/page.js",
}
TINY_DEMO = """
import sys
sys.argv = "bermo run demo --tiny --arms subject-number-mix --out demo".split()
import bermo
from bermo.cli import main
print(bermo.__file__, flush=True)
sys.exit(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the sources, since a build leaves its folders beside them."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    names = subprocess.run(
        ["git", "ls-files", "-z", "bermo", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        str(out),
    ]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    (made,) = out.glob("bermo-*.whl")
    return made


def test_the_wheel_holds_what_the_package_reads(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert inside >= NEEDED
    data = {
        "bermo/" + path.relative_to(ROOT / "bermo").as_posix()
        for path in (ROOT / "bermo").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in inside if name.startswith("bermo/")} == data


def test_an_empty_environment_runs_the_demo_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
        str(target),
    ]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))
    }
    environment |= {
        "PYTHONPATH": str(target),
        "HF_HUB_OFFLINE": "1",
        "BERMO_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", TINY_DEMO], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]).is_relative_to(target)
    assert "accuracy" in done.stdout
