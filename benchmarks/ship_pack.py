"""What ship_gpu.sh trained, in few and small files: results of all runs, and the weights of the best students.

    python benchmarks/ship_pack.py --runs OUT --model MODEL --out FOLDER

A student is kept in half precision and without the tensors that are the pretrained encoder's own (frozen embeddings). First come those that
none beats with fewer weights in its layers, the best score first, then the others, until the room is full. Files are cut into parts.
"""

import argparse
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from transformers import AutoModel

PART = 15 * 2**20
FOREIGN = ("cache", "packed", "small", "more", "bench")
PAPERS = ("config.json", "tokenizer.json", "tokenizer_config.json", "task.json", "shrink.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--room", type=int, default=56 * 2**20, help="bytes for weights")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    known = {
        f"bermo.backbone.{k}": v
        for k, v in AutoModel.from_pretrained(options.model).state_dict().items()
    }
    found = {
        folder.name: read_run(folder) for folder in sorted(options.runs.iterdir()) if is_run(folder)
    }
    packed, room = {}, options.room
    for name in ranked(found):
        content = weights(options.runs, name, known)
        if content is not None and len(content) <= room:
            packed[name], room = content, room - len(content)
    write_parts(options.out, pack(options.runs, packed))
    bench = options.runs / "bench" / "bench.json"
    (options.out / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    if bench.exists():
        (options.out / "bench.json").write_text(bench.read_text(encoding="utf-8"), encoding="utf-8")
    logs = {
        p.name: p.read_text(encoding="utf-8")[-3000:] for p in sorted(options.runs.glob("*.log"))
    }
    (options.out / "logs.json").write_text(json.dumps(logs, indent=1), encoding="utf-8")
    for name, run in found.items():
        print(name, run.get("score"), run.get("layer_weights"), "packed" if name in packed else "")


def is_run(folder: Path) -> bool:
    return folder.is_dir() and (folder / "spec.json").exists() and folder.name not in FOREIGN


def model_folder(runs: Path, name: str) -> Path:
    """Where the student is: shrunk, or as its one seed left it, also if the run was stopped."""
    small = runs / "small" / name
    return (
        small
        if small.is_dir()
        else next(iter((runs / name).glob("seed-*/model")), runs / name / "model")
    )


def read_run(folder: Path) -> dict[str, Any]:
    """Spec, looks and result of a run; a run that was stopped has its looks."""
    run: dict[str, Any] = {
        "spec": json.loads((folder / "spec.json").read_text(encoding="utf-8"))["spec"]
    }
    for metrics in folder.glob("seed-*/metrics.jsonl"):
        rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        run["looks"] = [row for row in rows if "valid/accuracy" in row]
        run["last_row"] = next((row for row in reversed(rows) if "loss" in row), None)
    for result in folder.glob("seed-*/result.json"):
        run["result"] = json.loads(result.read_text(encoding="utf-8"))
        run["score"] = run["result"]["score"]
    if "score" not in run and run.get("looks") and (folder / "seed-9" / "model").is_dir():
        run["score"] = max(row["valid/accuracy"] for row in run["looks"])
    tensors = model_folder(folder.parent, folder.name) / "model.safetensors"
    if tensors.exists():
        matrices = {k: v for k, v in load_file(tensors).items() if ".layer." in k and v.ndim == 2}
        run["layer_weights"] = sum(v.numel() for v in matrices.values())
    return run


def ranked(found: dict[str, dict[str, Any]]) -> list[str]:
    """Runs with a score: those on the front of layer weights and score first, then the others, best first."""
    scored = {
        n: r
        for n, r in found.items()
        if "score" in r and "layer_weights" in r and n not in ("tokens", "answers", "dense")
    }

    def is_beaten(name: str) -> bool:
        mine = scored[name]
        return any(
            other["layer_weights"] < mine["layer_weights"] and other["score"] >= mine["score"]
            for other in scored.values()
        )

    return sorted(scored, key=lambda name: (is_beaten(name), -scored[name]["score"]))


def weights(runs: Path, name: str, known: dict[str, torch.Tensor]) -> bytes | None:
    """The tensors that are not the pretrained encoder's, in half precision."""
    file = model_folder(runs, name) / "model.safetensors"
    if not file.exists():
        return None
    kept = {
        key: value.half() if value.is_floating_point() else value
        for key, value in load_file(file).items()
        if key not in known
        or known[key].shape != value.shape
        or not torch.equal(known[key].float(), value.float())
    }
    return save(kept)


def pack(runs: Path, packed: dict[str, bytes]) -> bytes:
    """One archive of all students with their papers; tokenizers only where they were cut."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in packed.items():
            folder = model_folder(runs, name)
            files = {
                paper: (folder / paper).read_bytes()
                for paper in PAPERS
                if (folder / paper).exists()
            }
            if "words" not in name:
                files.pop("tokenizer.json", None)
            for file, data in {**files, "model.safetensors": content}.items():
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def write_parts(out: Path, content: bytes) -> None:
    for number, start in enumerate(range(0, len(content), PART)):
        (out / f"students.tar.{number}").write_bytes(content[start : start + PART])


if __name__ == "__main__":
    main()
