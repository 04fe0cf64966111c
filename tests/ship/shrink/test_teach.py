"""A small model learns the answers of the big one, and goes on where it was stopped."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bermo
from bermo.errors import BermoError
from bermo.ship.shrink.teach import Answer, Batch, first_output
from tests.ship.shrink.tagger import Tagger, batches, make

STEPS = 6


def test_the_small_model_learns_the_answers_of_the_big_one() -> None:
    big = make()
    small = copy.deepcopy(big)
    encoder = bermo.cut_encoder(big.token_rep.encoder, layers=(1, 3), heads=0.5, neurons=0.5)
    bermo.replace_encoder_(small, "token_rep.encoder", encoder)
    before = {name: p.clone() for name, p in big.named_parameters()}
    losses = bermo.teach_(small, big, batches(1) * 40, lr=3e-3)
    assert losses[-1] < 0.5 * losses[0]
    assert all(torch.equal(p, before[name]) for name, p in big.named_parameters())


def test_a_student_may_read_other_token_ids() -> None:
    big, small = make(), make()
    pair = (batches(1)[0], batches(2)[1])
    with torch.no_grad():
        ours, theirs = small(**pair[0]), big(**pair[1])
    wanted = float(((ours - theirs) ** 2).mean() / (theirs**2).mean())
    for part in small.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    assert bermo.teach_(small, big, [pair])[0] == pytest.approx(wanted, rel=1e-4)


def make_pair() -> tuple[Tagger, Tagger]:
    """Return a small model with dropout, so that random numbers count, and its teacher."""
    big = make()
    small = copy.deepcopy(big)
    bermo.replace_encoder_(
        small, "token_rep.encoder", bermo.cut_encoder(big.token_rep.encoder, layers=(1, 3), heads=0.5)
    )
    torch.manual_seed(7)
    return small, big


def stopping(at: int) -> Answer:
    """Return an answer that breaks off when the student is asked for the n-th time."""
    asked = 0

    def answer(model: nn.Module, batch: Batch) -> Tensor:
        nonlocal asked
        if model.training:
            asked += 1
            if asked == at:
                raise KeyboardInterrupt
        return first_output(model, batch)

    return answer


@pytest.mark.parametrize("stops", [(1,), (4,), (3, 2), (STEPS,)])
def test_a_stopped_training_ends_with_the_same_bits(stops: tuple[int, ...], tmp_path: Path) -> None:
    whole, big = make_pair()
    expected = bermo.teach_(whole, big, batches(STEPS), lr=1e-3)
    after = torch.rand(3)
    for at in stops:
        small, big = make_pair()
        with pytest.raises(KeyboardInterrupt):
            bermo.teach_(
                small,
                big,
                batches(STEPS),
                lr=1e-3,
                answer=stopping(at),
                folder=tmp_path / "state",
                checkpoint_minutes=0,
            )
    small, big = make_pair()
    assert bermo.teach_(small, big, batches(STEPS), lr=1e-3, folder=tmp_path / "state") == expected
    assert torch.equal(torch.rand(3), after)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(small.state_dict()[name], tensor), name


def test_a_training_that_is_done_is_read_and_not_repeated(tmp_path: Path) -> None:
    small, big = make_pair()
    losses = bermo.teach_(small, big, batches(2), folder=tmp_path / "state")
    again, big = make_pair()
    answer = stopping(1)
    assert bermo.teach_(again, big, batches(2), answer=answer, folder=tmp_path / "state") == losses
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), small.parameters(), strict=True))


def test_a_damaged_checkpoint_is_left_out_for_the_one_before(tmp_path: Path) -> None:
    whole, big = make_pair()
    expected = bermo.teach_(whole, big, batches(3), folder=tmp_path, checkpoint_minutes=0)
    weights = max(tmp_path.glob("step-*")) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    small, big = make_pair()
    assert bermo.teach_(small, big, batches(3), folder=tmp_path) == expected
    assert all(torch.equal(a, b) for a, b in zip(small.parameters(), whole.parameters(), strict=True))


@pytest.mark.parametrize("what", ["student", "teacher", "batches", "lr"])
def test_the_folder_of_another_training_is_refused(what: str, tmp_path: Path) -> None:
    small, big = make_pair()
    bermo.teach_(small, big, batches(2), folder=tmp_path)
    small, big = make_pair()
    with torch.no_grad():
        if what in ("student", "teacher"):
            (small if what == "student" else big).words.bias.add_(1)
    given = batches(3 if what == "batches" else 2)
    with pytest.raises(BermoError, match="checkpoints of another training"):
        bermo.teach_(small, big, given, lr=1e-3 if what == "lr" else 1e-4, folder=tmp_path)


def test_what_cannot_be_taught_is_a_sentence() -> None:
    model = make()
    with pytest.raises(BermoError, match="There are no batches"):
        bermo.teach_(model, model, [])
    with pytest.raises(BermoError, match="checkpoint_minutes must be at least 0"):
        bermo.teach_(model, model, batches(1), checkpoint_minutes=-1)
