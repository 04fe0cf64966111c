"""python scripts/make_lock.py: requirements.lock, the sums of all files that pinned packages come in.

Each package of constraints.txt is listed with the SHA-256 of every file of that version on PyPI, so that one
lock serves all systems and versions of Python:

    pip install --require-hashes --no-deps -r requirements.lock

torch is not in it: which of its files is right depends on the GPU, and those for the CPU alone are on an
index of its own. Its version is pinned by constraints.txt.
"""

import importlib
import re
import sys
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
NOT_LOCKED = ("torch",)
MARKERS = {"triton": 'platform_system == "Linux"'}
"""Packages that not every system has files of."""
HEAD = (
    "# Made by scripts/make_lock.py from constraints.txt: pip install --require-hashes --no-deps -r"
    " requirements.lock\n"
)
FILE = re.compile(r'<a href="[^"]*#sha256=([0-9a-f]{64})"[^>]*>([^<]+)</a>')
ENDINGS = re.compile(r"\.whl|\.tar\.gz|\.zip")


def pinned() -> dict[str, str]:
    """Return the version of each package that constraints.txt pins, by its normal name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines)}


def normal(name: str) -> str:
    """Return a package's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def sums_on_pypi(name: str, version: str) -> list[str]:
    """Return the sums of all files of a version."""
    # pip knows the address; it is no public name of pip's, so it is asked for only here.
    index = importlib.import_module("pip._internal.models.index").PyPI.simple_url
    with urlopen(f"{index}/{name}/", timeout=60) as page:
        files = FILE.findall(page.read().decode())
    return sorted({sum_ for sum_, file in files if _is_of(file, name, version)})


def _is_of(file: str, name: str, version: str) -> bool:
    """Tell whether a file's name is that of the version: NAME-VERSION-….whl or NAME-VERSION.tar.gz."""
    stem = ENDINGS.split(file)[0]
    parts = stem.split("-")
    if file.endswith(".whl"):
        return normal(parts[0]) == name and parts[1] == version
    return normal(stem) == normal(f"{name}-{version}")


def entry(name: str, version: str, sums: list[str]) -> str:
    """Return the lines of a package."""
    marker = f" ; {MARKERS[name]}" if name in MARKERS else ""
    return (
        " \\\n".join([f"{name}=={version}{marker}", *(f"    --hash=sha256:{item}" for item in sums)]) + "\n"
    )


def main() -> int:
    """Ask PyPI for every package and write the lock; a package without files there is an error."""
    entries = []
    for name, version in sorted(pinned().items()):
        if name in NOT_LOCKED:
            continue
        sums = sums_on_pypi(name, version)
        if not sums:
            print(f"PyPI has no file of {name} {version}", file=sys.stderr)
            return 1
        entries.append(entry(name, version, sums))
    LOCK.write_text(HEAD + "".join(entries), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
