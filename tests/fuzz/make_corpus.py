"""python -m tests.fuzz.make_corpus: write the valid inputs that have another writer than a person's hands.

Texts in the corpus that are written by hand stay as they are. The same code gives the same files, but for the
times in the journal of a search.
"""

import bz2
import gzip
import json
import lzma
import shutil
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from bermo.encoders.sentence import SentenceSettings, write_settings
from bermo.figures.data import write_findings
from bermo.files import checksum, seal, write_json, write_sealed
from bermo.jobs.job import make_job, write_failure
from bermo.jobs.search import open_study
from bermo.pretrain_spec import PretrainSpec
from bermo.runs.folder import claim
from bermo.runs.holder import HOLDER, Holder
from bermo.runs.loading import reading_of
from bermo.runs.reading import FIELD
from bermo.runs.results import SeedResult, write_result
from bermo.runs.statistics import summarise
from bermo.ship.bench.measured import Bench, Measured, Timing
from bermo.ship.bench.run import write_bench
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.runtimes.sparse import write_sparse
from bermo.spec import RunSpec
from bermo.sums import write_sums
from bermo.values import to_dict
from tests.fuzz.session import CORPUS
from tests.report.some import findings
from tests.ship.folders import make_model, save
from tests.tiny import save_backbone

TABLE = "text,label\na fine film,good\nno fun,bad\n" + "great,good\nawful,bad\n" * 4
RESULT = SeedResult(
    seed=1,
    metric="accuracy",
    score=80.0,
    values={"accuracy": 80.0, "macro_f1": 79.0},
    last_score=80.0,
    diverged=None,
    best_step=4,
    steps=6,
    loss=0.3,
    seconds=1.5,
    rows_per_second=100.0,
    peak_memory_mib=10.0,
    mix_layers=[0, 1],
    mix_weights=[0.4, 0.6],
    num_parameters=1000,
    encoder_density=1.0,
    unknown_share=0.0,
    truncated_share=0.0,
    device="cpu",
    versions={"torch": "2"},
)


def main() -> None:
    """Write every file anew."""
    _tables()
    _runs()
    _results()
    _models()
    _sentences()
    _jobs()
    write_findings(CORPUS / "figures" / "all" / "figures.json", findings())
    for name, spec in (("run", RunSpec()), ("pretrain", PretrainSpec())):
        write_json(CORPUS / "specs" / f"{name}.json", to_dict(spec))


def _tables() -> None:
    import openpyxl
    import pyarrow as pa
    from pyarrow import parquet

    for name in ("packed", "parquet", "xlsx"):
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
    for ending, pack in (
        (".gz", lambda d: gzip.compress(d, mtime=0)),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
    ):
        (CORPUS / "packed" / f"table.csv{ending}").write_bytes(pack(TABLE.encode()))
    rows = [line.split(",") for line in TABLE.splitlines()[1:]]
    plain = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    odd = {
        "text": pa.array(plain["text"]).dictionary_encode(),
        "label": pa.array([[label] for label in plain["label"]]),
        "day": pa.array([0] * len(rows), pa.date32()),
        "raw": pa.array([b"\xff"] * len(rows)),
    }
    for name, columns in (("plain", plain), ("odd", odd)):
        parquet.write_table(pa.table(columns), CORPUS / "parquet" / f"{name}.parquet", compression="snappy")
    book = openpyxl.Workbook()
    for row in (["text", "label"], *rows):
        book.active.append(row)
    book.save(CORPUS / "xlsx" / "table.xlsx")
    _without_times(CORPUS / "xlsx" / "table.xlsx")


def _without_times(path: Path) -> None:
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist() if name != "docProps/core.xml"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, part in parts.items():
            new.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), part, zipfile.ZIP_DEFLATED)


