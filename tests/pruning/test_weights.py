"""Pruning a model: the schedule's formula, exact densities on every family, folding without a changed bit."""

import copy
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, Trainer, TrainingArguments

import bermo
from bermo.encoders.sites import prunable_sites
from bermo.errors import BermoError
from bermo.nn.fast.choice import Choice
from bermo.pruning.callback import PruningCallback
from bermo.pruning.criteria import BACK, L0, MEMORY, PULL, Magnitude, Method, Movement, SoftMovement
from bermo.pruning.fold import count, fold_, folded_state
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import Pruner, Together, choose_on_device_, prune_
from tests.small_models import batch_of, model_of
from tests.tiny import CONFIGS

SCHEDULE = CubicSchedule(total_steps=10, warmup_steps=2)
METHODS: list[Method] = [
    Magnitude(density=0.1),
    Movement(density=0.1),
    SoftMovement(penalty=10.0),
    L0(penalty=1.0),
    Movement(density=0.25, scope="global"),
    Movement(density=0.1, start="magnitude"),
]


def test_the_schedule_equals_the_written_formula_at_every_step() -> None:
    schedule = CubicSchedule(total_steps=100, warmup_steps=10, initial_warmup=1, final_warmup=2)
    for step in range(101):
        if step < 10:
            expected = 1.0
        elif step > 80:
            expected = 0.1
        else:
            expected = 0.1 + 0.9 * (1 - (step - 10) / 70) ** 3
        assert schedule.value(step, 1.0, 0.1) == pytest.approx(expected)
    values = [schedule.value(step, 1.0, 0.1) for step in range(101)]
    assert values == sorted(values, reverse=True)


def test_a_schedule_without_room_says_how_many_steps_it_needs() -> None:
    with pytest.raises(BermoError, match="more than 20 steps"):
        CubicSchedule(total_steps=20, warmup_steps=10)


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_prunes_to_the_exact_density_and_folds_to_the_bit(family: str) -> None:
    model = model_of(family)
    inputs = batch_of(model)
    before = model(**inputs).logits
    pruner = prune_(model, Movement(density=0.3), SCHEDULE)
    assert torch.equal(model(**inputs).logits, before), "a dense mask changes nothing"
    for mask in pruner.masks:
        nn.init.normal_(mask.scores)
    pruner.at(10)
    for site, mask in zip(pruner.sites, pruner.masks, strict=True):
        assert int(mask.mask.sum()) == math.floor(0.3 * site.original.numel()), site.name
    pruned = model(**inputs).logits
    assert not torch.equal(pruned, before)
    counted = count(model)
    fold_(model)
    assert torch.equal(model(**inputs).logits, pruned)
    assert count(model) == counted
    assert not any("parametrizations" in name for name in model.state_dict())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_folded_model_reloads_with_the_same_bits(method: Method, tmp_path: Path) -> None:
    model = model_of("bert")
    inputs = batch_of(model)
    pruner = prune_(model, method, SCHEDULE)
    for mask in pruner.masks:
        if hasattr(mask, "scores"):
            nn.init.normal_(mask.scores, std=3)
    pruner.at(10)
    pruned = model(**inputs).logits
    state = folded_state(model.train())
    assert torch.equal(model.eval()(**inputs).logits, pruned), "the model itself is unchanged"
    fold_(model)
    assert torch.equal(model(**inputs).logits, pruned)
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    model.save_pretrained(tmp_path)
    again = bermo.BermoForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(again(**inputs).logits, pruned)
    assert count(again) == count(model)


def test_the_paper_counts_ten_percent_of_bert_base_as_10_127() -> None:
    with torch.device("meta"):
        model = bermo.BermoForSequenceClassification(bermo.BermoConfig(BertConfig()))
    sites = prunable_sites(model)
    assert len(sites) == 72
    kept = sum(math.floor(0.1 * site.original.numel()) for site in sites)
    total = sum(p.numel() for p in model.bermo.backbone.encoder.parameters())
    others = total - sum(site.original.numel() for site in sites)
    assert 100 * (kept + others) / total == pytest.approx(10.127, abs=5e-4)


def test_counting_knows_masks_scores_and_embeddings() -> None:
    model = model_of("bert")
    dense = count(model)
    assert (
        dense.encoder_kept
        == dense.encoder_total
        == sum(p.numel() for p in model.bermo.backbone.encoder.parameters())
    )
    assert dense.model_total == sum(p.numel() for p in model.parameters())
    pruner = prune_(model, Movement(density=0.5), SCHEDULE)
    pruner.at(10)
    pruned = count(model)
    sites = sum(site.original.numel() for site in pruner.sites)
    assert pruned.encoder_total == dense.encoder_total
    assert pruned.model_total - pruned.model_kept == sites - sum(
        math.floor(0.5 * site.original.numel()) for site in pruner.sites
    )
    assert pruner.density == pytest.approx(0.5, abs=1e-3)
    assert pruner.density_of(pruner.densities()) == pytest.approx(pruner.density)


