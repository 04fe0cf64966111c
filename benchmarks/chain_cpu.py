"""What chain_gpu.sh trained, made ready for this machine's CPU: words cut, int8, scored, and timed together.

    python benchmarks/chain_cpu.py STUDENTS --facts PACKED/chain.json --data SST2 --mpnet MPNET --out OUT \\
        [--texts wikipedia/part0.txt.xz] [--words int4] [--json results/chain.json] [--only REGEX]
        [--no-bench]

STUDENTS has a model's folder for each NAME-seed-N (ship_pack.py --packed), dense-seed-1 among them. For each
seed: words are cut until the int8 files are 1/16 of the dense model's (the words of the training texts stay
first, the frequent ones before the rare ones, then the frequent words of --texts; mpnet's students need no
cut; with --words int4 nearly twice as many stay), OpenVINO int8 is written with ranges from training texts,
and the torch model and the int8 one answer dev.tsv and test-labeled.tsv. The first seeds are then timed in
turns: the dense model in torch fp32, which is the baseline, and in OpenVINO int8 (what int8 alone gives);
each student in torch fp32 (what its structure alone gives) and in OpenVINO int8; and mpnet in torch fp32. Its
weights did not travel, so the encoder of the folder MPNET gets a fresh head, which is as fast. What is done
is not done again.

OUT/chain.json has the rows; with --json they are put into that file too, beside those of other students, from
which scripts/tables/chain.py makes the table. Each run times its own dense model. Close everything else while
it times.
"""

import argparse
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bermo.encoders.backbone import load_tokenizer
from bermo.encoders.sites import encoder_of
from bermo.files import write_json, write_text
from bermo.machine import processor
from bermo.methods.finetune import finetune
from bermo.report.terminal import TerminalDisplay
from bermo.runs.trained import open_trained
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.run import bench
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.export.word_table import GROUP
from bermo.ship.runtimes.evaluate import evaluate_file
from bermo.ship.runtimes.forms import Words
from bermo.ship.runtimes.spec import EvaluateSpec
from bermo.ship.shrink.run import make_small
from bermo.ship.shrink.vocabulary import plan_cut
from bermo.spec import DataSpec, MixSpec, ModelSpec, RunSpec, TrainSpec

TEACHER = "dense"
LARGE = "mpnet"
PARTS = {"dev": "dev.tsv", "test": "test-labeled.tsv"}
SEED = re.compile(r"(?P<name>.+)-seed-(?P<seed>\d+)")
SMALLER = 16
"""How many times smaller than the dense model a student's files have to be."""
REST_BYTES = 700_000
"""What an int8 model has beside its layers and its table of words: positions, scales, head, the graph."""
CALIBRATION_TEXTS = 300
MORE_LINES = 60_000
MAX_LOSS = 100.0
"""An export is kept whatever it loses: what it loses is the result."""
INT8, TORCH = "int8", "torch"


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Words in the order in which they are kept, texts that fix int8's ranges, and rows that judge an export:
    without any its logits would be compared, which int8 moves far in a student.
    """

    words: tuple[str, ...]
    calibrate: Path
    judges: Path


def models(students: Path, only: str) -> Iterator[tuple[str, int, Path]]:
    """Yield name, seed and folder of every model, the teacher first."""
    found = [(match, path) for path in students.iterdir() if (match := SEED.fullmatch(path.name))]
    named = [(match["name"], int(match["seed"]), path) for match, path in found]
    for name, seed, path in sorted(named, key=lambda one: (one[0] != TEACHER, *one[:2])):
        if name == TEACHER or re.search(only, name):
            yield name, seed, path


def write_texts(data: Path, out: Path, more: Path | None = None) -> Texts:
    """Rank the words that may stay; write long texts that fix int8's ranges and rows that judge it."""
    lines = (data / "train.tsv").read_text(encoding="utf-8").splitlines()
    texts = [line.rsplit("\t", 1)[0] for line in lines[1:]]
    longest = sorted(texts, key=len)[-20 * CALIBRATION_TEXTS :: 20]
    write_text(out / "calibrate.txt", "\n".join(longest) + "\n")
    write_text(out / "judges.tsv", "\n".join(lines[:65]) + "\n")
    words = [word for word, _ in Counter(word for text in texts for word in text.split()).most_common()]
    if more is not None:
        with lzma.open(more, "rt", encoding="utf-8") as file:
            counts = Counter(word for line in islice(file, MORE_LINES) for word in line.lower().split())
        words += [word for word, _ in counts.most_common() if word.isalpha()]
    return Texts(
        words=tuple(dict.fromkeys(words)), calibrate=out / "calibrate.txt", judges=out / "judges.tsv"
    )


