"""Launches and bytes of a layer are counted without a GPU, and kernels take away most of both."""

import pytest

from tests.benchmarks.tiny_step import BENCHMARKS

pytest.importorskip("triton", reason="needs Triton")


def test_kernels_take_away_launches_and_bytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import layer_bytes

    counted = []
    for unfused in ([], ["--unfused"]):
        layer_bytes.main(["--tiny", "--batch=8", "--length=16", "--families", "xlnet", *unfused])
        counted.append(capsys.readouterr().out.splitlines()[1].split())
    (family, launches, size), (_, plain_launches, plain_size) = counted
    assert family == "xlnet"
    assert 0 < int(launches) < int(plain_launches) / 2
    assert 0 <= float(size) < float(plain_size)
