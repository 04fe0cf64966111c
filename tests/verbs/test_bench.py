"""Where a bench goes that was given no folder."""

from pathlib import Path

import pytest

from bermo.verbs.bench import _free_folder


def test_a_second_bench_goes_into_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bench", "bench-2", "bench-3"):
        assert _free_folder() == Path("runs", name)
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "bench.json").write_text("{}")