@pytest.mark.parametrize("block", [(0, 1), (1, 0), (2, 4)])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_rows_are_output_neurons_even_where_a_matrix_is_stored_transposed(
    family: str, block: tuple[int, int]
) -> None:
    model = model_of(family)
    pruner = prune_(model, Magnitude(density=0.5, block=block), SCHEDULE)
    pruner.at(10)
    for site in pruner.sites:
        weight = site.weight.detach()
        matrix = weight.T if site.is_transposed else weight
        if block == (0, 1):  # a block is a column: all outputs of one input
            assert all(len(column.count_nonzero().unique()) == 1 for column in matrix.T)
            assert {bool(column.any()) for column in matrix.T} == {True, False}
        if block == (1, 0):
            assert {bool(row.any()) for row in matrix} == {True, False}


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_training_moves_scores_and_pruned_weights_keep_their_values(method: Method) -> None:
    torch.manual_seed(0)
    model = model_of("bert").train()
    pruner = prune_(model, method, SCHEDULE)
    inputs = batch_of(model) | {"labels": torch.tensor([0, 1, 1])}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = [site.original.detach().clone() for site in pruner.sites]
    for _ in range(10):
        loss = model(**inputs).loss + pruner.penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    if isinstance(method, Magnitude):
        assert pruner.density == pytest.approx(0.1, abs=0.01)
        return
    assert any(not torch.equal(s, torch.zeros_like(s)) for s in pruner.score_parameters())
    moved = [not torch.equal(a, site.original) for a, site in zip(start, pruner.sites, strict=True)]
    assert all(moved)


def test_a_pruned_weight_comes_back_by_its_score() -> None:
    model = model_of("bert")
    pruner = prune_(model, Movement(density=0.5), SCHEDULE)
    pruner.at(10)
    scores, mask = pruner.masks[0].scores, pruner.masks[0].mask
    place = (mask == 0).nonzero()[0]
    with torch.no_grad():
        scores[tuple(place)] = 9.0
    pruner.at(10)
    assert mask[tuple(place)]


