"""Sentence encoders made small without labels: STS-B and a search of SQuAD's passages, dense and students.

    python benchmarks/sentence.py --model all-MiniLM-L6-v2/ --texts wikipedia/part0.txt.xz \\
        --stsb stsb/sts-dev.tsv --squad squad/dev-v1.1.json --out out/minilm [--seeds 3] [--precision bf16]

Students are taught by the teacher's vectors of texts alone, sentences and paragraphs of Wikipedia: every
second layer, the same with fewer neurons and heads, every third, as many of the first layers, equally taught,
and a student without layers (static_student.py). Each seed is scored as it is and in int8, by onnxruntime and
by OpenVINO; a bench on two threads times those of the first seed beside the dense model.

A GPU trains and scores, --train-only; neither onnxruntime nor OpenVINO is needed there. What it left in --out
is exported, scored and timed elsewhere by the same command with --ship-only. With --only some students are
trained, so that others can be trained beside them in another folder; --no-bench leaves the times to a quieter
hour, in which --no-scores measures nothing else; --bench-only times students that are trained on 200 texts
and scored by nothing.
"""

import argparse
import json
import lzma
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from benchmarks.static_student import StaticStudent
from bermo.data.corpora import read_squad
from bermo.data.read import read_table
from bermo.files import write_json, write_text
from bermo.methods.finetune import finetune
from bermo.nn.losses import even_map
from bermo.report.terminal import TerminalDisplay
from bermo.runs.trained import open_sentence_encoder
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.run import bench
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.compress.sentence import hold_out, prepared_teacher, write_pairs
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.runtimes.embed import SentenceEncoder
from bermo.ship.runtimes.evaluate import evaluate_file
from bermo.ship.runtimes.forms import FormName
from bermo.ship.runtimes.spec import EvaluateSpec
from bermo.spec import DataSpec, DistillSpec, MixSpec, ModelSpec, RunSpec, TrainSpec

Models = dict[str, dict[int, Path]]
"""The folders of each model's seeds."""
STS = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
QUESTIONS = 2000
STATIC = "no layers"
FORMS: dict[str, FormName] = {", int8": "onnx-int8", ", OpenVINO int8": "openvino-int8"}
CALIBRATION_TEXTS = 300
LEAST_LETTERS, MOST_LETTERS = 30, 1200
SENTENCE, CLAUSE = re.compile(r"(?<=[.!?]) "), re.compile(r"(?<=[.!?,;:]) ")
MAX_LOSS = 100.0
"""An export is kept whatever it loses: what it loses is the result."""


@dataclass(frozen=True)
class Student:
    """A name for the table, the teacher's layers, and the shares of their neurons and heads."""

    name: str
    layers: tuple[int, ...]
    neurons: float = 1.0
    heads: float = 1.0

    @property
    def folder(self) -> str:
        return folder_of(self.name)


