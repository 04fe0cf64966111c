"""What benchmarks/probe_gpu.sh gave, as tables, figures and one page.

    python benchmarks/probe_tables.py OUT --xprobe XPROBE [--to results]

OUT is the folder of the stages, or that of their unpacked probe-gpu.tar.xz; stages that have not ended are
left out. XPROBE tells which labels contradict each other. Writes TO/probing.md (the tables),
TO/probing-gpu.json (every seed's score, every mix, every layer), TO/probing-*.svg and OUT/probing.html.
"""

import argparse
import json
import statistics
import tarfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bermo.data.probing import FILES, has_files, read_probe
from bermo.data.sentences import TASKS
from bermo.figures.data import Findings, Heat, Section, Table
from bermo.figures.draw import write_panels
from bermo.files import write_json, write_text
from bermo.methods.probing.frozen import Probed
from bermo.methods.probing.paired import Comparison, Known, compare, mean_gains, paired
from bermo.methods.probing.results import read_probed
from bermo.recipes.probing import PAPER
from bermo.report.collect import collect
from bermo.report.finetuned_probes import finetune_findings, finetune_table, groups_table
from bermo.report.frozen_probes import frozen_findings, frozen_table
from bermo.report.page import check_out, to_page
from bermo.runs.results import RunResult

ENCODERS = {"gte": "gte-small", "box": "the box"}
CASES = {"right": "lower case, as the vocabulary has it", "wrong": "capitals kept: unknown words"}


def tuned(folder: Path, arms: str = "*") -> dict[str, RunResult]:
    """Return the runs in a folder that have ended."""
    folders = sorted(path.parent for path in folder.glob(f"{arms}/spec.json"))
    runs = collect(folders).runs if folders else ()
    return {run.name: run.result for run in runs if run.result is not None}


def frozen(folder: Path) -> list[Probed]:
    """Return the tasks that were probed in a folder."""
    probed = [read_probed(folder / f"{task}.json", Probed) for task in TASKS]
    return [item for item in probed if item is not None]


def markdown(table: Table) -> str:
    """Write a table with pipes, and its note under it."""

    def text(value: Any) -> str:
        return "–" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)

    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    rows = ["| " + " | ".join(text(value) for value in row) + " |" for row in lines]
    note = textwrap.fill(table.note, 120, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"\n### {table.title}", *rows, "", note, ""])


def overview(compared: Mapping[str, Comparison], results: Mapping[str, Any]) -> Table:
    """The semantic mean of each encoder and case, and how far the case changes it."""
    rows: list[tuple[Any, ...]] = []
    for name, comparison in compared.items():
        encoder, case = name.split("-")
        pair = comparison.groups.get("semantic")
        if pair is None:
            continue
        runs = [results[name][f"{task}-{arm}"] for task in pair.tasks for arm in ("plain", "mix")]
        unknown = statistics.fmean(seed.unknown_share for run in runs for seed in run.seeds)
        rows.append(
            (
                ENCODERS[encoder],
                case,
                round(100 * unknown, 1),
                round(pair.plain, 2),
                round(pair.mix, 2),
                *_paired(pair.difference),
                round(comparison.claim, 2),
            )
        )
    for encoder, encoder_name in ENCODERS.items():
        both = [f"{encoder}-{case}" for case in CASES]
        pairs = [compared[name].groups.get("semantic") for name in both if name in compared]
        if len(pairs) == 2 and pairs[0] and pairs[1]:
            tasks = [task for task in pairs[0].tasks if task in pairs[1].tasks]
            right, wrong = (mean_gains(results[name], tasks) for name in both)
            seeds = sorted(right.keys() & wrong.keys())
            if tasks and seeds:
                more = paired([wrong[seed] - right[seed] for seed in seeds])
                rows.append((encoder_name, "wrong less right", None, None, None, *_paired(more), None))
    columns = (
        "encoder",
        "case",
        "unknown %",
        "plain",
        "mix",
        "gain",
        "from",
        "to",
        "p",
        "seeds",
        "paper's gain",
    )
    note = (
        "Mean test accuracy over the semantic tasks that count; intervals of 95 % over seeds;"
        " unknown %:"
        " mean over the same tasks. wrong less right: how much of a gain lives on unknown words."
    )
    return Table(title="The mix on the semantic tasks", columns=columns, rows=tuple(rows), note=note)


def _paired(pair: Any) -> tuple[Any, ...]:
    low, high = pair.interval or (None, None)
    ends = [None if end is None else round(end, 2) for end in (low, high)]
    return round(pair.mean, 2), *ends, round(pair.p, 3), pair.count


def panels(out: Path, name: str, items: Sequence[Findings], title: str) -> str:
    """Draw a heat map per encoder, stacked, in one range of colours; return the Markdown that shows them."""
    heats = {
        item.facts["model"]: figure
        for item in items
        for section in item.sections
        for figure in section.figures
        if isinstance(figure, Heat) and figure.title == title
    }
    if not heats:
        return ""
    shown = [v for heat in heats.values() for row in heat.values for v in row if v is not None]
    limits = (min(shown), max(shown))
    drawn = [[replace(heat, title=model, limits=limits)] for model, heat in heats.items()]
    write_panels(out / f"probing-{name}.svg", title, drawn)
    return f"\n![{title}](probing-{name}.svg)\n"


