"""The seconds of a command outside its training steps: imports, data, model, captures, last evaluation, end.

    python benchmarks/start.py [--json OUT] train --model M --task sst2 --data SST2 --prune movement …

Runs the command in this process, as `bermo` would, and prints the seconds of each part: on the clock, and of
the processor (all threads); with --json it also writes them to a file. A part that is called often is added
up; parts that lie inside another are indented. The parts are wrapped from outside, so a name that is no
longer there is reported and left out.
"""

import functools
import importlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

FINETUNE, ASSEMBLE = "bermo.methods.finetune", "bermo.methods.assemble"
PARTS = {
    f"{FINETUNE}:make_accelerator": "the device",
    f"{FINETUNE}:prepare": "data and tokens",
    "bermo.methods.prepare:load_task": "  reading and checking rows",
    "bermo.methods.prepare:load_tokenizer": "  the tokenizer",
    "bermo.methods.prepare:make_features": "  tokens, or finding them",
    "bermo.methods.prepare:_digest": "  the rows' digest",
    f"{FINETUNE}:assemble": "model, masks, optimiser's groups",
    f"{FINETUNE}:choose_reading": "choosing the pooling by probes",
    "bermo.methods.head:build_model": "  loading the encoder",
    f"{ASSEMBLE}:build_model": "  loading the encoder",
    "bermo.methods.head:predict": "  what the probes read",
    "bermo.methods.head:held_out_loss": "  fitting the probes",
    "bermo.methods.head:fit_linear": "  fitting the probes",
    f"{ASSEMBLE}:start_head_": "  starting the head by a probe",
    f"{ASSEMBLE}:start_pruning_": "  masks",
    "bermo.nn.fast.available:find_fault": "trying a kernel (in another thread on a GPU)",
    "bermo.training.loop:_Loop.__init__": "the loop's state on the device",
    "bermo.training.loop:_Loop.run": "the loop",
    "bermo.training.graphs:GraphedStep._capture": "  capturing steps",
    "bermo.training.graphs:GraphedStep._is_right": "    comparing fused kernels with plain ones",
    "bermo.training.graphs:GraphedStep._capture_run": "    warm-up and capture",
    "bermo.training.loop:_Loop._train_step": "  steps, captures among them",
    "bermo.training.loop:_Loop._prepare": "    numbers and seeds of a step",
    "bermo.training.loop:_Loop._make_batches": "  making batches (in other threads on a GPU)",
    "bermo.training.loop:_Loop._log": "  logging",
    "bermo.training.loop:_Loop._evaluate": "  evaluations",
    f"{FINETUNE}:predict": "    scoring the validation set",
    f"{FINETUNE}:save_model": "    saving the model",
    f"{FINETUNE}:_result": "counting and the result",
    f"{FINETUNE}:_publish": "publishing the model",
}


class Clock:
    """Adds up the seconds, and the processor's seconds, of named parts."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same call, timed."""

        @functools.wraps(call)
        def inner(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter(), time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                spent = self.spent[name]
                spent[0] += time.perf_counter() - started[0]
                spent[1] += time.process_time() - started[1]
                spent[2] += 1

        return inner

    def wrap_(self, address: str, name: str) -> None:
        """Time a function or a method, named as module:dotted.name, in place."""
        module, _, dotted = address.partition(":")
        owner = importlib.import_module(module)
        *path, last = dotted.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, self.timed(name, getattr(owner, last)))


def import_all() -> None:
    """Import what a training needs, as the verb does in the process of the command."""
    sys.argv[0] = "bermo"
    from bermo.interrupts import own_process_
    from bermo.verbs.importing import importing

    own_process_()
    with importing("training"):
        import bermo.methods.finetune
        import bermo.report.terminal  # noqa: F401


def measure(arguments: list[str], out: Path | None) -> int:
    """Run a command, print where its seconds went, and write them to `out`; returns its exit code."""
    clock = Clock()
    clock.timed("imports", import_all)()
    from bermo.cli import main

    for address, name in PARTS.items():
        try:
            clock.wrap_(address, name)
        except AttributeError as error:
            print(f"left out: {error}", file=sys.stderr)
    code: int = clock.timed("the command without its imports", main)(arguments)
    print(f"\n{'part':<46}{'seconds':>9}{'processor':>11}{'calls':>8}")
    for name in dict.fromkeys(("imports", *PARTS.values(), "the command without its imports")):
        if name in clock.spent:
            wall, processor, calls = clock.spent[name]
            print(f"{name:<46}{wall:9.3f}{processor:11.3f}{calls:8}")
    if out is not None:
        parts = {
            name.strip(): {"seconds": round(wall, 3), "processor": round(processor, 3), "calls": calls}
            for name, (wall, processor, calls) in clock.spent.items()
        }
        out.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    has_file = sys.argv[1:2] == ["--json"]
    code = measure(sys.argv[3:], Path(sys.argv[2])) if has_file else measure(sys.argv[1:], None)
    from bermo.cli import leave

    leave(code)
