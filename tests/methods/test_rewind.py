"""Iterative magnitude pruning: the smallest that are left go, the encoder goes back, the head stays."""

from pathlib import Path

import pytest
import torch

from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.assemble import assemble
from bermo.methods.checks import check_methods
from bermo.methods.prepare import prepare
from bermo.methods.rewind import Rewind
from bermo.progress import Quiet
from bermo.pruning.schedule import RoundSchedule
from bermo.spec import PruneSpec, RunSpec, replace_in
from bermo.training.devices import make_accelerator
from tests.methods.resumed import check_resumes_to_the_bit
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")
PRUNE = PruneSpec(method="magnitude", density=0.4, scope="global", rewind=2)
SPEC = replace_in(TINY, prune=vars(PRUNE), train={"epochs": 3})


def test_densities_fall_in_equal_jumps_and_one_round_follows_the_last() -> None:
    schedule = RoundSchedule(total_steps=10, rounds=3)
    assert schedule.jumps == (2, 5, 7)
    densities = [schedule.value(step, 1.0, 0.4) for step in range(10)]
    assert densities == pytest.approx([1, 1, 0.8, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4, 0.4])
    with pytest.raises(BermoError, match="needs more than 3 steps"):
        RoundSchedule(total_steps=3, rounds=3)


def test_each_turn_chooses_among_what_is_left_as_a_slow_version_does_and_goes_back(tmp_path: Path) -> None:
    parts = assemble(prepare(SPEC, Quiet()), 1, Quiet(), make_accelerator(SPEC.train, tmp_path))
    hook = next(hook for hook in parts.hooks if hasattr(hook, "pruner"))
    pairs, rewind = hook.pruner.simple_masks(), hook.rewind
    assert isinstance(rewind, Rewind)
    starts = [weight.detach().clone() for _, weight in pairs]
    head = parts.model.head.out.weight
    kept = [torch.ones_like(weight, dtype=torch.bool) for _, weight in pairs]
    total = sum(mask.numel() for mask in kept)
    for turn, jump in enumerate(sorted(rewind.jumps), start=1):
        generator = torch.Generator().manual_seed(turn)
        with torch.no_grad():
            head.add_(1)
            for _, weight in pairs:
                weight.add_(torch.randn(weight.shape, generator=generator) * weight.std())
        sizes = torch.cat([(w.detach().abs() * m).flatten() for (_, w), m in zip(pairs, kept, strict=True)])
        moved = head.detach().clone()
        for mask, _ in pairs:
            mask.is_copied = True
        hook.plan(jump)
        hook.apply()
        assert not any(mask.is_copied for mask, _ in pairs), "copies are of the weights before they went back"
        count = sum(int(mask.mask.sum()) for mask, _ in pairs)
        assert count == pytest.approx((1 - 0.3 * turn) * total, abs=2)
        flat = torch.zeros(total, dtype=torch.bool)
        flat[sizes.argsort(descending=True)[:count]] = True
        kept = [part.view_as(m) for part, m in zip(flat.split([m.numel() for m in kept]), kept, strict=True)]
        for (mask, weight), expected, start in zip(pairs, kept, starts, strict=True):
            assert torch.equal(mask.mask.bool().view_as(expected), expected)
            assert torch.equal(weight, start)
        assert torch.equal(head, moved)
        hook.plan(jump + 1)
        hook.apply()
        assert all(torch.equal(w, s) for (_, w), s in zip(pairs, starts, strict=True)), "between the rounds"


def test_a_run_resumes_to_the_bit_at_the_wanted_density(tmp_path: Path) -> None:
    saved = check_resumes_to_the_bit(SPEC, tmp_path, step=4)
    matrices = [t for name, t in saved.items() if ".encoder.layer." in name and t.ndim == 2]
    kept = sum(int(t.count_nonzero()) for t in matrices) / sum(t.numel() for t in matrices)
    assert kept == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "movement", "density": 0.5, "rewind": 2}, "--rewind means nothing to --prune movement"),
        ({"method": "magnitude", "density": 0.5, "rewind": 2, "block": (4, 4)}, "--block means nothing"),
        ({"rewind": 2}, "--rewind belongs to pruning"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(check(replace_in(RunSpec(), prune=changes)))
