"""Results of runs that nobody ran."""

import math

from bermo.runs.results import RunResult, SeedResult
from bermo.runs.statistics import summarise


def seed_result(seed: int, score: float, diverged: str | None = None) -> SeedResult:
    return SeedResult(
        seed=seed,
        metric="accuracy",
        score=score,
        values={"accuracy": score},
        last_score=score,
        diverged=diverged,
        best_step=1,
        steps=1,
        loss=math.nan,
        seconds=1.0,
        rows_per_second=1.0,
        peak_memory_mib=1.0,
        mix_layers=[0],
        mix_weights=[1.0],
        num_parameters=1,
        encoder_density=1.0,
        unknown_share=0.0,
        truncated_share=0.0,
        device="cpu",
        versions={},
        padding_share=0.125,
    )


def make_result(scores: dict[int, float], diverged: tuple[int, ...] = ()) -> RunResult:
    seeds = [
        SeedResult(
            seed=seed,
            metric="accuracy",
            score=score + 1,
            values={},
            last_score=score,
            diverged="collapsed" if seed in diverged else None,
            best_step=1,
            steps=1,
            loss=0.0,
            seconds=0.0,
            rows_per_second=0.0,
            peak_memory_mib=0.0,
            mix_layers=[],
            mix_weights=[],
            num_parameters=0,
            encoder_density=1.0,
            unknown_share=0.0,
            truncated_share=0.0,
            device="cpu",
            versions={},
        )
        for seed, score in scores.items()
    ]
    return summarise(seeds)
