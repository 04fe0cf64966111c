"""Every test has its own token cache, and no test reaches the network."""

import os
from pathlib import Path

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU here; read when Triton is imported


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("BERMO_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a user's files: my.csv, dev.csv, texts.txt and a small SST-2."""
    monkeypatch.chdir(tmp_path)
    good, bad = (
        ["a fine film", "great fun", "I loved it, really"],
        ["a dull film", "no fun", "awful"],
    )
    rows = [
        f'"{text}",{label}' for label, texts in (("good", good), ("bad", bad)) for text in texts
    ]
    for name in ("my.csv", "dev.csv"):
        (tmp_path / name).write_text("text,label\n" + "\n".join(rows * 4) + "\n")
    (tmp_path / "texts.txt").write_text("a fine film\nno fun at all\n")
    folder = tmp_path / "path" / "to" / "sst2"
    folder.mkdir(parents=True)
    lines = [f"{text}\t{int(text in good)}" for text in (good + bad) * 4]
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    return tmp_path
