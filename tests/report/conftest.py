"""Real runs, trained once for all tests of the page."""

from pathlib import Path

import pytest

from tests.report.some import train_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERMO_CACHE", str(folder.parent / "cache"))
        train_runs(folder)
    return folder
