"""A student of some of its teacher's layers: the same numbers where it must, in every family."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AlbertConfig, AutoModelForSequenceClassification, GPT2Config

from bermo.encoders.families import family_of
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.methods.student import importance, student_from_teacher
from bermo.models import tasks as models
from tests.tiny import FAMILIES, SIZES, make_batch, make_config

PLAIN = [family for family in FAMILIES if family != "albert"]


def make_teacher(family: str, mix: str = "across") -> models.BermoPreTrainedModel:
    torch.manual_seed(1)
    kind = models.BermoForSequenceClassification
    return kind.from_backbone(make_config(family), mix=mix, num_labels=4).requires_grad_(False)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_student_of_all_layers_is_the_teacher(family: str) -> None:
    teacher, batch = make_teacher(family), make_batch(family)
    student = student_from_teacher(teacher, (1, 2, 3))
    assert all(parameter.requires_grad for parameter in student.parameters())
    assert torch.equal(student(**batch).logits, teacher(**batch).logits)


@pytest.mark.parametrize("family", PLAIN)
def test_a_student_runs_the_chosen_layers_and_only_these(family: str, tmp_path: Path) -> None:
    teacher, batch = make_teacher(family), make_batch(family)
    student = student_from_teacher(teacher, (1, 3))
    cut = copy.deepcopy(teacher)
    backbone = cut.core.backbone
    layers = backbone.get_submodule(family_of(backbone.config).layers.path)
    assert isinstance(layers, nn.ModuleList)
    del layers[1]
    backbone.config.num_hidden_layers = 2
    batch = batch | family_of(backbone.config).inputs.options
    with torch.no_grad():
        expected = backbone(**batch).last_hidden_state
        outputs = student.core.backbone(**batch).last_hidden_state
    assert torch.equal(outputs, expected)
    assert student.config.num_hidden_layers == 2
    student.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    batch = make_batch(family)
    torch.testing.assert_close(again(**batch).logits, student(**batch).logits)


@pytest.mark.parametrize("family", PLAIN)
def test_a_student_with_half_of_the_heads_is_the_teacher_without_the_others(
    family: str, tmp_path: Path
) -> None:
    teacher, batch = make_teacher(family), make_batch(family)
    student = student_from_teacher(teacher, (1, 2, 3), heads=0.5)
    for group in (g for g in groups_of(teacher) if g.kind == "heads"):
        gone = torch.ones(group.count, dtype=torch.bool)
        gone[importance(group).topk(group.count // 2).indices] = False
        group.zero_units_(gone)
    kept = [g.count for g in groups_of(student) if g.kind == "heads"]
    assert kept == [g.count // 2 for g in groups_of(teacher) if g.kind == "heads"]
    torch.testing.assert_close(student(**batch).logits, teacher(**batch).logits)
    student.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(again(**batch).logits, student(**batch).logits)


def test_the_mix_starts_from_the_teachers_logits_of_the_layers_that_stay() -> None:
    teacher = make_teacher("bert")
    teacher.mix.scale.fill_(2.5)
    student = student_from_teacher(teacher, (1, 3))
    assert torch.equal(student.mix.logits, teacher.mix.logits[:, [0, 1, 3]])
    assert student.mix.scale == 2.5


def test_the_student_may_have_another_mix_than_its_teacher() -> None:
    teacher = make_teacher("bert", mix="none")
    student = student_from_teacher(teacher, (1, 3), mix="across")
    assert student.mix.layers == (0, 1, 2)
    assert torch.equal(student.head.out.weight, teacher.head.out.weight)
    assert student_from_teacher(teacher, (1, 3)).config.mix["kind"] == "none"


def test_named_layers_of_a_mix_are_renumbered() -> None:
    torch.manual_seed(1)
    teacher = models.BermoForSequenceClassification.from_backbone(
        make_config("bert"), mix={"layers": (0, 2, -1)}
    )
    assert student_from_teacher(teacher, (1, 3)).mix.layers == (0, 2)
    only_second = models.BermoForSequenceClassification.from_backbone(
        make_config("bert"), mix={"kind": "within", "layers": (2,)}
    )
    with pytest.raises(BermoError, match="leaves all of them out"):
        student_from_teacher(only_second, (1, 3))


def test_albert_repeats_its_one_layer_less_often() -> None:
    teacher, batch = make_teacher("albert", mix="none"), make_batch("albert")
    student = student_from_teacher(teacher, (1, 3))
    layers = teacher(**batch, output_hidden_states=True).hidden_states
    outputs = student(**batch, output_hidden_states=True).hidden_states
    assert len(outputs) == 3
    assert torch.equal(outputs[2], layers[2])


def test_modernbert_keeps_which_layers_look_far() -> None:
    teacher = make_teacher("modernbert")
    student = student_from_teacher(teacher, (1, 3))
    assert student.core.backbone.config.layer_types == ["full_attention", "full_attention"]
    with pytest.raises(BermoError, match=r"attn_norm\.weight. Take layer 1 as the first"):
        student_from_teacher(teacher, (2, 3))


@pytest.mark.parametrize("layers", [(), (0, 1), (1, 4), (3, 1), (2, 2)])
def test_layers_that_the_teacher_lacks_are_refused(layers: tuple[int, ...]) -> None:
    with pytest.raises(BermoError, match=r"rising numbers from 1 to 3.*1,3"):
        student_from_teacher(make_teacher("bert"), layers)


def test_layers_that_cannot_move_are_refused() -> None:
    kind = models.BermoForSequenceClassification
    albert = AlbertConfig(**SIZES, embedding_size=8, num_hidden_groups=3, inner_group_num=1)
    with pytest.raises(BermoError, match="3 different layers in turn"):
        student_from_teacher(kind.from_backbone(albert), (1, 2))
    gpt2 = GPT2Config(vocab_size=60, n_embd=16, n_layer=3, n_head=2, scale_attn_by_inverse_layer_idx=True)
    with pytest.raises(BermoError, match="layer's number"):
        student_from_teacher(kind.from_backbone(gpt2), (1, 2))
