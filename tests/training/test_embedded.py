"""Tables of vectors by kernels, in Triton's interpreter: the same sums, and updates from rows."""

import pytest
import torch
from torch import nn

from bermo.training.fuse import Fusion
from bermo.training.step import Step, WeightedBatch
from tests.direct_steps import TABLES, make_step, train
from tests.small_models import small_batch, without_dropout

embedded = pytest.importorskip("bermo.training.embedded")
pytest.importorskip("triton", reason="needs Triton")
CPU = torch.device("cpu")


def assert_tables_alike(rows: Step, plain: Step) -> None:
    """The tables, their moments and step numbers are the same but for rounding."""
    states = [step.optimizer.optimizer.state for step in (rows, plain)]
    tables = {id(p) for one in rows.direct for p in one.adam.parameters}
    assert tables
    for name, a, b in zip(rows.names, rows.parameters, plain.parameters, strict=True):
        if id(a) in tables:
            assert (a - b).abs().mean() < 1e-5, name
            for key, value in states[1][b].items():
                torch.testing.assert_close(states[0][a][key], value, rtol=1e-3, atol=1e-6, msg=name)


@pytest.mark.parametrize(("family", "num_models"), [("bert", 1), ("roberta", 1), ("bert", 2), ("gpt2", 1)])
def test_tables_are_updated_from_the_rows_that_were_read(
    family: str, num_models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "LEAST_ROWS", 1)
    rows, plain = (make_step(False, num_models, one, family, TABLES) for one in (True, False))
    assert sum(len(one.indices) for one in rows.direct) == (2 if family == "gpt2" else 3)
    for step in (rows, plain):
        train(step, 1)
    torch.testing.assert_close(rows.norms, plain.norms, rtol=1e-3, atol=1e-4)
    assert_tables_alike(rows, plain)
    assert not any(one.tables.found for one in rows.direct)


@pytest.mark.parametrize("how", ["two batches", "a gradient of its own", "a gap"])
def test_rows_become_tables_where_the_update_cannot_take_them(how: str) -> None:
    rows, plain = (make_step(is_direct=one, fused=TABLES) for one in (True, False))
    batch = small_batch(rows.model)
    if how == "a gap":
        rows.is_fused = False
        assert rows.compare([WeightedBatch(batch, 1.0, True)]).gap < 1e-3
        rows.is_fused = True
    batches = [WeightedBatch(batch, 1.0, True)] * (2 if how == "two batches" else 1)
    for step in (rows, plain):
        if how == "a gradient of its own":
            words = next(p for n, p in zip(step.names, step.parameters, strict=True) if "word_emb" in n)
            words.grad = torch.ones_like(words)
        step.run(batches, is_update=True)
    assert_tables_alike(rows, plain)


@pytest.mark.parametrize("why", ["vectors are given", "a table is hooked", "too many tokens"])
def test_what_kernels_cannot_compute_takes_the_modules_own_forward(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bermo.nn.fast import embed

    model = without_dropout("bert", layers=1)
    module, batch = model.bermo.backbone.embeddings, small_batch(model)
    fusion = Fusion(model, None, TABLES)
    calls: list[int] = []
    apply = embed.Embed.apply
    monkeypatch.setattr(embed.Embed, "apply", lambda *given: calls.append(1) or apply(*given))
    given: dict[str, torch.Tensor] = {"input_ids": batch["input_ids"]}
    with fusion.active(CPU):
        torch.testing.assert_close(module(**given), type(module).forward(module, **given))
        assert len(calls) == 1
        if why == "vectors are given":
            given = {"inputs_embeds": torch.randn(2, 3, module.word_embeddings.embedding_dim)}
        elif why == "a table is hooked":
            module.word_embeddings.register_forward_hook(lambda *_: None)
        else:
            monkeypatch.setattr(embed, "MOST_POSITIONS", 5)
        assert torch.equal(module(**given), type(module).forward(module, **given))
    assert len(calls) == 1
    assert not any("forward" in vars(child) for child in module.modules())


def test_a_table_that_two_modules_share_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LEAST_ROWS", 1)
    step = make_step(fused=TABLES)
    assert len(step.direct) == 1
    embeddings = step.model.bermo.backbone.embeddings
    step.model.other = nn.Embedding(*embeddings.word_embeddings.weight.shape)
    step.model.other.weight = embeddings.word_embeddings.weight
    step.fusion = Fusion(step.model, step.shadow, TABLES)
    step.start_()
    assert not step.direct
