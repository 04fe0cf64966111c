"""What a user leaves open is chosen from the encoder and the data; what is said is left alone."""

from dataclasses import replace

import pytest

from bermo.errors import BermoError
from bermo.methods.defaults import LEAST_STEPS, Facts, resolve_defaults, usual_epochs, usual_rate
from bermo.recipes import RECIPES
from bermo.spec import DistillSpec, MixSpec, ModelSpec, PruneSpec, RunSpec, TrainSpec, replace_in

FACTS = Facts(width=384, is_box=False, kind="classification", num_rows=200, family_pooling="first")
OPEN = RunSpec()


@pytest.mark.parametrize(
    ("width", "rate"), [(1024, 2e-5), (768, 3e-5), (384, 1e-4), (312, 1e-4), (256, 2e-4), (32, 5e-4)]
)
def test_narrower_encoders_learn_faster(width: int, rate: float) -> None:
    assert usual_rate(replace(FACTS, width=width)) == rate
    assert usual_rate(replace(FACTS, width=width, is_box=True)) == 2e-4


def test_few_rows_are_read_more_often_and_many_three_times() -> None:
    assert usual_epochs(LEAST_STEPS) == usual_epochs(10_000) == 3
    assert usual_epochs(13) * 13 >= LEAST_STEPS > (usual_epochs(13) - 1) * 13
    assert usual_epochs(1) == 100


def test_a_resolved_spec_has_no_open_value_and_says_what_was_chosen() -> None:
    resolved = resolve_defaults(OPEN, replace(FACTS, trained_pooling="mean"))
    train, model = resolved.spec.train, resolved.spec.model
    assert (train.lr, train.batch_size, train.epochs) == (1e-4, 16, 31)
    assert (model.head, model.pooling) == ("probe", "mean")
    said = ", ".join(resolved.reasons)
    for word in (
        "rate 0.0001 (width 384)",
        "16 rows a step",
        "31 epochs (200 rows: 403 steps)",
        "probe",
        "pooling mean",
    ):
        assert word in said
    large = resolve_defaults(OPEN, replace(FACTS, num_rows=67_349)).spec.train
    assert (large.batch_size, large.epochs) == (32, 3)


def test_few_rows_of_classes_are_contrasted_where_nothing_else_is_learned() -> None:
    assert resolve_defaults(OPEN, FACTS).spec.train.contrast == 1
    taught = replace(OPEN, distill=DistillSpec(teacher="runs/dense"))
    pruned = replace(OPEN, prune=PruneSpec(method="movement", density=0.1, rank="score"))
    plain = replace(OPEN, model=ModelSpec(head="random"))
    for spec in (taught, pruned, plain, replace(OPEN, train=TrainSpec(together=2))):
        assert resolve_defaults(spec, FACTS).spec.train.contrast == 0
    for facts in (replace(FACTS, num_rows=1000), replace(FACTS, kind="regression")):
        assert resolve_defaults(OPEN, facts).spec.train.contrast == 0


def test_a_mean_of_the_weights_is_kept_where_a_narrow_encoder_learns_classes_with_contrast() -> None:
    resolved = resolve_defaults(OPEN, FACTS)
    assert resolved.spec.train.average == "on"
    assert "a mean of the weights is kept" in resolved.reasons
    taught = replace(OPEN, distill=DistillSpec(teacher="runs/dense"))
    others = (taught, replace(OPEN, train=TrainSpec(contrast=0.0)), replace_in(OPEN, method={"rdrop": 1.0}))
    for spec in others:
        assert resolve_defaults(spec, FACTS).spec.train.average == "off"
    for facts in (replace(FACTS, num_rows=1000), replace(FACTS, width=768)):
        assert resolve_defaults(OPEN, facts).spec.train.average == "off"
    apart = replace_in(OPEN, model={"pairs": "apart"})
    assert resolve_defaults(apart, replace(FACTS, has_pairs=True)).spec.train.average == "off"


def test_the_mix_starts_at_the_last_layer_where_rows_are_few() -> None:
    resolved = resolve_defaults(OPEN, FACTS)
    assert resolved.spec.model.mix.init == "last"
    assert "the mix starts at the last layer" in resolved.reasons
    assert resolve_defaults(OPEN, replace(FACTS, num_rows=1000)).spec.model.mix.init == "xavier"
    for mix in (MixSpec(kind="none"), MixSpec(kind="across", init="xavier")):
        spec = replace(OPEN, model=ModelSpec(mix=mix))
        assert resolve_defaults(spec, FACTS).spec.model.mix == mix


