"""R-Drop, SMART and FreeLB give the losses and gradients of their formulas, written out slowly, and train."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.errors import BermoError
from bermo.fields import check
from bermo.method_spec import MethodSpec
from bermo.methods.assemble import LabelLoss
from bermo.methods.checks import check_methods
from bermo.methods.smooth import FreeLB, RDrop, Smart, make_loss_of
from bermo.nn.perturb import Perturbation
from bermo.spec import PruneSpec, RunSpec, replace_in
from bermo.training.job import compute_loss
from tests.methods.resumed import check_resumes_to_the_bit
from tests.methods.world import KINDS, World
from tests.small_models import small_batch, without_dropout
from tests.specs import TINY
from tests.tiny import make_batch

DENSE = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 2})


def padded() -> dict[str, Tensor]:
    return make_batch("bert") | {"labels": torch.tensor([0, 1, 1])}


def by_words(model: nn.Module, batch: dict[str, Tensor], delta: Tensor) -> Tensor:
    """The answers to word vectors that are changed before they are handed to the model."""
    words = model.get_input_embeddings()(batch["input_ids"])
    return model(inputs_embeds=words + delta, attention_mask=batch["attention_mask"]).logits


def kl(target: Tensor, answer: Tensor) -> Tensor:
    """The mean over rows of KL(softmax(target) ‖ softmax(answer)), by torch's own function."""
    return functional.kl_div(
        answer.log_softmax(-1), target.log_softmax(-1), reduction="batchmean", log_target=True
    )


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(model: nn.Module, loss: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-6)
    grads, slow = gradients(model, loss), gradients(model, expected)
    assert grads.keys() == slow.keys()
    for name in grads:
        torch.testing.assert_close(grads[name], slow[name], rtol=1e-3, atol=1e-5)


def test_r_drop_is_two_losses_and_their_symmetric_divergence() -> None:
    model = without_dropout("bert")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.3
    batch = small_batch(model)
    torch.manual_seed(4)
    loss = RDrop("classification", 2.0)(model, LabelLoss(model), batch)
    torch.manual_seed(4)
    one, other = (model(**batch) for _ in range(2))
    expected = (one.loss + other.loss) / 2 + kl(one.logits, other.logits) + kl(other.logits, one.logits)
    assert_same(model, loss, expected)


def test_smart_is_the_divergence_to_answers_after_one_step_uphill() -> None:
    model, batch = without_dropout("bert"), padded()
    smart = Smart("classification", Perturbation(model.get_input_embeddings()), weight=3.0, deviation=0.02)
    torch.manual_seed(4)
    loss = smart(model, LabelLoss(model), batch)
    torch.manual_seed(4)
    noise = (torch.randn(3, 7, 16) * 0.02 * batch["attention_mask"][..., None]).requires_grad_()
    clean = model(**batch)
    (grad,) = torch.autograd.grad(kl(clean.logits.detach(), by_words(model, batch, noise)), noise)
    delta = noise.detach().clone()
    for text, count in enumerate(batch["attention_mask"].sum(1).tolist()):
        for token in range(count):
            delta[text, token] += 1e-3 * grad[text, token] / (grad[text, token].abs().max() + 1e-6)
    changed = by_words(model, batch, delta)
    assert kl(clean.logits, changed).item() > 1e-6
    gap = kl(changed, clean.logits) + kl(clean.logits, changed)
    assert_same(model, loss, clean.loss + 3.0 * gap)


@pytest.mark.parametrize("radius", [0.6, 0.05])
def test_freelb_is_the_mean_loss_along_a_projected_climb_with_one_backward_a_step(radius: float) -> None:
    model, batch = without_dropout("bert"), padded()
    words = Perturbation(model.get_input_embeddings())
    torch.manual_seed(4)
    loss = FreeLB(words, radius=radius)(model, LabelLoss(model), batch)
    grads = gradients(model, loss)
    torch.manual_seed(4)
    counts = batch["attention_mask"].sum(1)
    delta = torch.empty(3, 7, 16).uniform_(-1, 1) * batch["attention_mask"][..., None]
    delta = delta / (counts * 16).sqrt()[:, None, None]
    model.zero_grad()
    losses = []
    for _ in range(3):
        delta = delta.detach().requires_grad_()
        one = functional.cross_entropy(by_words(model, batch, delta), batch["labels"])
        losses.append(one.detach())
        (one / 3).backward()
        moved = []
        for text in range(3):
            step = delta[text].detach() + 0.1 * delta.grad[text] / delta.grad[text].norm()
            moved.append(step if step.norm() <= radius else step * radius / step.norm())
        delta = torch.stack(moved)
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    assert losses[2] > losses[1]
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(grads[name], parameter.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", [MethodSpec(rdrop=1.0), MethodSpec(adversarial="smart")])
@pytest.mark.parametrize("world", [*KINDS, "multi-label", "regression"], indirect=True)
def test_answers_of_every_kind_have_a_distance_that_is_nothing_between_equal_ones(
    world: World, method: MethodSpec
) -> None:
    model, rows = world.student().train(), world.rows()
    batch, objective = rows.collate(rows.epoch(0)[0]), LabelLoss(model)
    loss = make_loss_of(method, model, world.data.task.kind)(model, objective, batch)
    expected = compute_loss(model, objective, batch)
    assert expected <= loss + 1e-6
    torch.testing.assert_close(loss, expected, rtol=5e-2, atol=1e-3)
    assert all(torch.isfinite(grad).all() for grad in gradients(model, loss).values())


@pytest.mark.usefixtures("shallow_box")
@pytest.mark.parametrize("method", [{"rdrop": 1.0}, {"adversarial": "freelb"}, {"mixout": 0.7}], ids=str)
def test_a_run_resumes_to_the_bit_and_leaves_a_plain_model(method: dict[str, object], tmp_path: Path) -> None:
    saved = check_resumes_to_the_bit(replace_in(DENSE, method=method), tmp_path, step=2)
    assert not any("parametrizations" in name for name in saved)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": {"rdrop": 1.0, "adversarial": "smart"}}, "Leave one out"),
        ({"method": {"rdrop": 1.0}, "train": {"together": 2}}, "together with several passes a step"),
        ({"method": {"mixout": 0.5}, "train": {"together": 2}}, "together with mixout"),
        (
            {"method": {"mixout": 0.5}, "prune": {"method": "movement", "density": 0.1}},
            "bring pruned weights",
        ),
        ({"method": {"adversarial": "smart"}, "train": {"precision": "fp16"}}, "fp16 rounds to nothing"),
        ({"method": {"rdrop": 1.0}, "data": {"task": "own/embedding"}}, "need answers"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(check(replace_in(RunSpec(), **changes)))


def test_a_family_whose_tokens_come_first_is_refused_by_name() -> None:
    with pytest.raises(BermoError, match="xlnet's order of tokens"):
        make_loss_of(MethodSpec(adversarial="freelb"), without_dropout("xlnet"), "classification")