def write_words(
    words: Sequence[str], source: Path, most_bytes: float, path: Path, form: Words = "int8"
) -> Path:
    """Write as many of the words as a student of this size may keep, in their order."""
    model = open_trained(source).load_bermo_model()
    config = encoder_of(model).config
    layers = sum(value.numel() for name, value in model.named_parameters() if ".layer." in name)
    rows = (most_bytes - layers - REST_BYTES) / row_bytes(config.hidden_size, form)
    tokenizer = load_tokenizer(source)
    pieces = tokenizer(list(words), add_special_tokens=False)["input_ids"]
    kept, count = set(plan_cut(tokenizer, config, ["a"]).ids), 0
    while count < len(words) and len(kept | set(pieces[count])) <= rows:
        kept |= set(pieces[count])
        count += 1
    write_text(path, "\n".join(words[:count]) + "\n")
    return path


def row_bytes(width: int, form: Words) -> float:
    """What a word takes: a byte a unit and a scale; or half of one, and of each group a scale and a zero."""
    return width + 4 if form == "int8" else width / 2 + 2.5 * width / GROUP


def made(name: str, source: Path, out: Path, texts: Texts, most_bytes: float, form: Words) -> dict[str, Path]:
    """Return the folders of a model's torch form and of its int8 form; what is not there is written."""
    small, graph = out / "torch" / source.name, out / "int8" / source.name
    if name == TEACHER or name.endswith(LARGE):
        small = source
    elif not small.exists():
        words = write_words(texts.words, source, most_bytes, out / f"words-{name}.txt", form)
        make_small(source, small, TerminalDisplay(), vocabulary=(words,))
    if not graph.exists():
        spec = ExportSpec(to="openvino-int8", data=texts.judges, max_loss=MAX_LOSS, calibrate=texts.calibrate)
        export(small, graph, replace(spec, words="int8" if name == TEACHER else form), TerminalDisplay())
    return {TORCH: small, INT8: graph}


def scored(folder: Path, data: Path) -> dict[str, float]:
    """Accuracy on both sets."""
    found = {part: evaluate_file(folder, data / file, EvaluateSpec()).result for part, file in PARTS.items()}
    return {part: round(result.values["accuracy"], 2) for part, result in found.items()}


def stand_in(encoder: str, data: Path, out: Path) -> Path:
    """Return a run of the large encoder with a head of few rows, which is as fast as the trained one."""
    spec = RunSpec(
        model=ModelSpec(
            backbone=encoder, mix=MixSpec(kind="none"), pooling="mean", head="random", freeze_embeddings=True
        ),
        data=DataSpec(task="sst2", folder=str(data), limit=8),
        train=TrainSpec(epochs=1.0, batch_size=8, device="cpu", contrast=0.0),
        seeds=(1,),
    )
    if not (out / "result.json").exists():
        finetune(spec, out, TerminalDisplay())
    return out