def test_few_rows_of_a_narrow_sentence_encoder_need_no_mix_unless_one_is_asked_for() -> None:
    sentence = replace(FACTS, trained_pooling="mean")
    resolved = resolve_defaults(OPEN, sentence)
    assert resolved.spec.model.mix == MixSpec(kind="none")
    assert "no mix of layers" in resolved.reasons
    for facts in (FACTS, replace(sentence, width=768), replace(sentence, num_rows=1000)):
        assert resolve_defaults(OPEN, facts).spec.model.mix.kind == "across"
    for asked in (MixSpec(kind="across"), MixSpec(dropout=0.2), MixSpec(init="zeros")):
        spec = replace(OPEN, model=ModelSpec(mix=asked))
        assert resolve_defaults(spec, sentence).spec.model.mix.kind == "across"
    opening = replace_in(OPEN, method={"mix_path": "opens"})
    assert resolve_defaults(opening, sentence).spec.model.mix.kind == "across"


def test_ranking_and_scope_of_pruning_are_chosen_by_what_is_pruned() -> None:
    found = {}
    for method in ("movement", "heads-and-neurons", "magnitude", "soft-movement", "none"):
        spec = replace(OPEN, prune=PruneSpec(method=method))
        prune = resolve_defaults(spec, FACTS).spec.prune
        found[method] = (prune.rank, prune.scope)
    assert found == {
        "movement": ("sensitivity", "global"),
        "heads-and-neurons": ("size", "matrix"),
        "magnitude": (None, "matrix"),
        "soft-movement": (None, None),
        "none": (None, None),
    }
    paper = replace(OPEN, prune=PruneSpec(method="movement", rank="score"))
    assert resolve_defaults(paper, FACTS).spec.prune.scope == "matrix"


def test_what_the_user_said_is_left_alone_and_not_repeated() -> None:
    mix = MixSpec(kind="across", init="zeros")
    said = RunSpec(
        model=ModelSpec(mix=mix, pooling="first", pairs="joined", head="probe"),
        train=TrainSpec(lr=1.0, batch_size=7, epochs=0.5, contrast=0.2, average="off"),
    )
    resolved = resolve_defaults(said, replace(FACTS, trained_pooling="mean"))
    assert resolved.spec == said
    assert resolved.reasons == ()


def test_pairs_are_read_as_one_text_unless_a_probe_of_few_rows_or_a_teacher_says_otherwise() -> None:
    few = replace(FACTS, has_pairs=True)
    taught = replace(few, teacher_pairs="apart")
    cases = {
        "joined": [
            FACTS,
            replace(few, num_rows=1000),
            replace(few, kind="reranker"),
            replace(few, width=768),
        ],
        "apart": [taught, replace(taught, num_rows=5000)],
    }
    for expected, known in cases.items():
        for facts in known:
            assert resolve_defaults(OPEN, facts).spec.model.pairs == expected
    assert resolve_defaults(OPEN, replace(few, width=768, kind="regression")).spec.model.pairs is None
    undecided = resolve_defaults(OPEN, few).spec
    assert (undecided.model.pairs, undecided.train.contrast, undecided.train.lr) == (None, None, None)
    assert undecided.model.mix == MixSpec()
    apart = resolve_defaults(replace_in(undecided, model={"pairs": "apart"}), few)
    assert (apart.spec.train.contrast, apart.spec.train.lr) == (0.0, 3e-5)
    assert apart.spec.model.mix == MixSpec(kind="none")
    assert apart.reasons == ("rate 3e-05 (width 384)", "no mix of layers")
    for kind in ("within", "across"):
        asked = replace_in(undecided, model={"pairs": "apart", "mix": MixSpec(kind=kind)})
        assert resolve_defaults(asked, few).spec.model.mix == MixSpec(kind=kind, init="last")
    with pytest.raises(BermoError, match=r"in a task of the kind reranker\. Leave --pairs out"):
        resolve_defaults(replace_in(OPEN, model={"pairs": "apart"}), replace(few, kind="reranker"))


def test_kinds_without_a_linear_probe_and_students_of_their_teachers_layers_keep_the_head_they_have() -> None:
    taught = replace(OPEN, distill=DistillSpec(teacher="runs/dense", student_layers=(1, 2)))
    for spec, facts in ((OPEN, replace(FACTS, kind="span")), (taught, FACTS)):
        model = resolve_defaults(spec, replace(facts, trained_pooling="mean")).spec.model
        assert (model.head, model.pooling) == ("random", None)
        with pytest.raises(BermoError, match="Leave --head out"):
            resolve_defaults(replace_in(spec, model={"head": "probe"}), facts)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_leave_nothing_open(name: str) -> None:
    for spec in RECIPES[name]().arms.values():
        train = spec.train
        assert None not in (train.lr, train.epochs, train.batch_size, train.evaluations)
        assert (train.contrast, train.average) == (0.0, "off")
        assert spec.model.head == "random"
