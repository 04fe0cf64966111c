"""Fine-tuned probes as the rows of results/probing-gpu.json, and back; a later sitting adds to earlier ones.

A case is a folder of benchmarks/probe_gpu.sh: ENCODER-right and ENCODER-wrong (text in the vocabulary's case
or not), ENCODER-READING-right (the mix alone, by another reading of the paper's norm; its plain arms are
those of ENCODER-right), ENCODER-words (word content for many epochs).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bermo.report.collect import collect
from bermo.runs.results import RunResult, SeedResult
from bermo.runs.statistics import summarise

ENCODERS = {"gte": "gte-small", "mpnet": "mpnet-base", "minilm": "MiniLM-L6", "box": "the box"}
CASES = {"right": "lower case, as the vocabulary has it", "wrong": "capitals kept: unknown words"}
READINGS = {
    "within": "each layer over its units (within)",
    "tensor": "each layer over the batch (tensor)",
    "raw": "none (raw)",
}
KEPT = (
    "seed",
    "last_score",
    "steps",
    "loss",
    "seconds",
    "together",
    "unknown_share",
    "mix_weights",
    "device",
    "versions",
)
Rows = dict[str, dict[str, list[dict[str, Any]]]]


def cases() -> list[str]:
    """Return the name of every case of right or wrong text, with the paper's norm and with other readings."""
    plain = [f"{encoder}-{case}" for encoder in ENCODERS for case in CASES]
    return plain + [f"{encoder}-{reading}-right" for encoder in ENCODERS for reading in READINGS]


def named(case: str) -> tuple[str, str]:
    """Return what a case's encoder is called, and what is special about the case."""
    encoder, *reading, spelling = case.split("-")
    more = f", norm: {READINGS[reading[0]]}" if reading else ""
    return ENCODERS[encoder], f"{CASES[spelling]}{more}"


def made(out: Path) -> Rows:
    """Return the rows of every case in a folder whose runs have ended."""
    wanted = [*cases(), *(f"{encoder}-words" for encoder in ENCODERS)]
    found = {name: {arm: rows(run) for arm, run in ended(out / name).items()} for name in wanted}
    return {name: arms for name, arms in found.items() if arms}


def ended(folder: Path, arms: str = "*") -> dict[str, RunResult]:
    """Return the runs in a folder that have ended."""
    folders = sorted(path.parent for path in folder.glob(f"{arms}/spec.json"))
    runs = collect(folders).runs if folders else ()
    return {run.name: run.result for run in runs if run.result is not None}


def rows(run: RunResult) -> list[dict[str, Any]]:
    """Return every seed of an arm, without what can be computed from it."""
    return [
        {name: getattr(seed, name) for name in KEPT[:2]}
        | {"diverged": seed.reason}
        | {name: getattr(seed, name) for name in KEPT[2:]}
        for seed in run.seeds
    ]


def together(earlier: Mapping[str, Any], later: Rows) -> Rows:
    """Put a sitting's arms beside those of an earlier one, which a new arm of the same name replaces."""
    names = [*cases(), *(f"{encoder}-words" for encoder in ENCODERS)]
    both = {name: dict(earlier.get(name, {})) | later.get(name, {}) for name in names}
    return {name: dict(sorted(arms.items())) for name, arms in both.items() if arms}


def results(content: Rows, case: str) -> dict[str, RunResult]:
    """Return the runs of a case; another reading of the norm stands beside the usual plain arms."""
    arms = content[case]
    encoder, *reading, spelling = case.split("-")
    if reading:
        usual = content.get(f"{encoder}-{spelling}", {})
        arms = {arm: usual[arm] for arm in usual if arm.endswith("-plain")} | arms
    return {arm: _run(seeds) for arm, seeds in arms.items()}


def _run(seeds: Sequence[Mapping[str, Any]]) -> RunResult:
    return summarise([_seed(values) for values in seeds])


def _seed(values: Mapping[str, Any]) -> SeedResult:
    """Make a result of a row; what a row does not hold is not a number, or empty."""
    weights = list(values["mix_weights"])
    return SeedResult(
        **{name: values[name] for name in (*KEPT, "diverged")},
        metric="accuracy",
        score=values["last_score"],
        values={},
        best_step=values["steps"],
        rows_per_second=math.nan,
        peak_memory_mib=math.nan,
        mix_layers=list(range(len(weights))),
        num_parameters=0,
        encoder_density=1.0,
        truncated_share=math.nan,
    )
