"""What pretrainings.py has made, as rows: one for each encoder, with all that was measured of it."""

import gzip
import json
import lzma
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

OWN_LIKELIHOOD = ("mlm", "xlnet", "inner-mix")
"""Arms whose own held-out likelihood is that of single masked tokens."""
OPENERS = {".xz": lzma.open, ".gz": gzip.open}


def write(name: str, out: Path, beside: Path | None = None) -> None:
    """Write OUT/NAME.json: a row for each pretraining that has ended, and those of a file beside them."""
    target = out / f"{name}.json"
    earlier = [] if beside is None else _read(beside)
    by_run = {(row["arm"], row["seed"]): row for row in [*earlier, *rows(out)]}
    found = [by_run[run] for run in sorted(by_run)]
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} encoders in {target}")


def rows(out: Path) -> list[dict[str, Any]]:
    """Return a row for each arm and seed, in the order of their names."""
    return [_row(out, path.parent) for path in sorted(out.glob("*-*/result.json"))]


def _row(out: Path, folder: Path) -> dict[str, Any]:
    arm, _, seed = folder.name.rpartition("-")
    result = _read(folder / "result.json")
    likelihood = result["values"]["likelihood"]
    masked = likelihood if arm in OWN_LIKELIHOOD else None
    if (again := out / "masked" / folder.name / "result.json").exists():
        masked = _read(again)["values"]["likelihood"]
    numbers = ("steps", "seconds", "tokens_per_second", "peak_memory_mib", "num_parameters", "device")
    return {
        "arm": arm,
        "seed": int(seed),
        "likelihood": likelihood,
        "masked": masked,
        "diverged": result["diverged"],
        **{number: result[number] for number in numbers},
        "tasks": dict(_tasks(out, folder.name)),
        "probes": dict(_probes(out, folder.name)),
        "senses": _looked(out, folder.name, "senses", "names", "f1"),
        "anisotropy": _looked(out, folder.name, "geometry", "layers", "anisotropy"),
    }


def _tasks(out: Path, name: str) -> Iterator[tuple[str, float]]:
    """Yield the score of each task that the encoder was fine-tuned for."""
    for path in sorted(out.glob(f"tuned/{name}-*/result.json")):
        yield path.parent.name.removeprefix(f"{name}-"), _read(path)["seeds"][0]["score"]


def _probes(out: Path, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each task the accuracy of every layer, of their mix, and of the layer that is best on dev."""
    for path in sorted(out.glob(f"probe/{name}/*.json")):
        found = _read(path)
        if "mix_accuracy" in found:
            best = max(range(len(found["dev"])), key=found["dev"].__getitem__)
            layers = dict(zip(found["layers"], found["accuracy"], strict=True))
            yield (
                found["task"],
                {"layers": layers, "mix": found["mix_accuracy"], "best": found["accuracy"][best]},
            )


def _looked(out: Path, name: str, part: str, layers: str, values: str) -> dict[str, float] | None:
    """Return what an analysis found by layer, where it was measured."""
    # An analysis names its models by the ends of their paths that tell them apart.
    for file in (f"{name}-model.{part}.json", f"model.{part}.json"):
        if (path := out / "look" / "parts" / file).exists():
            facts = _read(path)["facts"]
            return dict(zip(facts[layers], facts[values], strict=True))
    return None


def write_lines(texts: Sequence[str], target: Path, count: int) -> None:
    """Write the first lines of more than twenty characters of the texts, which may be packed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(islice(_lines(texts), count)) + "\n", encoding="utf-8")


def _lines(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        with OPENERS.get(Path(text).suffix, open)(text, "rt", encoding="utf-8") as opened:
            yield from (line.strip()[:500] for line in opened if len(line) > 20)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
