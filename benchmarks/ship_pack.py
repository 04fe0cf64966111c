"""Packs what ship_gpu.sh or chain_gpu.sh trained into few small files, and unpacks it: results and models.

    python benchmarks/ship_pack.py --runs OUT --teacher RUN --model MODEL --out PACKED
        -> PACKED-1, PACKED-2
    python benchmarks/ship_pack.py --packed PACKED-1 PACKED-2 --model MODEL --out STUDENTS
        -> a model's folder for each
    python benchmarks/ship_pack.py --every-seed --runs OUT --model MODEL --out PACKED
        -> PACKED-1, all seeds of the runs of chain_gpu.sh, as NAME-seed-N, and chain.json

Tensors that are the pretrained encoder's own (frozen embeddings) do not travel. A matrix of the same shape as
the pretrained one travels as a difference, one byte a weight and a scale a row: W ≈ W₀ + s · q, if that is
right to 0.3 %, a third of what int8 of the weight itself loses. Other matrices travel in half precision,
vectors as they are. The first load has the truncations, then the students that none beats with fewer weights
in its layers, the best score first; then the teacher and the others, as long as there is room. Finished runs
come before stopped ones. A load has at most five files of 15 MiB.
"""

import argparse
import io
import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor
from transformers import AutoModel

from bermo.models.config import BermoConfig
from bermo.models.tasks import BermoForSequenceClassification

MIB = 2**20
PART = 15 * MIB
FILLERS = ("tokens", "answers")
"""Runs that only fill a cache."""
LARGE = "mpnet"
"""The run of a teacher that is too large to travel."""
FOREIGN = (*FILLERS, "dense")
PAPERS = ("config.json", "tokenizer.json", "tokenizer_config.json", "task.json", "shrink.json")
CLOSE_ENOUGH = 3e-3
"""Relative error up to which a difference in bytes is taken."""
STEP, SCALE = ".step", ".scale"
TEACHER = "teacher"


@dataclass(frozen=True, kw_only=True)
class Student:
    """A run that left a model: where it is, how it scored, and how large its layers are."""

    name: str
    folder: Path
    score: float
    layer_weights: int
    is_finished: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="the folder of ship_gpu.sh")
    parser.add_argument("--teacher", type=Path, help="the run that taught")
    parser.add_argument("--packed", type=Path, nargs="+", help="what was packed, to be made whole")
    parser.add_argument("--model", required=True, help="the pretrained encoder")
    parser.add_argument("--room", type=float, default=56.0, help="MiB of weights in a load")
    parser.add_argument("--loads", type=int, default=2)
    parser.add_argument("--every-seed", action="store_true", help="all seeds of all runs, in one load")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    encoder = AutoModel.from_pretrained(options.model)
    known = {f"bermo.backbone.{name}": v.float() for name, v in encoder.state_dict().items()}
    if options.packed:
        for folder in options.packed:
            unpack(folder, options.out, known, Path(options.model))
    elif options.every_seed:
        pack_seeds(options.runs, options.out.with_name(f"{options.out.name}-1"), known)
    else:
        pack(options, known)


