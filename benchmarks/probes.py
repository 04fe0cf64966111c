"""Seconds of training probes on cached vectors: how long ten tasks × 13 layers × 100,000 sentences take.

    python benchmarks/probes.py [--rows 100000] [--layers 13] [--units 384] [--classes 2,6,5,20,1000]
                                [--threads 2] [--out probes.json]

Vectors are drawn like those of a layer: each class has a centre, with noise around it, so
that accuracy rises over epochs and no probe stops for want of a signal. One task for each number of classes:
the layers, the learned mix, and the control task each train once, as `bermo probe` does. SentEval's ten tasks
are six of two classes and one each of 5, 6, 20 and 1,000.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from bermo.files import write_json
from bermo.methods.probing.fitting import fit_layers, fit_learned_mix
from bermo.methods.probing.spec import ProbeSpec
from bermo.progress import Quiet

TASKS = {2: 6, 5: 1, 6: 1, 20: 1, 1000: 1}
"""SentEval's tasks by their number of classes."""


def draw(
    layers: int, rows: int, units: int, classes: int, distance: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Vectors (L, N, D) in half precision and labels, for train, dev and test; upper layers know more."""
    generator = torch.Generator().manual_seed(0)
    centres_LCD = torch.randn(layers, classes, units, generator=generator) * distance / units**0.5
    vectors, labels = [], []
    for count in (rows, rows // 10, rows // 10):
        labels.append(torch.randint(classes, (count,), generator=generator))
        x_LND = torch.empty(layers, count, units, dtype=torch.half)
        for layer in range(layers):
            share = 0.5 + 0.5 * layer / max(layers - 1, 1)
            noise = torch.randn(count, units, generator=generator)
            x_LND[layer] = share * centres_LCD[layer][labels[-1]] + noise
        vectors.append(x_LND)
    return vectors, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--layers", type=int, default=13)
    parser.add_argument("--units", type=int, default=384)
    parser.add_argument("--classes", default=",".join(map(str, TASKS)))
    parser.add_argument("--distance", type=float, default=4.0, help="of a class's centre")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    seconds_of, total = {}, 0.0
    for classes in map(int, options.classes.split(",")):
        shape = (options.layers, options.rows, options.units, classes, options.distance)
        vectors, labels = draw(*shape)
        seconds, spec = {}, ProbeSpec()
        control = [part[torch.randperm(len(part))] for part in labels]
        for name, fit, wanted in (
            ("layers", fit_layers, labels),
            ("mix", fit_learned_mix, labels),
            ("control", fit_layers, control),
        ):
            start, used = time.perf_counter(), time.process_time()
            made = (
                fit_layers("", vectors, wanted, classes, spec, Quiet())
                if fit is fit_layers
                else fit_learned_mix(vectors, wanted, classes, spec, Quiet())[0]
            )
            seconds[name] = {
                "seconds": round(time.perf_counter() - start, 1),
                "cpu_seconds": round(time.process_time() - used, 1),
                "looks": made.evaluations,
                "test": [round(100 * float(value), 1) for value in made.test_L],
            }
        seconds_of[classes] = seconds
        alone = sum(item["seconds"] for item in seconds.values())  # type: ignore[misc]
        total += TASKS.get(classes, 1) * alone
        print(json.dumps({"classes": classes, **seconds}), flush=True)
    settings = {name: value for name, value in vars(options).items() if name != "out"}
    result = {**settings, "found": seconds_of, "seconds_of_ten_tasks": round(total, 1)}
    print(f"ten tasks: {total / 60:.1f} min without the untrained encoder, which costs as much as the layers")
    if options.out is not None:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
