"""The exporter's table of operators is the same for every model: read it once, not once a test."""

from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_registry() -> Iterator[None]:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        read = cache(ONNXRegistry.from_torchlib.__func__)
        patch.setattr(ONNXRegistry, "from_torchlib", classmethod(read))
        yield
