"""The list of a step's kernels: kinds by name, sums, and the whole of it in a tiny form without a GPU."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.benchmarks.tiny_step import BENCHMARKS, run


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("step_kernels")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_sm90_tst_128x128_64x6_v_bz_TNT", "matrix products"),
        ("void pytorch_flash::flash_fwd_kernel<…>", "attention"),
        ("attend_backward", "attention"),
        ("shear_backward", "attention"),
        ("residual_forward", "residual, dropout, LayerNorm"),
        ("gelu_backward", "gelu, joined inputs"),
        ("join_three", "gelu, joined inputs"),
        ("mix_backward", "mix"),
        ("_copy_masked", "masks"),
        ("adam_step", "AdamW, norm of the gradients"),
        ("sum_squares", "AdamW, norm of the gradients"),
        ("indexSelectLargeIndex", "word vectors"),
        ("Memcpy DtoD", "copies, sums and the rest"),
    ],
)
def test_a_kernel_is_of_the_kind_its_name_tells(kernels: ModuleType, name: str, kind: str) -> None:
    assert kernels.kind_of(name) == kind


def test_launches_and_times_of_a_kind_are_summed(kernels: ModuleType) -> None:
    found = kernels.by_kind(
        [kernels.Kernel("a_gemm", 2, 3.0), kernels.Kernel("b", 1, 9.0), kernels.Kernel("gemv", 1, 4)]
    )
    assert list(found.items()) == [
        ("copies, sums and the rest", {"launches": 1.0, "us": 9.0}),
        ("matrix products", {"launches": 3.0, "us": 7.0}),
    ]


def test_the_list_is_made_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = run(monkeypatch, tmp_path / "rows.json", "--kernels", "--width", "48")
    assert row["us"] == pytest.approx(sum(kind["us"] for kind in row["kinds"].values()), rel=0.01)
    assert row["kinds"]["matrix products"]["us"] > 0
    assert row["kernels"][0]["microseconds"] >= row["kernels"][-1]["microseconds"]
    assert "matrix products" in capsys.readouterr().out
