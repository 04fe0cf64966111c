"""The table of steps by family shows torch.compile where it was timed."""

from scripts.tables.speed import families_table
from tests.docs.documents import rows_of

TIMES = {"plain": 4.0, "pruned": 5.0, "eager": 40.0, "fused": 30.0}
MS = {name: {"32": ms, "128": ms} for name, ms in TIMES.items()}
BERT = {"family": "bert", "ms": MS | {"compiled": {"32": 20.04}}, "bert": {"32": 4.0, "128": 4.0}}
OTHER = {"family": "mpnet", "ms": MS, "bert": {"32": 4.0, "128": 4.0}}


def test_torch_compile_has_a_column_where_a_family_was_timed_with_it() -> None:
    shown = [row["and torch.compile"] for row in rows_of(families_table([BERT, OTHER]))]
    assert shown == ["20.0", "–", "–", "–"]
    assert "and torch.compile" not in rows_of(families_table([OTHER]))[0]
