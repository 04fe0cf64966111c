"""The effect of a pruning order's first cut: train dense with movement scores, then zero a few percent.

    python benchmarks/first_cut.py --model FOLDER --data SST2_FOLDER [--rows 8320] [--out FILE.json]

The masks stay open while the model learns (density 1), so the scores see the whole training. Then, in each
matrix and without any further training, a share of the weights is zeroed: those with the lowest scores
(movement's first choice), the highest, the smallest weights (magnitude's first choice), the largest, or
random ones. Reported: dev accuracy, the share of the majority answer, and the mean size of the zeroed weights
beside that of all in their matrix.
"""

import argparse
import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from bermo.data.scoring import score
from bermo.files import write_json
from bermo.methods.assemble import assemble
from bermo.methods.evaluate import predict
from bermo.methods.prepare import prepare
from bermo.methods.prune import PruneHook
from bermo.nn.masks import ScoreMask, top_mask
from bermo.progress import Quiet
from bermo.recipes.core import beside_plain
from bermo.spec import DataSpec, ModelSpec, PruneSpec, RunSpec, TrainSpec
from bermo.training.devices import make_accelerator
from bermo.training.job import Job
from bermo.training.loop import fit

CUTS = (0.01, 0.02, 0.05, 0.1)
Order = Callable[[Tensor, Tensor], Tensor]
# What is kept first; the cut takes the rest.
ORDERS: dict[str, Order] = {
    "lowest scores": lambda scores, weight: scores,
    "highest scores": lambda scores, weight: -scores,
    "smallest weights": lambda scores, weight: weight.abs(),
    "largest weights": lambda scores, weight: -weight.abs(),
    "random": lambda scores, weight: torch.rand_like(weight),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="box")
    parser.add_argument("--data")
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--rows", type=int, default=8320)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--arm", choices=("plain", "mix"), default="plain")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    spec = RunSpec(
        model=ModelSpec(backbone=options.model, freeze_embeddings=True),
        data=DataSpec(task=options.task, folder=options.data, limit=options.rows),
        train=TrainSpec(epochs=1, lr=options.lr, checkpoint_minutes=1e9),
        prune=PruneSpec(method="movement", density=1.0, rank="score"),
    )
    result = cut(beside_plain(spec).arms[options.arm])
    if options.out is not None:
        write_json(options.out, {"arm": options.arm, "rows": options.rows, **result})


def cut(spec: RunSpec) -> dict[str, object]:
    """Train one model, then try every order and share of a first cut on it."""
    with tempfile.TemporaryDirectory() as folder:
        accelerator = make_accelerator(spec.train, Path(folder))
        prepared = prepare(spec, Quiet())
        parts = assemble(prepared, 9, Quiet(), accelerator)
        job = Job(
            model=parts.model,
            batches=parts.batches,
            objective=parts.objective,
            groups=parts.groups,
            hooks=parts.hooks,
            evaluate=lambda model: {"none": 0.0},
            keep=lambda model: None,
            folder=Path(folder),
            seed=9,
            identity="cut",
        )
        fit(job, replace(spec.train, epochs=1), accelerator)
    (hook,) = parts.hooks
    assert isinstance(hook, PruneHook)

    def evaluate(name: str, share: float, size: float = math.nan) -> dict[str, float]:
        scored = score(prepared.valid, predict(parts.model, prepared.valid, 64, accelerator))
        majority = max(scored.predicted.values()) / sum(scored.predicted.values())
        print(
            f"{name:<17} {share:5.0%}  {scored.main} {scored.score:.2f}"
            f"  one answer {majority:.0%}  size {size:.2f} ×",
            flush=True,
        )
        return {"score": scored.score, "majority": majority} | ({"size": size} if share else {})

    torch.manual_seed(0)
    results: dict[str, object] = {"dense": evaluate("dense", 0.0)}
    for name, order in ORDERS.items():
        for share in CUTS:
            sizes = []
            for mask, site in zip(hook.pruner.masks, hook.pruner.sites, strict=True):
                assert isinstance(mask, ScoreMask)
                ranked = order(mask.scores.detach(), site.original.detach())
                mask.mask.copy_(top_mask(ranked, math.floor((1 - share) * ranked.numel())))
                known = site.original.detach().abs()
                sizes.append((known[~mask.mask].mean() / known.mean()).item())
            size = statistics.fmean(sizes)
            results[f"{name}, {share:.0%}"] = evaluate(name, share, size)
    return results


if __name__ == "__main__":
    main()
