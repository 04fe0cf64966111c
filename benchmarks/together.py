"""How long a step takes when several seeds are trained together, on this machine.

    python benchmarks/together.py MODEL SST2 --seeds 10 [--mix none] [--rank score]
        one JSON line; 350 steps of movement pruning

Steps 150 to 350 are timed: before, kernels are built and shapes captured. MODEL is an encoder, SST2 the
task's folder.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from bermo.methods.finetune import finetune
from bermo.progress import Quiet
from bermo.recipes import find
from bermo.spec import replace_in

FIRST, LAST = 150, 350
STEPS_AN_EPOCH = 2105


class Clock(Quiet):
    """A display that notes when two steps were done, and passes messages on."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def step(self, done: int, loss: float | None) -> None:
        if done in (FIRST, LAST):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.times[done] = time.perf_counter()

    def tell(self, sentence: str) -> None:
        print(sentence, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--mix", default="across")
    parser.add_argument("--rank", default="size")
    options = parser.parse_args()
    spec = find("gpu/stability")().arms["size-mix" if options.mix != "none" else "size-plain"]
    spec = replace_in(
        spec,
        model={"backbone": options.model},
        data={"folder": options.data},
        train={
            "epochs": (LAST + 1) / STEPS_AN_EPOCH,
            "together": options.seeds,
            "keep": "none",
            "checkpoint_minutes": 1000.0,
        },
        prune={"rank": options.rank},
    )
    spec = replace(spec, seeds=spec.seeds[: options.seeds])
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        finetune(spec, Path(folder) / "run", clock)
    step = 1000 * (clock.times[LAST] - clock.times[FIRST]) / (LAST - FIRST)
    measured = {"step_ms": round(step, 2), "step_ms_a_seed": round(step / options.seeds, 3)}
    print(json.dumps(vars(options) | measured))


if __name__ == "__main__":
    main()
