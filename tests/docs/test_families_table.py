"""The tables of steps by family and of long texts: columns and ratios where something was timed."""

from scripts.tables.speed import families_table, long_table
from tests.docs.documents import rows_of

TIMES = {"plain": 4.0, "pruned": 5.0, "eager": 40.0, "fused": 30.0}
MS = {name: {"32": ms, "128": ms} for name, ms in TIMES.items()}
BERT = {"family": "bert", "ms": MS | {"compiled": {"32": 20.04}}, "bert": {"32": 4.0, "128": 4.0}}
OTHER = {"family": "mpnet", "ms": MS, "bert": {"32": 4.0, "128": 4.0}}


def test_torch_compile_has_a_column_where_a_family_was_timed_with_it() -> None:
    shown = [row["and torch.compile"] for row in rows_of(families_table([BERT, OTHER]))]
    assert shown == ["20.0", "–", "–", "–"]
    assert "and torch.compile" not in rows_of(families_table([OTHER]))[0]


def test_a_long_text_that_the_eager_step_has_no_memory_for_has_no_ratio() -> None:
    known = {"family": "bert", "length": 512, "rows": 32, "ms": 30.0, "eager_ms": 90.0}
    peaks = {"peak_mib": 9000, "eager_peak_mib": 20500}
    failed = {"family": "modernbert", "length": 8192, "rows": 2, "ms": 80.0, "eager_ms": None}
    first, second = rows_of(long_table([known | peaks, failed | peaks]))
    assert (first["eager / ours"], first["eager, MiB"]) == ("3.0 ×", "20,500")
    assert (second["eager / ours"], second["Hugging Face, eager"]) == ("–", "–")