def box_table(out: Path) -> Table:
    """The box beside its untrained shape: GLUE tasks over two seeds, masked words of WikiText-103."""
    rows: list[tuple[Any, ...]] = []
    for task in ("sst2", "cola", "rte"):
        for kind in ("trained", "untrained"):
            for run in tuned(out, f"box-{task}-{kind}").values():
                scores = " ".join(f"{seed.score:.2f}" for seed in run.seeds)
                rows.append((task, kind, run.metric, scores, run.num_diverged))
    for part in ("valid", "test"):
        path = out / f"masked-{part}.json"
        if path.exists():
            shares = json.loads(path.read_text(encoding="utf-8"))
            for kind in ("trained", "untrained"):
                rows.append((f"WikiText-103 {part}", kind, "accuracy", f"{shares[kind]['accuracy']:.2f}", 0))
            rows.append(
                (
                    f"WikiText-103 {part}",
                    "the commonest word",
                    "accuracy",
                    f"{shares['commonest_word']:.2f}",
                    0,
                )
            )
    note = "The best evaluation of each seed, on dev; masked words: 15 % of all."
    columns = ("task", "encoder", "metric", "score", "diverged")
    return Table(title="The box on real data", columns=columns, rows=tuple(rows), note=note)


def values(results: Mapping[str, RunResult]) -> dict[str, Any]:
    """Every seed of every arm, without what can be computed from it."""
    names = (
        "seed",
        "last_score",
        "diverged",
        "steps",
        "loss",
        "seconds",
        "together",
        "unknown_share",
        "mix_weights",
        "device",
        "versions",
    )
    return {arm: [{n: getattr(s, n) for n in names} for s in r.seeds] for arm, r in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--xprobe", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=Path("results"))
    options = parser.parse_args()
    out, to = options.out, options.to
    packed = out / "probe-gpu.tar.xz"
    if packed.exists():
        with tarfile.open(packed) as file:
            file.extractall(out, filter="data")
    known = {}
    for task in FILES:
        if has_files(task, options.xprobe):
            data = read_probe(task, options.xprobe)
            known[task] = Known(largest_class=data.largest_class, doubt=data.doubt)
    results = {f"{e}-{c}": tuned(out / f"{e}-{c}") for e in ENCODERS for c in CASES}
    results = {name: runs for name, runs in results.items() if runs}
    compared = {name: compare(runs, known) for name, runs in results.items()}
    probed = {e: items for e in ENCODERS if (items := frozen(out / f"frozen-{e}"))}
    if not known:
        parser.error(f"{options.xprobe} holds no probing task. Give the folder of X-Probe.")
    if not results and not probed:
        parser.error(f"{out} holds nothing that a stage of probe_gpu.sh has ended.")
    pages: dict[str, Findings] = {}
    table, box = overview(compared, results), box_table(out)
    text = (
        "# Probing\n\n"
        "X-Probe's nine tasks by `benchmarks/probe_gpu.sh` and `python benchmarks/probe_tables.py`.\n"
    )
    text += markdown(table) + markdown(box)
    pages["overview"] = Findings(
        title="Does the mix know more?",
        facts={},
        sections=(
            Section(title="The claim", text="", figures=(table,)),
            Section(title="The box", text="", figures=(box,)),
        ),
    )
    for name, comparison in compared.items():
        encoder, case = name.split("-")
        facts = {"model": ENCODERS[encoder], "case": CASES[case], "data": "X-Probe"}
        page = finetune_findings(comparison, results[name], PAPER, facts)
        pages[name] = replace(page, title=f"Fine-tuned: {ENCODERS[encoder]}, case {case}")
        text += f"\n## Fine-tuned: {ENCODERS[encoder]}, {CASES[case]}\n{comparison.verdict}\n"
        text += markdown(finetune_table(comparison, PAPER)) + markdown(groups_table(comparison))
    for encoder, items in probed.items():
        facts = {"model": ENCODERS[encoder], "data": "X-Probe"}
        page = frozen_findings(items, facts)
        pages[f"frozen-{encoder}"] = replace(page, title=f"Frozen layers: {ENCODERS[encoder]}")
        text += f"\n## Frozen layers: {ENCODERS[encoder]}\n{markdown(frozen_table(items))}"
    check_out(out / "probing.html")
    write_text(
        out / "probing.html",
        to_page(list(pages.values()), "Probing X-Probe's tasks, plain and mixed"),
    )
    still = [page for name, page in pages.items() if name.startswith("frozen")]
    text += panels(to, "layers", still, "Test accuracy of each layer")
    text += panels(to, "frozen-mix", still, "Share of each layer in the learned mix")
    right = [pages[name] for name in ("gte-right", "box-right") if name in pages]
    text += panels(to, "tuned-mix", right, "Share of each layer in the trained mix")
    write_text(to / "probing.md", text)
    write_json(
        to / "probing-gpu.json",
        {
            "box": [dict(zip(box.columns, row, strict=True)) for row in box.rows],
            "finetuned": {name: values(runs) for name, runs in results.items()},
            "verdicts": {name: comparison.verdict for name, comparison in compared.items()},
            "frozen": {encoder: [asdict(item) for item in items] for encoder, items in probed.items()},
        },
    )
    print(f"{to}/probing.md, probing-gpu.json, the drawings beside it, and {out}/probing.html")


if __name__ == "__main__":
    main()
