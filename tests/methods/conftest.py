"""The worlds of distillation: tasks with small teachers, made once for all tests of a file."""

from pathlib import Path

import pytest

from tests.methods.world import World, make_world


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture
def world(home: Path, request: pytest.FixtureRequest) -> World:
    """The world of one kind of task; several tests share it."""
    return make_world(home, getattr(request, "param", "classification"))
