"""The losses of papers: each against a slow, obvious version of its formula, and what sets them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AlbertConfig

from bermo.distill_spec import INNER, PAPERS, Paper
from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.assemble import LabelLoss
from bermo.methods.checks import check_methods
from bermo.methods.distill import DistilledLoss, needs_only_logits
from bermo.methods.teacher import load_teacher
from bermo.spec import DistillSpec, PruneSpec, RunSpec, replace_in
from bermo.training.job import Batch, compute_loss
from tests.methods.resumed import check_resumes_to_the_bit
from tests.methods.world import World, build, make_world, save, small_bert
from tests.specs import TINY

ROWS = np.arange(5)


@pytest.fixture
def likely(world: World, tmp_path: Path) -> World:
    """A world whose teacher has as many heads as its student."""
    teacher = build(world.data, small_bert(hidden_size=48, num_hidden_layers=4, num_attention_heads=2))
    return replace(world, folder=save(teacher, world.data, tmp_path / "teacher"))


def taught(world: World, spec: DistillSpec) -> tuple[Any, DistilledLoss, Batch]:
    student, batch = world.student().train(), world.rows().collate(ROWS)
    torch.manual_seed(5)
    loss = DistilledLoss(LabelLoss(student), load_teacher(world.folder), student, spec)
    loss.attach_(student)
    return student, loss, batch


def inside(model: Any, batch: Batch) -> tuple[Tensor, list[Tensor], list[list[Tensor]]]:
    """Logits, hidden states, and the queries, keys and values of each layer, by BERT's own modules."""
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    outputs = model(**inputs, output_hidden_states=True)
    layers = model.bermo.backbone.encoder.layer
    states = [
        [getattr(layer.attention.self, name)(before) for name in ("query", "key", "value")]
        for layer, before in zip(layers, outputs.hidden_states, strict=False)
    ]
    return outputs.logits, list(outputs.hidden_states), states