@pytest.mark.parametrize("kind", [SoftMovement, L0])
def test_a_density_is_reached_without_guessing_the_penalty(
    kind: type[SoftMovement] | type[L0],
) -> None:
    torch.manual_seed(0)
    model = model_of("bert", layers=1).train()
    steps = 400
    pruner = prune_(model, kind(density=0.2), CubicSchedule(total_steps=steps, warmup_steps=40))
    inputs = batch_of(model) | {"labels": torch.tensor([0, 1, 1])}
    optimizer = torch.optim.AdamW([{"params": pruner.score_parameters(), "lr": 5e-2, "weight_decay": 0.0}])
    for _ in range(steps):
        (model(**inputs).loss + pruner.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    assert pruner.density == pytest.approx(0.2, abs=0.02)


def test_the_multiplier_adds_each_excess_up_once() -> None:
    model = model_of("bert").train()
    schedule = CubicSchedule(total_steps=40, warmup_steps=2)
    pruner = prune_(model, SoftMovement(density=0.2), schedule)
    slow = 0.0
    for step in range(1, 30):
        wanted = schedule.value(step - 1, 1.0, 0.2)
        excess = max(-1.0, min(1.0, (pruner.density - wanted) / wanted))
        size = torch.stack([mask.size_penalty() for mask in pruner.masks]).mean()
        strength = slow + (PULL + abs(slow)) * (excess if excess > 0 else BACK * excess)
        for _ in range(3):  # parts of a batch, or a look aside
            assert pruner.penalty().item() == pytest.approx(strength * size.item(), rel=1e-4)
        slow += (PULL + abs(slow)) / MEMORY * excess
        pruner.plan(step)
        pruner.at(step)  # a step that is planned twice, as after a resume
    assert slow > 100


def test_below_its_density_the_pull_turns_round_at_once() -> None:
    model = model_of("bert").train()
    schedule = CubicSchedule(total_steps=40, warmup_steps=2)
    pruner = prune_(model, SoftMovement(density=0.2), schedule)
    for scores in pruner.score_parameters():
        scores.data.fill_(-10.0)
    pruner.at(30)
    wanted = schedule.value(30, 1.0, 0.2)
    excess = (pruner.density - wanted) / wanted
    size = torch.stack([mask.size_penalty() for mask in pruner.masks]).mean()
    assert excess < -0.9
    assert pruner.penalty().item() == pytest.approx(BACK * PULL * excess * size.item(), rel=1e-4)


def test_the_same_step_gives_the_same_l0_masks_on_every_process() -> None:
    models = [model_of("bert").train(), model_of("bert").train()]
    pruners = [prune_(model, L0(penalty=1.0), SCHEDULE, seed=5) for model in models]
    torch.manual_seed(99)
    for pruner in pruners:
        pruner.at(3)
        torch.rand(7)
    for one, other in zip(pruners[0].masks, pruners[1].masks, strict=True):
        assert torch.equal(one.gates(), other.gates())


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert"])
@pytest.mark.parametrize("method", [Movement(density=0.1), SoftMovement(penalty=5.0)], ids=str)
def test_transformers_trainer_with_the_callback_reaches_the_density(
    family: str, method: Method, tmp_path: Path
) -> None:
    model = model_of(family).train()
    pruner = prune_(model, method, CubicSchedule(total_steps=12, warmup_steps=2))
    row = {key: value[0] for key, value in batch_of(model).items()} | {"labels": 1}
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=12,
        per_device_train_batch_size=2,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    groups = [
        {"params": pruner.score_parameters(), "lr": 1e-2, "weight_decay": 0.0},
        {
            "params": [p for n, p in model.named_parameters() if not n.endswith("scores")],
            "lr": 1e-4,
        },
    ]
    Trainer(
        model=model,
        args=arguments,
        train_dataset=[row] * 8,
        callbacks=[PruningCallback(pruner)],
        optimizers=(torch.optim.AdamW(groups), None),
    ).train()
    assert pruner.num_steps == 12
    if isinstance(method, Movement):
        assert pruner.density == pytest.approx(0.1, abs=0.005)
    assert all(score.abs().sum() > 0 for score in pruner.score_parameters())


@pytest.mark.parametrize("method", [Movement(density=0.1), L0(density=0.5)], ids=str)
def test_transformers_trainer_goes_on_from_its_checkpoint_to_the_same_masks(
    method: Method, tmp_path: Path
) -> None:
    def train(checkpoint: Path | None) -> Pruner:
        torch.manual_seed(1)
        model = model_of("bert").eval()
        pruner = prune_(model, method, CubicSchedule(total_steps=8, warmup_steps=1))
        row = {key: value[0] for key, value in batch_of(model).items()} | {"labels": 1}
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=8,
            save_steps=4,
            per_device_train_batch_size=2,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        groups = [
            {"params": pruner.score_parameters(), "lr": 1e-2, "weight_decay": 0.0},
            {"params": [p for n, p in model.named_parameters() if not n.endswith("scores")], "lr": 1e-4},
        ]
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=[row] * 16,
            callbacks=[PruningCallback(pruner)],
            optimizers=(torch.optim.AdamW(groups), None),
        )
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return pruner

    whole, resumed = train(None), train(tmp_path / "checkpoint-4")
    assert whole.num_steps == resumed.num_steps == 8
    for one, other in zip(whole.masks, resumed.masks, strict=True):
        assert torch.equal(one.mask, other.mask) if hasattr(one, "mask") else True
        torch.testing.assert_close(one.scores, other.scores)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize(
    "method",
    [Magnitude(density=0.3), Movement(density=0.3), SoftMovement(penalty=5.0), L0(penalty=5.0)],
    ids=str,
)
def test_a_compiled_model_trains_as_the_plain_one_while_masks_move(method: Method) -> None:
    found = []
    for is_compiled in (False, True):
        torch.manual_seed(3)
        model = model_of("bert", layers=1).eval()  # without dropout
        pruner = prune_(model, method, SCHEDULE)
        run = torch.compile(model, backend="aot_eager") if is_compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            inputs = batch_of(model)
            (
                run(**inputs, labels=torch.ones(len(inputs["input_ids"]), dtype=torch.long)).loss
                + pruner.penalty()
            ).backward()
            optimizer.step()
            optimizer.zero_grad()
            pruner.step()
        found.append([p.detach().clone() for p in model.parameters()])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_masks_survive_torch_compile() -> None:
    model = model_of("bert").train()
    pruner = prune_(model, Movement(density=0.3), SCHEDULE)
    pruner.at(10)
    inputs = batch_of(model)
    model.eval()
    compiled = torch.compile(copy.deepcopy(model), backend="eager")
    torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Movement(density=1.5), "at most 1"),
        (lambda: L0(), "one of the two"),
        (lambda: SoftMovement(penalty=1.0, density=0.1), "one of the two"),
        (lambda: Movement(density=0.1, block=(5, 7)), "Choose another block"),
        (lambda: Movement(density=0.1, block=(2,)), "block is rows,columns"),
        (
            lambda: Movement(density=0.1, scope="glbal"),
            'scope is matrix or global, but got "glbal"',
        ),
        (lambda: Movement(density=0.1, rank="sze"), 'rank is score or size, but got "sze"'),
        (lambda: SoftMovement(penalty=-5.0), "penalty must be over 0"),
        (lambda: SoftMovement(penalty=5.0, threshold=0.0), "between 0 and 1"),
        (lambda: SoftMovement(penalty=5.0, threshold=2.0), "between 0 and 1"),
    ],
)
def test_methods_that_make_no_sense_are_refused(build: object, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        Pruner(model_of("bert"), build(), SCHEDULE)  # type: ignore[operator]


def test_what_is_no_model_of_transformers_is_refused() -> None:
    with pytest.raises(BermoError, match="takes a model of transformers, but got Linear"):
        prune_(nn.Linear(4, 4), Movement(density=0.1), SCHEDULE)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["warmup_steps", "initial_warmup", "final_warmup"])
