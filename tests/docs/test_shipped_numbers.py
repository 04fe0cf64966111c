"""Numbers within sentences on speed, size and what int8 loses are those of results/."""

from collections.abc import Callable
from statistics import fmean, stdev
from typing import Any

import pytest

from bermo.atlas.methods import METHODS
from bermo.atlas.steps import Export
from scripts.tables.numbers import read
from scripts.tables.ship import candidates
from tests.docs.stated import text_of


def on_x86(name: str) -> float:
    """Return a form's throughput over the dense model's on the x86-64 processor."""
    (row,) = [row for row in read("ship-x86.json")["bench"]["rows"] if row["name"] == name]
    return float(row["speedup"])


def on_arm(bench: str, name: str) -> dict[str, Any]:
    """Return what a bench of students on the ARM processor measured of one of them."""
    (row,) = [row for row in read("ship-cpu.json")["students"][bench]["rows"] if row["name"] == name]
    return dict(row)


def step(name: str, length: int) -> float:
    """Return the milliseconds of a training step on the H200."""
    rows = read("step-cuda.json")["rows"]
    (row,) = [row for row in rows if (row["name"], row["length"]) == (name, length)]
    return float(row["median_ms"])


def step_on_a_gpu() -> str:
    ours, eager = (
        [step(name, length) for length in (32, 128)] for name in ("plain, auto", "Hugging Face, eager")
    )
    compiled = read("compile-cuda.json")["ms"]["compiled"]
    return (
        f"it takes {ours[0]:.1f} ms at length 32 and {ours[1]:.1f} at 128; with torch.compile it takes"
        f" {compiled['32']:.1f} and {compiled['128']:.1f}, eager Hugging Face takes {eager[0]:.0f} and"
        f" {eager[1]:.0f}"
    )


def students_of_the_front() -> str:
    best = candidates()["first 4 layers, 60 % of heads and neurons, taught, int8"]
    share = 100 * (best.test_share or 0)
    return f"four layers have {best.throughput:.0f} × at {share:.1f} % of a dense model's score"


def fast_student() -> str:
    best = candidates()["first 4 layers, 60 % of heads and neurons, taught, int8"]
    share = 100 * (best.test_share or 0)
    return f"What made {best.throughput:.0f} × at {share:.1f} % of gte-small's SST-2 score"


def fast_student_share() -> str:
    best = candidates()["first 4 layers, 60 % of heads and neurons, taught, int8"]
    return f"have {100 * (best.test_share or 0):.1f} % of the score at {best.throughput:.0f} × the throughput"


def students_without_spinning() -> str:
    four, first_four = (on_arm("compress_speedup_8", f"{name} int8") for name in ("four-60", "alone-4"))
    three, first_three = (on_arm("compress_speedup_15", f"{name} int8") for name in ("three-55", "alone-3"))
    gains = [row["latency_gain"] for row in (four, first_four, three, first_three)]
    return (
        "four-60 has {:.1f} × beside the first four layers' {:.1f}, and three-55 {:.1f} × beside the first"
        " three's {:.1f}; throughput hardly differs ({:.1f} and {:.1f} ×)"
    ).format(*gains, four["speedup"], three["speedup"])


def sparse_container() -> str:
    known = read("ship-cpu.json")["sparse"]
    half, bytes_ = known["fp16"], known["int8"]
    return (
        f"encoder {known['encoder_fp32_mb']:.1f} → {half['encoder_mb']:.2f} MB ({half['times']:.1f} ×, fp16"
        f" values) or {bytes_['encoder_mb']:.2f} MB ({bytes_['times']:.1f} ×, int8)"
    )


def int8_of_all_methods() -> str:
    lost = dict[tuple[str, int], float]()
    for row in read("atlas-gpu.json")["rows"]:
        method = METHODS.get(row["method"])
        if method is None or not isinstance(last := method.steps[-1], Export) or last.to != "onnx-int8":
            continue
        shipped = {one["seed"]: one["score"] for one in row.get("shipped", ())}
        trained = zip(row["seeds"], row["scores"], strict=True)
        lost |= {(method.name, seed): score - shipped[seed] for seed, score in trained if seed in shipped}
    worst, best = (pick(lost, key=lambda one: lost[one]) for pick in (max, min))
    methods = {name for name, _ in lost}
    return (
        f"Over the {len(lost)} models above that ship in int8** ({len(methods)} methods, one"
        f" seed or three of each) it loses {fmean(lost.values()):.2f} points in the mean, from"
        f" {lost[worst]:.2f} lost (`{worst[0]}`) to {-lost[best]:.2f} gained (`{best[0]}`), with a standard"
        f" deviation of {stdev(lost.values()):.2f}"
    )


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("docs/explanation/pruning.md", fast_student_share),
        ("README.md", step_on_a_gpu),
        ("README.md", students_of_the_front),
        ("docs/how-to/ship.md", fast_student),
        ("results/README.md", students_without_spinning),
        ("results/README.md", sparse_container),
        ("results/README.md", int8_of_all_methods),
    ],
)
def test_a_sentence_says_what_was_measured(document: str, sentence: Callable[[], str]) -> None:
    assert sentence() in text_of(document)
