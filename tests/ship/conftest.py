"""Exports of the same tiny models, traced once."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def quick_exports(quick_traces: None) -> None:
    """Every export of these tests is quick."""