def pack(options: argparse.Namespace, known: dict[str, Tensor]) -> None:
    """Write the results of all runs and as many models as there is room for."""
    runs: dict[str, dict[str, Any]] = {}
    students = []
    for folder in sorted(options.runs.iterdir()):
        if (folder / "spec.json").exists():
            runs[folder.name] = read_run(folder)
            one = find_student(folder, runs[folder.name])
            students += [] if one is None or one.name in FOREIGN else [one]
    chosen = {s.name: s.folder for s in ranked(students)}
    if options.teacher and (options.teacher / "model").is_dir():
        chosen = with_teacher(chosen, options.teacher / "model")
        runs[TEACHER] = json.loads((options.teacher / "result.json").read_text(encoding="utf-8"))
    loads = fill(chosen, known, options.loads, int(options.room * MIB))
    for number, load_ in enumerate(loads, start=1):
        out = options.out.with_name(f"{options.out.name}-{number}")
        out.mkdir(parents=True)
        write_parts(out, archive(chosen, load_))
    names = {name for load_ in loads for name in load_}
    say(runs, students, names)
    facts = {
        "runs": runs,
        "packed": sorted(names),
        "bench": _json(options.runs / "bench" / "bench.json"),
    }
    facts["logs"] = {p.name: _end(p) for p in sorted(options.runs.glob("*.log"))}
    first = options.out.with_name(f"{options.out.name}-1")
    (first / "ship.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def pack_seeds(runs: Path, out: Path, known: dict[str, Tensor]) -> None:
    """Write the model of every student's seed and of the teacher, the first dense seed, and what all runs
    scored. A run that only fills a cache or gives a student its shape is left out; mpnet's model stays.
    """
    facts: dict[str, Any] = {"runs": {}, "evaluated": {}}
    chosen: dict[str, Path] = {}
    for folder in sorted(path.parent for path in runs.glob("*/spec.json")):
        if folder.name in FILLERS or folder.name.endswith("-start"):
            continue
        ended = [_json(path) for path in sorted(folder.glob("seed-*/result.json"))]
        facts["runs"][folder.name] = {
            "seeds": [one["seed"] for one in ended],
            "scores": [one["score"] for one in ended],
            "seconds": [one.get("seconds") for one in ended],
            "spec": _json(folder / "spec.json")["spec"],
        }
        print(f"{folder.name}: {[round(one['score'], 2) for one in ended] or 'no seed ended'}")
        if folder.name != LARGE:
            which = "seed-1" if folder.name == "dense" else "seed-*"
            chosen |= {f"{folder.name}-{m.parent.name}": m for m in sorted(folder.glob(f"{which}/model"))}
    for path in sorted(runs.glob(f"{LARGE}-*.json")):
        facts["evaluated"][path.stem] = _json(path)
    out.mkdir(parents=True)
    packed = {name: save(shortened(load_file(m / "model.safetensors"), known)) for name, m in chosen.items()}
    write_parts(out, archive(chosen, packed))
    facts["logs"] = {path.name: _end(path) for path in sorted(runs.glob("*.log"))}
    (out / "chain.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def read_run(folder: Path) -> dict[str, Any]:
    """Spec, evaluations and result of a run; a stopped run has its evaluations."""
    run: dict[str, Any] = {"spec": _json(folder / "spec.json")["spec"]}
    for metrics in folder.glob("seed-*/metrics.jsonl"):
        rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        run["looks"] = [row for row in rows if "valid/accuracy" in row]
        run["losses"] = [[row["step"], row["loss"], row.get("density", 1)] for row in rows if "loss" in row]
    for result in folder.glob("seed-*/result.json"):
        run["result"] = _json(result)
    return run


def find_student(folder: Path, run: dict[str, Any]) -> Student | None:
    """Return the model that a run left, shrunk where that was done, or None."""
    small = folder.parent / "small" / folder.name
    home = small if small.is_dir() else next(iter(folder.glob("seed-*/model")), folder / "nothing")
    if not (home / "model.safetensors").exists():
        return None
    tensors = load_file(home / "model.safetensors")
    return Student(
        name=folder.name,
        folder=home,
        score=run["result"]["score"] if "result" in run else _score_so_far(run),
        layer_weights=sum(v.numel() for k, v in tensors.items() if ".layer." in k and v.ndim == 2),
        is_finished="result" in run,
    )


def _score_so_far(run: dict[str, Any]) -> float:
    """The best evaluation of a stopped run; of a pruned one, since its last density was reached."""
    last = run["losses"][-1][2] if run.get("losses") else 1
    since = next((step for step, _, density in run.get("losses", []) if density <= last), 0)
    return max((row["valid/accuracy"] for row in run.get("looks", []) if row["step"] >= since), default=0.0)


def ranked(students: list[Student]) -> list[Student]:
    """Order: truncations (the baseline), then the front of layer weights and score, then the rest."""

    def is_beaten(one: Student) -> bool:
        return any(o.layer_weights < one.layer_weights and o.score >= one.score for o in students)

    return sorted(
        students,
        key=lambda s: (not s.name.startswith("alone"), not s.is_finished, is_beaten(s), -s.score),
    )


def with_teacher(chosen: dict[str, Path], teacher: Path) -> dict[str, Path]:
    """Put the teacher after the eight most wanted models."""
    names = list(chosen)
    order = [*names[:8], TEACHER, *names[8:]]
    return {name: teacher if name == TEACHER else chosen[name] for name in order}


def fill(
    chosen: dict[str, Path], known: dict[str, Tensor], num_loads: int, room: int
) -> list[dict[str, bytes]]:
    """Put each model into the first load that has room for it."""
    loads: list[dict[str, bytes]] = [{} for _ in range(num_loads)]
    for name, folder in chosen.items():
        content = save(shortened(load_file(folder / "model.safetensors"), known))
        for load_ in loads:
            if sum(map(len, load_.values())) + len(content) <= room:
                load_[name] = content
                break
    return loads


def shortened(state: dict[str, Tensor], known: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that training changed or added: as small differences, else in half precision."""
    kept: dict[str, Tensor] = {}
    for name, value in state.items():
        value, base = value.float(), known.get(name)
        if base is not None and base.shape == value.shape:
            if torch.equal(base, value):
                continue
            if value.ndim == 2:
                step, scale = difference(value, base)
                error = (base + step.float() * scale - value).norm() / value.norm()
                if error <= CLOSE_ENOUGH:
                    kept |= {name + STEP: step, name + SCALE: scale}
                    continue
        stays = value.ndim < 2 or value.abs().max() > torch.finfo(torch.half).max
        kept[name] = (value if stays else value.half()).contiguous()
    return kept


def difference(value: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """W − W₀ in whole steps of a 127th of each row's largest."""
    gap = value - base
    scale = (gap.abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
    return (gap / scale).round().to(torch.int8), scale


def whole(short: dict[str, Tensor], wanted: dict[str, Tensor], known: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo `shortened`; what did not travel is the pretrained encoder's."""
    state: dict[str, Tensor] = {}
    for name, value in wanted.items():
        if name + STEP in short:
            state[name] = known[name] + short[name + STEP].float() * short[name + SCALE]
        else:
            state[name] = short[name].float() if name in short else known[name]
        if state[name].shape != value.shape:
            raise SystemExit(f"{name} is {tuple(state[name].shape)}, not {tuple(value.shape)}.")
    return {name: value.contiguous() for name, value in state.items()}


def archive(chosen: dict[str, Path], packed: dict[str, bytes]) -> bytes:
    """One archive of models with their configs and tasks; tokenizers only where words were cut."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in packed.items():
            files = {p: (chosen[name] / p).read_bytes() for p in PAPERS if (chosen[name] / p).exists()}
            if "words" not in name:
                files.pop("tokenizer.json", None)
            for file, data in {**files, "model.safetensors": content}.items():
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def write_parts(out: Path, content: bytes) -> None:
    for number, start in enumerate(range(0, len(content), PART)):
        (out / f"students.tar.{number}").write_bytes(content[start : start + PART])


def unpack(packed: Path, out: Path, known: dict[str, Tensor], base: Path) -> None:
    """Make the models of a load whole, each in its folder, ready for bermo compress --candidates."""
    parts = sorted(packed.glob("students.tar.*"), key=lambda p: int(p.suffix[1:]))
    content = io.BytesIO(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(fileobj=content) as tar:
        names = sorted({entry.name.split("/")[0] for entry in tar})
        tar.extractall(out, filter="data")
    for name in names:
        folder = out / name
        short = load((folder / "model.safetensors").read_bytes())
        model = BermoForSequenceClassification(BermoConfig.from_pretrained(folder))
        state = whole(short, model.state_dict(), known)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        if not (folder / "tokenizer.json").exists():
            shutil.copy(base / "tokenizer.json", folder / "tokenizer.json")
        print(f"{name}: {sum(v.numel() for v in state.values()):,} weights")


def say(runs: dict[str, Any], students: list[Student], packed: set[str]) -> None:
    known = {student.name: student for student in students}
    for name in sorted(runs):
        one = known.get(name)
        if one is None:
            print(f"{name}: {'packed' if name in packed else 'no model, left out'}")
            continue
        ended = "" if one.is_finished else ", stopped"
        print(
            f"{name}: {one.score:.2f}, {one.layer_weights:,} weights in layers{ended}"
            f"{', packed' if name in packed else ', left out: no room'}"
        )


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _end(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-3000:]


if __name__ == "__main__":
    main()