def softened(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    total = torch.zeros(())
    for own, theirs in zip(student / temperature, teacher / temperature, strict=True):
        for p, q in zip(theirs.softmax(0), own.softmax(0), strict=True):
            total = total + p * (p.log() - q.log())
    return total * temperature**2 / len(student)


def by_head(queries: Tensor, keys: Tensor, heads: int) -> Tensor:
    width = queries.shape[-1] // heads
    parts = [slice(head * width, (head + 1) * width) for head in range(heads)]
    return torch.stack([queries[:, part] @ keys[:, part].T / math.sqrt(width) for part in parts])


def num_hooks(model: torch.nn.Module) -> int:
    """How many of our hooks a model has; transformers adds some of its own."""
    hooks = [h for part in model.modules() for h in (part._forward_hooks | part._forward_pre_hooks).values()]
    return sum(hook.__module__ == "bermo.encoders.projections" for hook in hooks)


def real(batch: Batch, row: int) -> Tensor:
    return batch["attention_mask"][row].bool()


def test_distilbert_adds_the_cosine_of_the_last_states(world: World) -> None:
    student, loss, batch = taught(world, DistillSpec(teacher="x", named="distilbert"))
    (own, states, _), (theirs, goals, _) = (inside(m, batch) for m in (student, loss.teacher.model))
    cosines = [
        torch.stack(
            [
                functional.cosine_similarity(loss.projections["cosine"](s), t, dim=0)
                for s, t in zip(
                    states[-1][row][real(batch, row)], goals[-1][row][real(batch, row)], strict=True
                )
            ]
        ).mean()
        for row in range(len(ROWS))
    ]
    labels = functional.cross_entropy(own, batch["labels"])
    expected = 2 * labels + 5 * softened(own, theirs, 2.0) + (1 - torch.stack(cosines)).mean()
    torch.testing.assert_close(compute_loss(student, loss, batch), expected, rtol=1e-4, atol=1e-5)


def test_pkd_compares_directions_of_the_first_token_in_all_layers_but_the_last(world: World) -> None:
    student, loss, batch = taught(world, DistillSpec(teacher="x", named="pkd"))
    (own, states, _), (theirs, goals, _) = (inside(m, batch) for m in (student, loss.teacher.model))
    # Two layers of the student: its first against the second of the teacher's four.
    total = torch.zeros(())
    for row in range(len(ROWS)):
        s, t = loss.projections["patient"](states[1][row, 0]), goals[2][row, 0]
        total = total + ((s / s.norm() - t / t.norm()) ** 2).sum() / len(t) / len(ROWS)
    labels = functional.cross_entropy(own, batch["labels"])
    expected = 0.5 * labels + 0.5 * softened(own, theirs, 10.0) + 100 * total
    torch.testing.assert_close(compute_loss(student, loss, batch), expected, rtol=1e-4, atol=1e-5)


def test_tinybert_sums_hidden_states_and_scores_before_the_softmax_over_layers(likely: World) -> None:
    student, loss, batch = taught(likely, DistillSpec(teacher="x", named="tinybert"))
    (own, states, qkv), (theirs, goals, goal_qkv) = (inside(m, batch) for m in (student, loss.teacher.model))
    expected = softened(own, theirs, 1.0)
    for row in range(len(ROWS)):
        mask, total = real(batch, row), torch.zeros(())
        for name, layer, its in (("embeddings", 0, 0), ("hidden", 1, 2), ("hidden", 2, 4)):
            mapped = loss.projections[name](states[layer][row][mask])
            total = total + functional.mse_loss(mapped, goals[its][row][mask])
        for layer, its in ((1, 2), (2, 4)):
            sides = [
                by_head(queries[row][mask], keys[row][mask], heads=2)
                for queries, keys, _ in (qkv[layer - 1], goal_qkv[its - 1])
            ]
            total = total + functional.mse_loss(*sides)
        expected = expected + total / len(ROWS)
    torch.testing.assert_close(compute_loss(student, loss, batch), expected, rtol=1e-4, atol=1e-5)


def test_minilm_compares_the_last_layers_attention_and_its_values_relations(likely: World) -> None:
    student, loss, batch = taught(likely, DistillSpec(teacher="x", named="minilm"))
    (own, _, qkv), (_, _, goal_qkv) = (inside(m, batch) for m in (student, loss.teacher.model))
    expected = functional.cross_entropy(own, batch["labels"])
    for row in range(len(ROWS)):
        mask = real(batch, row)
        for first, second in ((0, 1), (2, 2)):
            s, t = (
                by_head(layer[first][row][mask], layer[second][row][mask], heads=2).softmax(-1)
                for layer in (qkv[-1], goal_qkv[-1])
            )
            expected = expected + (t * (t.log() - s.log())).sum(-1).mean() / len(ROWS)
    torch.testing.assert_close(compute_loss(student, loss, batch), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_teaches_tags_and_its_hooks_go(name: Paper, home: Path, tmp_path: Path) -> None:
    world = make_world(home, "tagging")
    teacher = build(world.data, small_bert(hidden_size=48, num_hidden_layers=4, num_attention_heads=2))
    world = replace(world, folder=save(teacher, world.data, tmp_path / "tagger"))
    student, loss, batch = taught(world, DistillSpec(teacher="x", named=name))
    assert num_hooks(student) == {"tinybert": 1 + 3 * 2, "minilm": 1 + 3}.get(name, 0)
    total = compute_loss(student, loss, batch)
    assert total.isfinite()
    total.backward()
    # The loss of an evaluation between two steps leaves nothing behind.
    with torch.no_grad():
        student(**loss.call.arguments(batch))
    torch.testing.assert_close(compute_loss(student, loss, batch), total)
    loss.detach_(student)
    assert num_hooks(student) == num_hooks(loss.teacher.model) == 0


def test_a_layer_that_stands_for_all_is_compared_call_by_call(likely: World, tmp_path: Path) -> None:
    config = AlbertConfig(
        vocab_size=2282,
        embedding_size=16,
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
    )
    folder = save(build(likely.data, config), likely.data, tmp_path / "albert")
    student, loss, batch = taught(replace(likely, folder=folder), DistillSpec(teacher="x", attention=1.0))
    assert compute_loss(student, loss, batch).isfinite()
    loss._call_teacher(batch)
    assert loss._relations is not None
    assert len(loss._relations[1].take_all()) == 4


def test_other_numbers_of_heads_are_refused_with_what_to_do(world: World) -> None:
    with pytest.raises(BermoError, match=r"2 attention heads a layer and its teacher 3.*--distill-relations"):
        taught(world, DistillSpec(teacher="x", named="minilm"))


def test_a_paper_sets_weights_and_a_weight_beside_it_is_refused() -> None:
    assert all(set(values) <= {"hard", "soft", "temperature", *INNER} for values in PAPERS.values())
    spec = DistillSpec(teacher="x", named="pkd")
    assert (spec.parts.temperature, spec.parts.patient, spec.hard) == (10.0, 100.0, 0.1)
    assert not needs_only_logits(spec)
    assert needs_only_logits(DistillSpec(teacher="x"))
    with pytest.raises(BermoError, match=r"--distill-as pkd sets all weights.*--temperature too"):
        check(replace_in(RunSpec(), distill={"teacher": "x", "named": "pkd", "temperature": 3.0}))
    with pytest.raises(BermoError, match="--distill-last-attention too"):
        check(replace_in(RunSpec(), distill={"teacher": "x", "named": "pkd", "last_attention": 3.0}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"distill": {"named": "pkd"}}, "need a teacher"),
        ({"distill": {"named": "pkd", "answers": "a.csv"}}, "no layers to learn from"),
        (
            {"distill": {"named": "minilm", "teacher": "x"}, "train": {"together": 2}},
            "a teacher of attention",
        ),
        (
            {"distill": {"named": "tinybert", "teacher": "x"}, "method": {"keep_tokens": 0.5}},
            "--distill-as tinybert reads",
        ),
        ({"distill": {"patient": -1.0, "teacher": "x"}}, "patient -1.0"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(replace_in(RunSpec(), **changes))


def test_a_run_by_tinyberts_loss_resumes_to_the_bit(likely: World, tmp_path: Path) -> None:
    likely.student().bermo.backbone.save_pretrained(tmp_path / "encoder")
    likely.tokenizer.save_pretrained(tmp_path / "encoder")
    plain = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 2})
    spec = replace_in(
        plain,
        model={"backbone": str(tmp_path / "encoder")},
        distill={"teacher": str(likely.folder), "named": "tinybert"},
    )
    saved = check_resumes_to_the_bit(spec, tmp_path, 2)
    assert not any("distillation" in name for name in saved)
