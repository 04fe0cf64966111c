"""A bench as a table of a model card."""

from bermo.printing import number_of
from bermo.ship.bench.measured import Bench
from bermo.ship.bench.noise import noise_sentence


def bench_rows(result: Bench) -> list[str]:
    """Return a Markdown table of all that was measured, and the line that says where."""
    (one, length), (many, longer) = result.latency_shape, result.throughput_shape
    metric = result.metric or "score"
    rows = [
        f"| {row.name} | {row.megabytes:.1f} | {'–' if row.score is None else f'{row.score:.2f}'}"
        f" | {row.at(*result.latency_shape).p50:.2f} | {result.latency_gain(row):.2f}"
        f" | {result.speedup(row):.2f} ({low:.2f} … {high:.2f}) |"
        for row in result.rows
        for low, high in [result.spread(row, result.throughput_shape)]
    ]
    return [
        f"| | MB | {metric} | ms (batch {one}, length {length}) | times faster |"
        f" times the rows/s (batch {many}, length {longer}; least … most of a round) |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"Measured with {number_of(result.threads, 'thread')} on {result.machine}, in"
        f" {number_of(result.spec.rounds, 'round')}"
        f" by turns, against {result.rows[0].name}.",
        *filter(None, [noise_sentence(result)]),
    ]