def test_a_schedule_of_negative_numbers_is_refused(name: str) -> None:
    with pytest.raises(BermoError, match=f"{name} must be 0 or more"):
        CubicSchedule(**{"total_steps": 10, "warmup_steps": 1, name: -3})


@pytest.mark.parametrize("density", [0.29, 0.57, 0.58])
def test_the_number_kept_is_the_floor_of_the_written_product(density: float) -> None:
    config = BertConfig(hidden_size=80, num_hidden_layers=1, num_attention_heads=2, intermediate_size=80)
    pruner = prune_(BertModel(config), Movement(density=density), SCHEDULE)
    pruner.at(SCHEDULE.total_steps)
    exact = math.floor(Fraction(str(density)) * 6400)
    assert {int(mask.mask.sum()) for mask in pruner.masks} == {exact}


def test_a_folded_copy_leaves_the_original_alone() -> None:
    model = model_of("bert")
    prune_(model, Movement(density=0.3), SCHEDULE).at(10)
    inputs = batch_of(model)
    expected = model(**inputs).logits
    folded = copy.deepcopy(model)
    fold_(folded)
    assert torch.equal(folded(**inputs).logits, expected)
    assert torch.equal(model(**inputs).logits, expected)
    fold_(model)
    assert torch.equal(model(**inputs).logits, expected)


def test_a_model_with_masks_is_not_masked_twice() -> None:
    model = model_of("bert")
    prune_(model, Movement(density=0.1), SCHEDULE)
    with pytest.raises(BermoError, match="has masks already"):
        prune_(model, Movement(density=0.1), SCHEDULE)


def test_ranking_by_size_keeps_the_largest_weight_times_open_score() -> None:
    model = model_of("bert")
    method = Movement(density=0.3, rank="size")
    pruner = prune_(model, method, CubicSchedule(total_steps=10, warmup_steps=1))
    for score in pruner.score_parameters():
        score.data.normal_(generator=torch.Generator().manual_seed(1))
    pruner.at(10)
    for site, mask in zip(pruner.sites, pruner.masks, strict=True):
        value = (site.original.abs() * torch.sigmoid(mask.scores)).flatten()
        kept = set(value.argsort(descending=True)[: math.floor(0.3 * len(value))].tolist())
        assert set(mask.mask.flatten().nonzero().flatten().tolist()) == kept


@pytest.mark.parametrize(
    "method",
    [
        Movement(density=0.3, rank="size", block=(2, 4)),
        Movement(density=0.3, scope="global", block=(2, 4)),
        SoftMovement(penalty=1.0, block=(2, 4)),
    ],
)
def test_pruners_together_set_the_masks_of_each(method: Method) -> None:
    pruners = []
    for seed in range(2):
        pruners.append(prune_(model_of("bert"), method, SCHEDULE))
        torch.manual_seed(seed)
        for mask in pruners[-1].masks:
            nn.init.normal_(mask.scores, std=3)
        pruners[-1].at(7)
    alone = [mask.mask.clone() for pruner in pruners for mask in pruner.masks]
    for set_ in (Together(pruners).apply, lambda: choose_on_device_(pruners, Choice())):
        for pruner in pruners:
            for mask in pruner.masks:
                mask.mask.fill_(True)
        with torch.no_grad():
            set_()
        found = [mask.mask for pruner in pruners for mask in pruner.masks]
        assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))


def test_pruners_of_different_methods_are_not_taken_together() -> None:
    pruners = [prune_(model_of("bert"), Movement(density=d), SCHEDULE) for d in (0.1, 0.2)]
    with pytest.raises(BermoError, match="one method, but got 2"):
        Together(pruners)