def folder_of(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def students(num_layers: int) -> list[Student]:
    """The shapes that are compared, for a teacher of so many layers."""
    half, third = num_layers // 2, max(1, num_layers // 3)
    even, thin = f"{half} even layers", f"{half} even layers, half of the neurons"
    layers = even_map(half, num_layers)
    return [
        Student(even, layers),
        Student(thin, layers, 0.5),
        Student(f"{even}, half of the heads", layers, 1.0, 0.5),
        Student(f"{thin}, two thirds of the heads", layers, 0.5, 2 / 3),
        Student(f"{thin}, half of the heads", layers, 0.5, 0.5),
        Student(f"{third} even layers", even_map(third, num_layers)),
        Student(f"first {half} layers", tuple(range(1, half + 1))),
    ]


def write_data(arguments: argparse.Namespace, out: Path) -> dict[str, Path]:
    """Write the two tests as files that bermo reads; SQuAD's passages are searched for its questions."""
    files = {"stsb": out / "stsb.jsonl", "squad": out / "squad.jsonl"}
    table = read_table(Path(arguments.stsb), STS, drops_extra=True)
    columns = (table.column(name) for name in ("sentence1", "sentence2", "score"))
    pairs = [{"text1": a, "text2": b, "score": float(c)} for a, b, c in zip(*columns, strict=True)]
    squad = read_squad(Path(arguments.squad), is_train=False)
    asked = list(zip(squad.questions, squad.contexts, strict=True))
    random.Random(0).shuffle(asked)
    searched = [{"question": q, "context": c} for q, c in asked[:QUESTIONS]]
    for name, rows in (("stsb", pairs), ("squad", searched)):
        write_text(files[name], "".join(json.dumps(row) + "\n" for row in rows))
    return files


def scores(folder: Path, files: dict[str, Path]) -> dict[str, float]:
    """Spearman on STS-B, nDCG@10 and recall@10 of the search."""
    found = {name: evaluate_file(folder, path, EvaluateSpec()).result.values for name, path in files.items()}
    return {
        "spearman": found["stsb"]["spearman"],
        "ndcg_10": found["squad"]["ndcg_10"],
        "recall_10": found["squad"]["recall_10"],
    }


def texts_of(path: str, has_clauses: bool = False) -> Iterator[str]:
    """Yield the paragraphs of a file, every fourth as it is and the others in sentences; with clauses, every
    second of these others is divided at commas too.
    """
    opened = lzma.open if path.endswith(".xz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        paragraphs = (line.strip() for line in file)
        for number, paragraph in enumerate(text for text in paragraphs if len(text) > LEAST_LETTERS):
            ends = CLAUSE if has_clauses and number % 2 else SENTENCE
            pieces = [paragraph] if number % 4 == 0 else ends.split(paragraph)
            yield from (text[:MOST_LETTERS] for text in pieces if len(text) > LEAST_LETTERS)


def run_spec(arguments: argparse.Namespace, teacher: Path, out: Path) -> RunSpec:
    """The training that all students share: texts, and pairs of some held out that choose the evaluation."""
    texts = islice(texts_of(arguments.texts, arguments.clauses), arguments.limit)
    train, held_out = hold_out(list(dict.fromkeys(texts)))
    write_text(out / "train.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in train))
    write_pairs(SentenceEncoder(teacher).encode(held_out), held_out, out / "valid.jsonl")
    length = open_sentence_encoder(teacher).trained.max_length
    data = DataSpec(
        task="own/embedding",
        train=str(out / "train.jsonl"),
        valid=str(out / "valid.jsonl"),
        max_length=length,
    )
    train_spec = TrainSpec(
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        lr=arguments.lr,
        precision=arguments.precision,
        fast=arguments.fast,
    )
    start = None if arguments.mix == "none" else "last"
    model = ModelSpec(mix=MixSpec(kind=arguments.mix, init=start))
    return RunSpec(model=model, data=data, train=train_spec, seeds=seeds_of(arguments))


def seeds_of(arguments: argparse.Namespace) -> tuple[int, ...]:
    """The seeds that are asked for."""
    return (arguments.only_seed,) if arguments.only_seed else tuple(range(1, arguments.seeds + 1))


def measured(arguments: argparse.Namespace, out: Path) -> Iterator[dict[str, object]]:
    """Yield a row for the dense model, for each seed of each student and for their int8 forms; then times."""
    files = write_data(arguments, out)
    teacher = prepared_teacher(open_sentence_encoder(arguments.model), out / "teacher")
    models = {"dense": {1: teacher}}
    if not arguments.ship_only:
        spec = run_spec(arguments, teacher, out)
        models |= trained(arguments, spec, teacher, out)
        if not arguments.bench_only:
            yield from torch_rows(arguments, models, spec, files)
    if arguments.train_only:
        return
    if arguments.ship_only:
        models |= found(arguments, teacher, out)
    folders = {}
    for name, seed, folder in exported(arguments, models, out):
        if seed == 1:
            folders[name] = folder
        if not (arguments.bench_only or arguments.no_scores) and name not in models:
            yield {"name": name, "seed": seed, **scores(folder, files)}
    if not arguments.no_bench:
        yield from timed(folders)


def torch_rows(
    arguments: argparse.Namespace, models: Models, spec: RunSpec, files: dict[str, Path]
) -> Iterator[dict[str, object]]:
    """Yield a row for the dense model, for the student without layers and for each seed of the others."""
    for name, seeds in models.items():
        for seed, folder in seeds.items():
            row = {"name": name} if name == "dense" else {"name": name, "seed": seed}
            yield row | scores(folder, files)
    if re.search(arguments.only, STATIC):
        yield from static_rows(models["dense"][1], spec, files, arguments.epochs)


def wanted_students(arguments: argparse.Namespace, teacher: Path) -> list[Student]:
    """Return the students that --only names; a mix of their layers and --label are told in their names."""
    num_layers = int(open_sentence_encoder(teacher).load_model().config.num_hidden_layers or 0)
    chosen = [student for student in students(num_layers) if re.search(arguments.only, student.name)]
    ending = "" if arguments.mix == "none" else f", mix {arguments.mix}"
    ending += f", {arguments.label}" if arguments.label else ""
    return [replace(student, name=student.name + ending) for student in chosen]


def trained(arguments: argparse.Namespace, spec: RunSpec, teacher: Path, out: Path) -> Models:
    """Train the students that are asked for; those that are done are not trained again."""
    for student in wanted_students(arguments, teacher):
        taught = DistillSpec(
            teacher=str(teacher),
            student_layers=student.layers,
            student_neurons=student.neurons,
            student_heads=student.heads,
            hard=0.0,
            soft=1.0,
            neighbours=arguments.neighbours,
            hidden=arguments.hidden,
        )
        finetune(replace(spec, distill=taught), out / student.folder, TerminalDisplay())
    return found(arguments, teacher, out)


def found(arguments: argparse.Namespace, teacher: Path, out: Path) -> Models:
    """Return the models of each trained student by its seeds, as far as they are in the folder."""
    places = {
        student.name: {
            seed: place
            for seed in seeds_of(arguments)
            if (place := out / student.folder / f"seed-{seed}" / "model").exists()
        }
        for student in wanted_students(arguments, teacher)
    }
    return {name: seeds for name, seeds in places.items() if seeds}


def exported(arguments: argparse.Namespace, models: Models, out: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield each model of each seed, and after it its int8 forms."""
    texts = out / "calibrate.txt"
    if not texts.exists():
        drawn = random.Random(0).sample(list(islice(texts_of(arguments.texts), 50_000)), CALIBRATION_TEXTS)
        write_text(texts, "\n".join(drawn) + "\n")
    for name, seeds in models.items():
        for seed, folder in seeds.items():
            yield name, seed, folder
            for ending, form in FORMS.items():
                graph = out / "int8" / f"{folder_of(name)}-{form}-{seed}"
                if not graph.exists():
                    calibrate = texts if form == "openvino-int8" else None
                    spec = ExportSpec(to=form, max_loss=MAX_LOSS, calibrate=calibrate)
                    export(folder, graph, spec, TerminalDisplay())
                yield name + ending, seed, graph


def timed(folders: dict[str, Path]) -> Iterator[dict[str, object]]:
    """Yield how many times as fast as the first each model is on two threads, and its megabytes."""
    shapes = BenchSpec(batches=(1, 32), lengths=(32, 128), rounds=3)
    entries = line_up([str(folder) for folder in folders.values()], shapes, threads=2)
    shown = [replace(entry, name=name) for entry, name in zip(entries, folders, strict=True)]
    result = bench(shown, shapes, TerminalDisplay())
    for row in result.rows:
        yield {
            "name": row.name,
            "times": round(result.speedup(row), 2),
            "latency": round(result.latency_gain(row), 2),
            "megabytes": round(row.megabytes, 1),
        }


def static_rows(
    teacher: Path, spec: RunSpec, files: dict[str, Path], epochs: float
) -> Iterator[dict[str, object]]:
    """Yield a row for each seed of the student without layers."""
    texts = [json.loads(line)["text"] for line in Path(spec.data.train).read_text().splitlines()]
    for seed in spec.seeds:
        student = StaticStudent(teacher)
        student.learn_(texts, round(epochs), seed)
        yield {"name": STATIC, "seed": seed, **student.scores(files)}


def known_rows(path: Path, keeps_int8: bool) -> list[dict[str, object]]:
    """Return the scores that are known; times are measured anew, and int8 rows unless they are kept."""
    rows: list[dict[str, object]] = json.loads(path.read_text()) if path.exists() else []
    endings = () if keeps_int8 else tuple(FORMS)
    return [row for row in rows if "times" not in row and not str(row["name"]).endswith(endings)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("model", "texts", "stsb", "squad", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only-seed", type=int, help="this one alone, so that others are trained beside it")
    parser.add_argument("--limit", type=int, default=300_000)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--fast", default="auto")
    parser.add_argument("--only", default=".", help="students whose name fits")
    parser.add_argument("--label", help="put behind the students' names, such as: more texts")
    parser.add_argument("--mix", default="none", help="of the students' layers: across, within, …")
    parser.add_argument("--neighbours", type=float, default=0.0, help="weight of likeness within a batch")
    parser.add_argument("--hidden", type=float, default=0.0, help="weight of the teacher's hidden states")
    for name in ("clauses", "train-only", "ship-only", "no-bench", "no-scores", "bench-only"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    if arguments.bench_only:
        arguments.seeds, arguments.limit, arguments.epochs = 1, 200, 1.0
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = known_rows(out / "table.json", arguments.no_scores) if arguments.ship_only else []
    for row in measured(arguments, out):
        rows.append(row)
        print(json.dumps(row), flush=True)
        write_json(out / "table.json", rows)


if __name__ == "__main__":
    main()
