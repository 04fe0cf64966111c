"""What the mix costs at inference: peak memory and time, with the mix against without, in one run.

    python benchmarks/mix.py                                   BERT-base size, batch 32, length 128
    python benchmarks/mix.py --layers 2 --batch 4 --length 16  the tiny form

Ways: the plain encoder (mix "none"), the mix streaming, and the mix stacked (all hidden states kept, then
mixed), each under a head that reads one token of each text and under one that reads every token. Memory is
measured in a process of its own for each way; time in one process, the ways taking turns. Weights are random.
"""

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from transformers import BertConfig

from bermo.files import write_json
from bermo.models.tasks import BermoForSequenceClassification, BermoForTokenClassification

WAYS = {
    "text, plain": (BermoForSequenceClassification, "none", False),
    "text, mix streaming": (BermoForSequenceClassification, "across", False),
    "text, mix stacked": (BermoForSequenceClassification, "across", True),
    "tokens, plain": (BermoForTokenClassification, "none", False),
    "tokens, mix streaming": (BermoForTokenClassification, "across", False),
    "tokens, mix stacked": (BermoForTokenClassification, "across", True),
}
MIB = 2**20
MEMORY_TARGET, TIME_TARGET = 1.02, 1.03


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9, help="timed passes of each way")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results")
    parser.add_argument("--memory-of", choices=list(WAYS), help=argparse.SUPPRESS)
    return parser.parse_args()


def make_pass(way: str, options: argparse.Namespace) -> Callable[[], None]:
    """Build the model of one way, and return its forward pass over one full batch."""
    kind, mix, is_stacked = WAYS[way]
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=options.layers)
    model = kind.from_backbone(config, mix=mix).to(options.device)
    shape = (options.batch, options.length)
    ids = torch.randint(1000, config.vocab_size, shape, device=options.device)
    mask = torch.ones_like(ids)

    @torch.no_grad()
    def run() -> None:
        if is_stacked:
            layers = model.bermo.backbone(ids, mask, output_hidden_states=True).hidden_states
            mixed = model.mix(layers, mask)
            model.head(mixed[:, 0] if kind is BermoForSequenceClassification else mixed)
        else:
            model(input_ids=ids, attention_mask=mask)

    return run


def measure_memory(options: argparse.Namespace) -> dict[str, float]:
    """Return the peak of this process over one pass, and what it held before it, in MiB."""
    run = make_pass(options.memory_of, options)
    gc.collect()
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return {"before": before / MIB, "peak": torch.cuda.max_memory_allocated() / MIB}
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    built = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak <= built:
        raise SystemExit("The pass stayed under the peak of building the model: use larger shapes.")
    return {"before": pages * os.sysconf("SC_PAGE_SIZE") / MIB, "peak": peak / MIB}


def memory_in_own_process(way: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure one way's memory in a fresh process."""
    command = [sys.executable, __file__, "--memory-of", way, "--device", options.device]
    for name in ("layers", "batch", "length"):
        command += [f"--{name}", str(getattr(options, name))]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    report: dict[str, float] = json.loads(answer.splitlines()[-1])
    return report


def measure_times(options: argparse.Namespace) -> dict[str, list[float]]:
    """Time every way's pass in turn, so that a slow minute of the machine falls on all of them."""
    passes = {way: make_pass(way, options) for way in WAYS}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for index in range(options.rounds + 1):
        for way, run in passes.items():
            started = time.perf_counter()
            run()
            if options.device == "cuda":
                torch.cuda.synchronize()
            # The first round warms up.
            if index > 0:
                seconds[way].append(time.perf_counter() - started)
    return seconds


def compare(way: str, seconds: dict[str, list[float]], memory: dict[str, dict[str, float]]) -> dict:
    """Put one way beside the plain encoder under the same head; time ratios are paired by round."""
    plain = f"{way.partition(',')[0]}, plain"
    ratios = [mine / base for mine, base in zip(seconds[way], seconds[plain], strict=True)]
    return {
        "peak_mib": round(memory[way]["peak"], 1),
        "above_model_mib": round(memory[way]["peak"] - memory[way]["before"], 1),
        "memory_ratio": round(memory[way]["peak"] / memory[plain]["peak"], 4),
        "median_ms": round(1000 * statistics.median(seconds[way]), 2),
        "time_ratio": round(statistics.median(ratios), 4),
    }


def print_table(rows: dict[str, dict[str, float]]) -> None:
    """Print one line per way, and whether the targets are met."""
    titles = ["way", "peak MiB", "above model", "memory ratio", "median ms", "time ratio"]
    print("{:<24}{:>10}{:>13}{:>14}{:>11}{:>12}".format(*titles))
    for way, row in rows.items():
        print("{:<24}{:>10}{:>13}{:>14}{:>11}{:>12}".format(way, *row.values()))
    mine = rows["text, mix streaming"]
    for name, limit in (("memory_ratio", MEMORY_TARGET), ("time_ratio", TIME_TARGET)):
        verdict = "met" if mine[name] <= limit else "MISSED"
        print(f"text, mix streaming: {name} {mine[name]}, target at most {limit}: {verdict}")


def main() -> None:
    """Measure, print, and write results/mix-<device>.json."""
    options = read_arguments()
    if options.memory_of:
        print(json.dumps(measure_memory(options)))
        return
    memory = {way: memory_in_own_process(way, options) for way in WAYS}
    seconds = measure_times(options)
    rows = {way: compare(way, seconds, memory) for way in WAYS}
    print_table(rows)
    is_cuda = options.device == "cuda"
    write_json(
        options.out / f"mix-{options.device}.json",
        {
            "device": torch.cuda.get_device_name() if is_cuda else platform.machine(),
            "threads": torch.get_num_threads(),
            "shape": {name: getattr(options, name) for name in ("layers", "batch", "length")},
            "rounds": options.rounds,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "ways": rows,
        },
    )


if __name__ == "__main__":
    main()
