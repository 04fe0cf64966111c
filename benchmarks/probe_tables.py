"""What benchmarks/probe_gpu.sh gave, as tables, figures and one page.

    python benchmarks/probe_tables.py OUT --xprobe XPROBE [--beside results/probing-gpu.json] [--to results]
    python benchmarks/probe_tables.py OUT --beside results/probing-gpu.json      without new runs: pages again

OUT is the folder of the stages, or that of their unpacked probe-gpu.tar.xz; stages that have not ended are
left out. XPROBE tells which labels contradict each other; without it the frozen layers' rows do. --beside
keeps what an earlier sitting measured and this one did not. Writes TO/probing.md (the tables),
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

from probe_rows import CASES, ENCODERS, Rows, ended, made, named, together
from probe_rows import results as arms_of

from bermo.data.probing import FILES, has_files, read_probe
from bermo.data.sentences import TASKS
from bermo.figures.data import Findings, Heat, Section, Table
from bermo.figures.draw import write_panels
from bermo.files import write_json, write_text
from bermo.methods.probing.frozen import Probed
from bermo.methods.probing.paired import Comparison, Known, compare, mean_gains, paired
from bermo.methods.probing.results import read_probed
from bermo.recipes.probing import PAPER
from bermo.report.finetuned_probes import finetune_findings, finetune_table, groups_table
from bermo.report.frozen_probes import frozen_findings, frozen_table
from bermo.report.page import check_out, to_page

WEAK_CONTROL = """
Memorising does not solve the control task of these rows, and their mixes were stopped before the shares had
settled: mix, centre, control and selectivity say little.
"""


def frozen(folder: Path) -> list[Probed]:
    """Return the tasks that were probed in a folder."""
    probed = [read_probed(folder / f"{task}.json", Probed) for task in TASKS]
    return [item for item in probed if item is not None]


def _frozen(earlier: Mapping[str, Any], encoder: str) -> list[Probed]:
    """Return what an earlier sitting probed."""
    items = earlier.get("frozen", {}).get(encoder, [])
    return [
        Probed(**{name: tuple(value) if isinstance(value, list) else value for name, value in item.items()})
        for item in items
    ]


def _known(xprobe: Path | None, probed: Mapping[str, Sequence[Probed]]) -> dict[str, Known]:
    """Return what the rows of each task tell before any training."""
    if xprobe is None:
        items = [item for of_encoder in probed.values() for item in of_encoder]
        return {one.task: Known(largest_class=one.largest_class, doubt=one.doubt) for one in items}
    read = {task: read_probe(task, xprobe) for task in FILES if has_files(task, xprobe)}
    return {task: Known(largest_class=data.largest_class, doubt=data.doubt) for task, data in read.items()}


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
        encoder, *reading, case = name.split("-")
        pair = comparison.groups.get("semantic")
        if pair is None:
            continue
        runs = [results[name][f"{task}-{arm}"] for task in pair.tasks for arm in ("plain", "mix")]
        unknown = statistics.fmean(seed.unknown_share for run in runs for seed in run.seeds)
        rows.append(
            (
                ENCODERS[encoder],
                ", norm ".join([case, *reading]),
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
            for run in ended(out, f"box-{task}-{kind}").values():
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


def doubt_of(items: Sequence[Probed]) -> str:
    """Say what is not to be trusted in rows whose control has no memoriser beside it."""
    return WEAK_CONTROL if any(item.control and item.memoriser is None for item in items) else ""


def words_table(content: Rows) -> Table:
    """Word content for many epochs: how many seeds learn it, plain and mixed."""
    rows: list[tuple[Any, ...]] = []
    for case in (name for name in content if name.endswith("-words")):
        for arm, seeds in sorted(content[case].items(), reverse=True):
            learned = [seed["last_score"] for seed in seeds if seed["diverged"] is None]
            spread = paired(learned) if learned else None
            low, high = (spread.interval if spread else None) or (None, None)
            rows.append(
                (
                    named(case.replace("words", "right"))[0],
                    arm.removeprefix("word-content-"),
                    seeds[0]["steps"],
                    f"{len(learned)} of {len(seeds)}",
                    spread and round(spread.mean, 2),
                    *(None if end is None else round(end, 2) for end in (low, high)),
                )
            )
    columns = ("encoder", "arm", "steps", "learn", "mean", "from", "to")
    note = "Test accuracy over the seeds that learn; intervals of 95 % over them. The paper has 20 epochs."
    return Table(title="Word content for many epochs", columns=columns, rows=tuple(rows), note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--xprobe", type=Path)
    parser.add_argument("--beside", type=Path, help="results of an earlier sitting, kept where none is new")
    parser.add_argument("--to", type=Path, default=Path("results"))
    options = parser.parse_args()
    out, to = options.out, options.to
    packed = out / "probe-gpu.tar.xz"
    if packed.exists():
        with tarfile.open(packed) as file:
            file.extractall(out, filter="data")
    earlier = json.loads(options.beside.read_text(encoding="utf-8")) if options.beside else {}
    content = together(earlier.get("finetuned", {}), made(out))
    probed = {e: frozen(out / f"frozen-{e}") or _frozen(earlier, e) for e in ENCODERS}
    probed = {encoder: items for encoder, items in probed.items() if items}
    known = _known(options.xprobe, probed)
    compared, results = {}, {}
    for name in (name for name in content if not name.endswith("-words")):
        results[name] = arms_of(content, name)
        compared[name] = compare(results[name], known)
    if not known:
        parser.error("No probing task is known. Give the folder of X-Probe with --xprobe.")
    if not content and not probed:
        parser.error(f"{out} holds nothing that a stage of probe_gpu.sh has ended.")
    pages: dict[str, Findings] = {}
    table, box, words = overview(compared, results), box_table(out), words_table(content)
    if not box.rows and "box" in earlier:
        box = replace(box, rows=tuple(tuple(row[column] for column in box.columns) for row in earlier["box"]))
    text = (
        "# Probing\n\n"
        "X-Probe's nine tasks by `benchmarks/probe_gpu.sh` and `python benchmarks/probe_tables.py`.\n"
    )
    text += markdown(table) + markdown(box) + (markdown(words) if words.rows else "")
    pages["overview"] = Findings(
        title="Does the mix know more?",
        facts={},
        sections=(
            Section(title="The claim", text="", figures=(table,)),
            Section(title="The box", text="", figures=(box,)),
        ),
    )
    for name, comparison in compared.items():
        encoder, case = named(name)
        facts = {"model": encoder, "case": case, "data": "X-Probe"}
        page = finetune_findings(comparison, results[name], PAPER, facts)
        pages[name] = replace(page, title=f"Fine-tuned: {encoder}, {case}")
        verdict = textwrap.fill(comparison.verdict, 120, break_long_words=False, break_on_hyphens=False)
        text += f"\n## Fine-tuned: {encoder}, {case}\n{verdict}\n"
        text += markdown(finetune_table(comparison, PAPER)) + markdown(groups_table(comparison))
    for encoder, items in probed.items():
        facts = {"model": ENCODERS[encoder], "data": "X-Probe"}
        page = frozen_findings(items, facts)
        pages[f"frozen-{encoder}"] = replace(page, title=f"Frozen layers: {ENCODERS[encoder]}")
        text += f"\n## Frozen layers: {ENCODERS[encoder]}\n{doubt_of(items)}{markdown(frozen_table(items))}"
    check_out(out / "probing.html")
    write_text(
        out / "probing.html",
        to_page(list(pages.values()), "Probing X-Probe's tasks, plain and mixed"),
    )
    still = [page for name, page in pages.items() if name.startswith("frozen")]
    text += panels(to, "layers", still, "Test accuracy of each layer")
    text += panels(to, "frozen-mix", still, "Share of each layer in the learned mix")
    right = [pages[f"{encoder}-right"] for encoder in ENCODERS if f"{encoder}-right" in pages]
    text += panels(to, "tuned-mix", right, "Share of each layer in the trained mix")
    write_text(to / "probing.md", text)
    write_json(
        to / "probing-gpu.json",
        {
            "box": [dict(zip(box.columns, row, strict=True)) for row in box.rows],
            "finetuned": content,
            "verdicts": {name: comparison.verdict for name, comparison in compared.items()},
            "frozen": {encoder: [asdict(item) for item in items] for encoder, items in probed.items()},
        },
    )
    print(f"{to}/probing.md, probing-gpu.json, the drawings beside it, and {out}/probing.html")


if __name__ == "__main__":
    main()
