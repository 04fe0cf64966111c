"""Draw the figures of the documents that are no output of a benchmark: the front, and what explanations show.

    python scripts/make_figures.py [--out FOLDER]

Every number comes from results/ or, for the schedule, from the code itself. The drawing is bermo's own SVG:
it follows light and dark, has a text for screen readers and needs no library.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bermo.atlas.rows import BASELINE_GROUP  # noqa: E402
from bermo.figures.data import Bars, Figure, Lines, Points  # noqa: E402
from bermo.figures.draw import to_svg_file  # noqa: E402
from bermo.files import write_text  # noqa: E402
from bermo.pruning.schedule import CubicSchedule  # noqa: E402
from scripts.tables import atlas, chain  # noqa: E402
from scripts.tables.claim_figures import figure_of  # noqa: E402
from scripts.tables.numbers import read  # noqa: E402
from scripts.tables.speed import STEPS  # noqa: E402
from scripts.tables.verdicts import claims  # noqa: E402

LEAST_KEPT = 80
POINTS = {
    "dense": ("fp32", "the whole model"),
    "dense int8": ("int8", "the whole model"),
    "two": ("2 whole layers", "whole layers, taught alike"),
    "int4-three-50-texts": ("3 layers, 1/2", "fewer heads and neurons, taught"),
    "three-25": ("3 layers, 1/4", "fewer heads and neurons, taught"),
    "four-67-mpnet": ("4 layers, 2/3", "the same, from mpnet-base"),
}
"""The front's points: a name and a group."""


def front() -> Points:
    """What is kept of the teacher against throughput; the line joins what nothing else beats in both."""
    points = [chain.shipped(name) for name in POINTS]
    speeds = tuple(round(one.times or 0.0, 3) for one in points)
    shares = tuple(round(100 * one.share, 2) for one in points)
    best = tuple(
        index
        for index, (speed, share) in enumerate(zip(speeds, shares, strict=True))
        if not any(s > speed and t > share for s, t in zip(speeds, shares, strict=True))
    )
    return Points(
        title="Score kept against speed, on SST-2",
        x_label="throughput, times that of the teacher in fp32 (batch 32, length 128)",
        y_label="test accuracy, % of the teacher's",
        x=speeds,
        y=shares,
        names=tuple(name for name, _ in POINTS.values()),
        groups=tuple(group for _, group in POINTS.values()),
        front=best,
        is_log=True,
        note="gte-small, and mpnet-base where named; two x86-64 cores, OpenVINO int8, 1,821 test rows, five"
        " seeds of each student. 1/2: half of the heads and neurons of the layers.",
    )


def atlas_front() -> Points:
    """What the atlas's methods keep, as they are shipped, against throughput; each shape of a model once."""
    rows = [row for row in read("atlas-gpu.json")["rows"] if "shipped" in row and atlas.is_timed(row)]
    dense = next(row for row in rows if row["method"] == "dense")
    groups = {row["method"]: row["group"] for row in rows}
    kept = {row["method"]: atlas.shipped_share(row, dense) for row in rows}
    timed = {name: known for name in kept if (known := atlas.speed_of(name)) is not None}
    gains = {name: known["throughput"] for name, known in timed.items()}
    names = [name for name in gains if kept[name] >= LEAST_KEPT]
    counts = sorted({len(row["shipped"]) for row in rows if row["group"] != BASELINE_GROUP})
    seeds = "one seed" if counts == [1] else f"{' to '.join(map(str, counts[:: len(counts) - 1 or 1]))} seeds"
    texts = ", ".join(name for name in names if "on" in timed[name])
    best = [n for n in names if not any(gains[m] > gains[n] and kept[m] > kept[n] for m in names)]
    return Points(
        title="Every method: score against speed, gte-small on SST-2",
        x_label="throughput, times that of dense fp32 (batch 32, length 128)",
        y_label="score, % of the dense model's",
        x=tuple(gains[name] for name in names),
        y=tuple(round(kept[name], 2) for name in names),
        names=tuple(names),
        groups=tuple(groups[name] for name in names),
        front=tuple(names.index(name) for name in sorted(best, key=lambda name: -gains[name])),
        is_log=True,
        note=f"Two x86-64 cores; the form that is shipped, 872 rows, {seeds}."
        f" Methods that keep less than {LEAST_KEPT} % are left out."
        + (f" {texts}: timed on texts, tokens made anew." if texts else ""),
    )


def schedule() -> Lines:
    """The cubic schedule of a training of 1,000 steps to 10 %."""
    cubic = CubicSchedule(total_steps=1000, warmup_steps=100)
    steps = tuple(range(0, 1001, 10))
    return Lines(
        title="The share of weights that is kept over a training",
        x_label="step of 1,000; pruning starts after 100 and ends 100 before the end",
        y_label="density",
        x=steps,
        series={"density": tuple(round(cubic.value(step, 1.0, 0.1), 4) for step in steps)},
    )