def timed(folders: dict[str, Path], threads: int, rounds: int) -> list[dict[str, Any]]:
    """Time all folders in turns, against the first."""
    shapes = BenchSpec(batches=(1, 32), lengths=(32, 128), rounds=rounds)
    entries = line_up([str(folder) for folder in folders.values()], shapes, threads=threads)
    shown = [replace(entry, name=name) for entry, name in zip(entries, folders, strict=True)]
    result = bench(shown, shapes, TerminalDisplay())
    return [
        {
            "name": row.name,
            "times": round(result.speedup(row), 2),
            "spread": [round(gain, 2) for gain in result.spread(row, result.throughput_shape)],
            "latency": round(result.latency_gain(row), 2),
            "megabytes": round(row.megabytes, 2),
        }
        for row in result.rows
    ]


def large_scores(facts: dict[str, Any]) -> dict[str, float]:
    """What the large teacher scored where it was trained."""
    known = {part: facts["evaluated"].get(f"{LARGE}-{Path(file).stem}") for part, file in PARTS.items()}
    return {part: round(one["values"]["accuracy"], 2) for part, one in known.items() if one}


def measure_(known: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Path]:
    """Make and score every model that is not scored yet, into `known` and its file; return what is timed."""
    out, folders = arguments.out, dict[str, Path]()
    rows = {(row["student"], row["seed"], row["form"]): row for row in known.get("scored", [])}
    texts = write_texts(arguments.data, out, arguments.texts)
    most_bytes = open_trained(arguments.students / f"{TEACHER}-seed-1").num_bytes / SMALLER
    for name, seed, source in models(arguments.students, arguments.only):
        if arguments.bench_only and seed > 1:
            continue
        shown = name if name == TEACHER or arguments.words == "int8" else f"{arguments.words}-{name}"
        for form, folder in made(name, source, out, texts, most_bytes, arguments.words).items():
            if seed == 1:
                folders[f"{shown}, {form}"] = folder
            if not arguments.bench_only and (shown, seed, form) not in rows:
                row = {"student": shown, "seed": seed, "form": form} | scored(folder, arguments.data)
                rows[shown, seed, form] = row
                print(json.dumps(row), flush=True)
                known["scored"] = list(rows.values())
                write_json(out / "chain.json", known)
    return folders


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Put the rows of other students beside those that a file has; the same ones are replaced."""

    def rows(name: str, key: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
        return list({key(row): row for known in (old, new) for row in known.get(name, [])}.values())

    return (old | new) | {
        "trained": old.get("trained", {}) | new["trained"],
        LARGE: new[LARGE] or old.get(LARGE, {}),
        "scored": rows("scored", lambda row: (row["student"], row["seed"], row["form"])),
        "bench": rows("bench", lambda row: row["name"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("students", type=Path)
    for name in ("facts", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--mpnet", help="the folder of all-mpnet-base-v2")
    parser.add_argument("--json", type=Path, help="also put everything into this file, beside others")
    parser.add_argument(
        "--texts", type=Path, help="texts (.xz) whose frequent words are kept too, if there is room"
    )
    parser.add_argument("--words", choices=("int8", "int4"), default="int8", help="how students store words")
    parser.add_argument("--only", default=".", help="students whose name fits")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    for name in ("no-bench", "bench-only"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    facts, target = json.loads(arguments.facts.read_text(encoding="utf-8")), arguments.out / "chain.json"
    arguments.out.mkdir(parents=True, exist_ok=True)
    known = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    known["trained"] = {name: {k: run[k] for k in ("seeds", "scores")} for name, run in facts["runs"].items()}
    known[LARGE] = large_scores(facts)
    folders = measure_(known, arguments)
    if not arguments.no_bench:
        if arguments.mpnet:
            folders[f"{LARGE}, {TORCH}"] = stand_in(
                arguments.mpnet, arguments.data, arguments.out / "stand-in"
            )
        known["machine"] = f"{processor().name}, {arguments.threads} threads"
        known["bench"] = timed(folders, arguments.threads, arguments.rounds)
    write_json(target, known)
    if arguments.json:
        before = json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json.exists() else {}
        write_json(arguments.json, merged(before, known))


if __name__ == "__main__":
    main()