def _runs() -> None:
    folder = CORPUS / "runs" / "whole"
    shutil.rmtree(folder, ignore_errors=True)
    claim(folder, RunSpec(), "0123456789abcdef")
    results = [replace(RESULT, seed=seed, score=80.0 + seed) for seed in (1, 2)]
    write_result(folder / "result.json", summarise(results))
    for result in results:
        seed = folder / f"seed-{result.seed}"
        write_result(seed / "result.json", result)
        rows = [
            {"step": step, "loss": 0.5, "valid/accuracy": 80.0, "kept/layer.0.query": 0.5, "mix/0": 0.4}
            for step in (2, 4, 6)
        ]
        (seed / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _results() -> None:
    folder = CORPUS / "results" / "whole"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    times = {"calls": 3, "p50": 1.0, "p95": 1.1, "p99": 1.2, "rows_per_second": 9.0, "rounds": (1.0, 1.1)}
    spec = BenchSpec(batches=(1, 2), lengths=(8,), rounds=2)
    row = Measured(
        name="dense",
        form="torch",
        precision="fp32",
        device="cpu",
        megabytes=1.0,
        peak_memory_mb=2.0,
        score=80.0,
        timings=tuple(Timing(batch=batch, length=8, **times) for batch in (1, 2)),
    )
    bench = Bench(spec=spec, metric="accuracy", threads=1, machine="m", versions={}, rows=(row,))
    write_bench(folder / "bench.json", bench)
    probed = {"task": "tense", "group": "surface", "num_classes": 2, "rows": [3, 2, 2], "layers": ["0", "1"]}
    probed |= {name: [1.0, 2.0] for name in ("accuracy", "dev", "penalty", "mix_weights", "untrained")}
    probed |= dict.fromkeys(("mix_accuracy", "centre", "largest_class", "bag_of_words"), 1.0)
    write_json(folder / "probed.json", probed)
    kept = {"metric": "accuracy", "parameters": 9, "nonzero": 3, "diverged": None}
    kept |= dict.fromkeys(("score", "same_labels", "same_probabilities", "megabytes", "seconds"), 1.0)
    write_sealed(folder / "measured.json", kept)
    step = folder / "step-00000002"
    step.mkdir()
    (step / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    sums = {"model.safetensors": checksum(step / "model.safetensors")}
    write_json(
        step / "manifest.json", seal({"format": 4, "identity": "0", "state": {"step": 2}, "files": sums})
    )


def _models() -> None:
    for name in ("models", "weights", "sparse"):
        shutil.rmtree(CORPUS / name, ignore_errors=True)
    torch.manual_seed(0)
    save_backbone("bert", CORPUS / "weights" / "bert")
    model = make_model(layers=1)
    ours = save(model, CORPUS / "models" / "ours")
    for name in ("model.safetensors", "README.md"):
        (ours / name).unlink(missing_ok=True)
    record = {"form": "onnx", "precision": "fp32", "diverged": None, FIELD: to_dict(reading_of(ours))}
    write_json(ours / "export.json", record)
    write_json(ours / "modules.json", [{"path": "1_Pooling", "type": "models.Pooling"}])
    write_json(ours / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    summed = CORPUS / "models" / "summed"
    shutil.copytree(ours, summed, ignore=shutil.ignore_patterns("1_Pooling", "modules.json"))
    write_sums(summed)
    for name in ("fp32", "int8"):
        path = CORPUS / "sparse" / name / "sparse.safetensors"
        path.parent.mkdir(parents=True)
        for site in model.parameters():
            site.data *= (torch.rand_like(site) < 0.3).float()
        write_sparse(model, path, name)  # type: ignore[arg-type]
    for path in CORPUS.rglob("*.safetensors"):
        path.chmod(0o644)


def _sentences() -> None:
    rows = [("a fine film", "a good film", 3), ("no fun", "awful", 2), ("great", "awful", 0), ("a", "b", 1)]
    apart = CORPUS / "apart"
    apart.mkdir(exist_ok=True)
    (apart / "scored.csv").write_text("text1,text2,score\n" + "".join(f"{a},{b},{n}\n" for a, b, n in rows))
    (apart / "found.tsv").write_text("anchor\tpositive\n" + "".join(f"{a}\t{b}\n" for a, b, _ in rows))
    triplets = [{"anchor": a, "positive": b, "negative": "no"} for a, b, _ in rows]
    (apart / "triplets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in triplets))
    (CORPUS / "vectors").mkdir(exist_ok=True)
    np.save(CORPUS / "vectors" / "three.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    folder = CORPUS / "sentence" / "whole"
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(0)
    save_backbone("bert", folder)
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    settings = SentenceSettings(pooling="mean", dimension=8, prompts={"query": "q: "}, max_length=16)
    write_settings(folder, settings, 16)


def _jobs() -> None:
    folder = CORPUS / "jobs" / "whole"
    shutil.rmtree(folder, ignore_errors=True)
    job = make_job("one", RunSpec(), folder / "one")
    job.log.parent.mkdir(parents=True)
    job.log.write_text("bermo train: reading …\nbermo: The disk is full.\n")
    write_failure(job, 1)
    write_json(folder / "held" / HOLDER, asdict(Holder("machine", 999999999, 1.0, "name")))
    study = open_study(folder / "journal.jsonl")
    for number in range(2):
        trial = study.ask()
        trial.suggest_float("lr", 1e-5, 1e-3, log=True)
        trial.suggest_categorical("mix", ("none", "across"))
        trial.report(80.0, 1)
        if number == 0:
            study.tell(trial, 81.0)


if __name__ == "__main__":
    main()