def first_cut() -> Lines:
    """What zeroing a share of every matrix does, by what is zeroed."""
    known = read("first-cut.json")
    shares = (1, 2, 5, 10)
    kinds = ("smallest weights", "random", "lowest scores", "largest weights", "highest scores")
    return Lines(
        title="Movement's first choice is far worse than chance",
        x_label="zeroed in each matrix, %",
        y_label="accuracy on SST-2 dev, no training after the cut",
        x=(0, *shares),
        series={
            kind: tuple(
                round(score, 2)
                for score in (known["dense"]["score"], *(known[f"{kind}, {s}%"]["score"] for s in shares))
            )
            for kind in kinds
        },
        note="gte-small, plain, after 260 dense steps; one seed.",
    )


def alive() -> Lines:
    """Score when a model is cut after a layer."""
    known, deep = read("alive.json")["cut_after_layer"], read("deep-gpu.json")["cut_after_layer"]
    return Lines(
        title="By score the survivors are shallow; by size the deep layers stay in use",
        x_label="cut after layer",
        y_label="accuracy on SST-2 dev",
        x=tuple(range(1, 13)),
        series={
            "dense, plain": tuple(known["dense"]),
            "10 % by size, plain": tuple(known["size-plain"]),
            "10 % by size, mix": tuple(known["size-mix"]),
            "10 % by score, mix": tuple(known["zeros-mix"]),
            "10 % by score, mix, 25 epochs": tuple(deep["25 epochs"]),
        },
        note="gte-small, no training after the cut.",
    )


def steps() -> Bars:
    """Milliseconds of a training step."""
    rows = {(row["name"], row["length"]): row["median_ms"] for row in read("step-cuda.json")["rows"]}
    names = {
        "Hugging Face, eager": "Hugging Face, eager",
        "sorting, eager": "the reference pruning algorithm (sorting), eager",
        "plain": "bermo, plain",
        "mix": "bermo, mix",
        "mix + movement": "bermo, mix + movement",
    }
    return Bars(
        title="Milliseconds of a training step",
        x_label="",
        y_label="ms, BERT-base shape, batch 32, bf16, one H200",
        names=tuple(names),
        series={
            f"length {length}": tuple(round(rows[STEPS[name], length], 2) for name in names.values())
            for length in (32, 128)
        },
        note="sorting: movement pruning that sorts its scores in every step. Eager: without torch.compile.",
    )


def step_kernels() -> Bars:
    """Where the milliseconds of a step go: kernels by kind; and, in words, how long the GPU waits."""
    known = {(row["name"], row["length"]): row for row in read("step-kernels-cuda.json")["rows"]}
    ways = {"Hugging Face, eager": "Hugging Face, eager", "bermo, plain": "plain, auto"}
    ways |= {"bermo, mix + movement": "mix + movement, auto"}
    short = {
        "matrix products": "products",
        "attention": "attention",
        "residual, dropout, LayerNorm": "residual, norm",
        "gelu, joined inputs": "gelu",
        "AdamW, norm of the gradients": "AdamW",
        "masks": "masks",
    }
    kinds = {
        name: {kind: one["us"] for kind, one in known[way, 128]["kinds"].items()}
        for name, way in ways.items()
    }
    waits = {
        name: max(0.0, known[ways[name], 128]["step_ms"] - sum(found.values()) / 1000)
        for name, found in kinds.items()
    }
    return Bars(
        title="Where a training step's time goes",
        x_label="",
        y_label="ms, BERT-base shape, batch 32, length 128, bf16, one H200",
        names=(*short.values(), "the rest"),
        series={
            name: (
                *(round(found.get(kind, 0.0) / 1000, 2) for kind in short),
                round(sum(us for kind, us in found.items() if kind not in short) / 1000, 2),
            )
            for name, found in kinds.items()
        },
        note="Beside these the GPU waits until Python starts the next kernel: "
        + ", ".join(f"{name} {waited:.1f} ms" for name, waited in waits.items())
        + ".",
    )


FIGURES: dict[str, Callable[[], Figure]] = {
    "results/front.svg": front,
    "results/atlas-front.svg": atlas_front,
    "docs/figures/schedule.svg": schedule,
    "docs/figures/first-cut.svg": first_cut,
    "docs/figures/alive.svg": alive,
    "docs/figures/step.svg": steps,
    "docs/figures/step-kernels.svg": step_kernels,
} | {f"results/{claim.figure}": partial(figure_of, claim) for claim in claims() if claim.unit}


def drawn(name: str) -> str:
    """Return the SVG text of a figure."""
    return to_svg_file(FIGURES[name]())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT)
    options = parser.parse_args()
    for name in FIGURES:
        path = options.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, drawn(name))
        print(path)


if __name__ == "__main__":
    main()
