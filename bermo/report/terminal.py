"""What a person sees in the terminal: progress with an estimate, tables of results, bars of layer weights."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from bermo.printing import visible
from bermo.report.console import PlainConsole
from bermo.runs.results import RunResult, SeedResult
from bermo.runs.statistics import last_scores

BAR_WIDTH = 40
LINE_SECONDS = 30.0


class TerminalDisplay:
    """A progress bar on a terminal; elsewhere a line now and then, with the same estimate."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or PlainConsole(stderr=True)
        self.progress: Progress | None = None
        self.task = TaskID(0)
        self.what, self.total, self.first = "", 0, 0
        self.started = self.last_line = 0.0
        self.loss = math.nan

    def start(self, what: str, total: int, done: int) -> None:
        self.what, self.total, self.first, self.loss = what, total, done, math.nan
        self.started = self.last_line = time.monotonic()
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(BAR_WIDTH),
                MofNCompleteColumn(),
                TextColumn("{task.fields[loss]}"),
                TimeElapsedColumn(),
                TextColumn("·"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=self.console,
            )
            self.task = self.progress.add_task(visible(what), total=total, completed=done, loss="")
            self.progress.start()

    def step(self, done: int, loss: float | None) -> None:
        self.loss = self.loss if loss is None else loss
        if self.progress is not None:
            self.progress.update(self.task, completed=done, loss=self._loss())
            return
        now = time.monotonic()
        if now - self.last_line >= LINE_SECONDS:
            self.last_line = now
            left = (now - self.started) / max(1, done - self.first) * (self.total - done)
            self.tell(f"{self.what} {done} of {self.total} {self._loss()} about {duration(left)} left")

    def _loss(self) -> str:
        return "" if math.isnan(self.loss) else f"loss {self.loss:.4f}"

    def tell(self, sentence: str) -> None:
        self.console.print(sentence, markup=False)

    def close(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


def duration(seconds: float) -> str:
    """Write seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def results_table(results: Mapping[str, RunResult]) -> Table:
    """One row an arm: score with its spread over seeds, how many diverged, what was kept, and the cost.

    It fits 80 columns, so peak memory stays in result.json, and the speed gives way to the density of pruned
    arms.
    """
    is_pruned = any(seed.encoder_density < 1 for result in results.values() for seed in result.seeds)
    metric = next(iter(results.values())).metric
    last = "kept" if is_pruned else "rows/s"
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for title in (metric, "±", "95 % interval", "seeds", "diverged", "seconds", last):
        table.add_column(title, justify="right", no_wrap=True)
    for name, result in results.items():
        seeds = result.seeds
        spread = "–" if result.interval is None else "{:.2f} … {:.2f}".format(*result.interval)
        kept = sum(seed.kept for seed in seeds) / len(seeds)
        speed = sum(seed.rows_per_second for seed in seeds) / len(seeds)
        table.add_row(
            name,
            _number(result.mean),
            _number(result.deviation),
            spread,
            str(len(seeds)),
            str(result.num_diverged),
            f"{sum(seed.own_seconds for seed in seeds):.0f}",
            f"{kept:.1%}" if is_pruned else f"{speed:.0f}",
        )
    return table


def about_choice(results: Mapping[str, RunResult]) -> str:
    """Say that scores are of evaluations chosen on the rows that score them, and what the last ones give."""
    parts = []
    for name, result in results.items():
        last = last_scores(result)
        if last.interval is not None and last.mean != result.mean:
            parts.append("{} {:.2f} ({:.2f} … {:.2f})".format(name, last.mean, *last.interval))
    if not parts:
        return ""
    return (
        "These scores are of each seed's best evaluation, which the validation rows chose, so they flatter."
        f" Last evaluations: {'; '.join(parts)}."
    )


def about_frozen(result: RunResult) -> str:
    """Say which seeds no training made better than the frozen encoder with its fitted head."""
    kept = [seed for seed in result.seeds if seed.best_step == 0 and not math.isnan(seed.frozen_score)]
    if not kept:
        return ""
    return (
        f"{_named(kept)}: no evaluation was above the frozen encoder's, so the model that is kept is that"
        " encoder with its fitted head."
    )


def about_chance(result: RunResult) -> str:
    """Say which seeds learned their training rows, and nothing that holds on the validation rows."""
    lost = [seed for seed in result.seeds if not seed.failed and seed.values.get("matthews", 1.0) <= 0]
    if not lost:
        return ""
    return (
        f"{_named(lost)}: on the validation rows the answers are no better than guessing (Matthews"
        f" {', '.join(_number(seed.values['matthews']) for seed in lost)}), although the training loss fell."
        " Look at the labels of both files; more rows may help."
    )


def _named(seeds: Sequence[SeedResult]) -> str:
    return f"Seed{'s' * (len(seeds) > 1)} {', '.join(str(seed.seed) for seed in seeds)}"


def seeds_table(result: RunResult) -> Table:
    """One row a seed: its measures, its score before training where that was taken, and the verdict's word.

    It fits 80 columns, so a pruned run whose frozen encoder was scored shows no more than four measures.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    is_pruned = any(item.encoder_density < 1 for item in result.seeds)
    is_probed = any(not math.isnan(item.frozen_score) for item in result.seeds)
    names = list(result.seeds[0].values)[: 4 if is_pruned and is_probed else 5]
    extra = [*(["frozen"] if is_probed else []), *(["kept"] if is_pruned else [])]
    for title in ("seed", *names, *extra, "best step", "verdict"):
        table.add_column(title, justify="left" if title == "verdict" else "right", no_wrap=True)
    for item in result.seeds:
        numbers = [_number(item.values[name]) for name in names]
        numbers += [_number(item.frozen_score)] if is_probed else []
        numbers += [f"{item.kept:.1%}"] if is_pruned else []
        table.add_row(
            str(item.seed), *numbers, f"{item.best_step} of {item.steps}", item.verdict.partition(":")[0]
        )
    return table


def weight_bars(layers: list[int], weights: list[float]) -> str:
    """A bar for each layer's share of the mix."""
    names = ["embeddings" if layer == 0 else f"layer {layer}" for layer in layers]
    return bars(names, weights, [f"{weight:6.1%}" for weight in weights])


def bars(names: Sequence[str], values: Sequence[float], shown: Sequence[str]) -> str:
    """A line for each value: its name, how it is written, and a bar, the longest for the largest."""
    top, wide, digits = max(values), max(map(len, names)), max(map(len, shown))
    return "\n".join(
        f"{name:>{wide}}  {text:>{digits}}  {'█' * max(1, round(BAR_WIDTH * value / top))}"
        for name, value, text in zip(names, values, shown, strict=True)
    )


def print_result(result: RunResult, out: str) -> None:
    """Print a finished run: its seeds, the mean over them, the mix of the best one, and where it lies."""
    console = PlainConsole(file=sys.stdout)
    console.print(seeds_table(result))
    if any(not math.isnan(seed.frozen_score) for seed in result.seeds):
        console.print("Scores in %. frozen: before the first step, with a head fitted to the encoder.")
    for said in filter(None, (about_frozen(result), about_chance(result))):
        console.print(said, markup=False)
    if len(result.seeds) > 1:
        console.print()
        console.print(results_table({"all seeds": result}))
        if said := about_choice({"all seeds": result}):
            console.print(said, markup=False)
    best = max(result.seeds, key=lambda item: (item.diverged is None, item.score))
    if best.has_shares:
        console.print("\nShare of each layer in the mix:")
        console.print(weight_bars(best.mix_layers, best.mix_weights))
    if not math.isnan(best.padding_share):
        together = f" of {best.together} seeds together" if best.together > 1 else ""
        console.print(
            f"\n{best.rows_per_second:.0f} rows a second{together};"
            f" {best.padding_share:.1%} of the tokens were padding."
        )
    if Path(out, "model").is_dir():
        console.print(f"\nThe model is in {out}/model", markup=False, soft_wrap=True)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
