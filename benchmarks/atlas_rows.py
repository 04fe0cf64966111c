"""The scores of an atlas's trainings as rows, its speeds, and the scores of mixes that come or go.

    python benchmarks/atlas_rows.py OUT results/atlas-gpu.json               OUT of atlas.sh
    python benchmarks/atlas_rows.py OUT results/atlas-gpu.json --leave dense
    python benchmarks/atlas_rows.py --speed OUT results/atlas-x86.json       OUT of atlas.sh … measure
    python benchmarks/atlas_rows.py --gradual OUT results/gradual-mix.json   OUT of gradual_mix_gpu.sh

A row is a method: its seeds, the score of the best evaluation of its last training, and what was measured of
the model that is shipped (seed, score, agreement with the dense model, size). Seeds that OUT does not have
stay as the file has them; so do methods that OUT has not timed, and the file's other fields. A method that is
left stays as it is, where other rows of the file are forms of its models. A baseline is fitted once for all
seeds: its row has one.

Speeds are times the throughput and the latency of the dense model, which each bench timed in turns; those of
baselines and of students without a Transformer are on texts, tokens made anew (`on`). `picked` names the
model that bermo compress chose and that was timed: it chooses anew in each atlas. Of the mixes the last
evaluation is taken.
"""

import argparse
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bermo.atlas.baselines import BASELINES
from bermo.atlas.methods import METHODS, NAMES
from bermo.atlas.rows import BASELINE_GROUP
from bermo.atlas.speed import BENCH_FILE
from bermo.atlas.steps import Method, Train
from bermo.atlas.students import STUDENTS
from bermo.files import read_sealed
from bermo.ship.bench.noise import noise_sentence
from bermo.ship.bench.run import read_bench

ARMS = ("plain", "fixed", "opens", "closes")


SHIPPED = ("score", "same_labels", "same_probabilities", "megabytes", "parameters", "nonzero")


def rows(out: Path, known: list[dict[str, Any]], leave: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return a row for each method that is known or of which a seed has ended, in the atlas's order."""
    before = {row["method"]: row for row in known}
    found = []
    for name in NAMES:
        if name in leave:
            found += [before[name]] if name in before else []
            continue
        old = before.get(name, {})
        trained = dict(zip(old.get("seeds", ()), old.get("scores", ()), strict=True))
        trained |= trainings(out, METHODS[name]) if name in METHODS else {}
        shipped = {row["seed"]: row for row in [*old.get("shipped", ()), *measured(out, name)]}
        row: dict[str, Any] = {"method": name, **about(name)}
        row |= {"seeds": sorted(trained), "scores": [trained[seed] for seed in sorted(trained)]}
        row |= {"shipped": [shipped[seed] for seed in sorted(shipped)]} if shipped else {}
        found += [row] if trained or shipped else []
    return found


def about(name: str) -> dict[str, str]:
    """Return the group and the summary of a method, a student or a baseline."""
    if name in METHODS:
        return {"group": METHODS[name].group, "summary": METHODS[name].summary}
    kind = STUDENTS[name] if name in STUDENTS else BASELINES[name]
    return {"group": BASELINE_GROUP, "summary": kind.summary}


def trainings(out: Path, method: Method) -> dict[int, float]:
    """Return the score of each seed's last training."""
    trains = [number for number, step in enumerate(method.steps, 1) if isinstance(step, Train)]
    paths = out.glob(f"{method.name}/seed-*/{trains[-1]}-train/result.json") if trains else ()
    ended = [json.loads(path.read_text(encoding="utf-8"))["seeds"][0] for path in paths]
    return {one["seed"]: round(one["score"], 2) for one in ended}


def measured(out: Path, name: str) -> list[dict[str, Any]]:
    """Return what was measured of each seed's shipped model, a baseline's once; shares in percent."""
    found = []
    paths = sorted(out.glob(f"{name}/seed-*/measured.json"))
    for path in paths[:1] if name in BASELINES else paths:
        values = json.loads(path.read_text(encoding="utf-8"))
        shares = {name: round(100 * values[name], 1) for name in SHIPPED if name.startswith("same")}
        sizes = {name: round(values[name], 2) for name in SHIPPED if name not in shares}
        found.append(
            {"seed": int(path.parent.name.removeprefix("seed-"))} | sizes | shares | picked(path.parent)
        )
    return found


def arms(out: Path) -> dict[str, dict[str, float]]:
    """Return the last score of each seed of each mix."""
    found = {}
    for arm in ARMS:
        paths = sorted(out.rglob(f"{arm}/result.json"))
        seeds = [one for path in paths for one in json.loads(path.read_text(encoding="utf-8"))["seeds"]]
        seeds.sort(key=lambda one: one["seed"])
        found[arm] = {str(one["seed"]): round(one["last_score"], 2) for one in seeds}
    return found


def speeds(out: Path) -> dict[str, Any]:
    """Return where an atlas was timed, and how fast each method is; none that a noisy machine timed."""
    known = {name: out / name / BENCH_FILE for name in NAMES}
    known = {name: path for name, path in known.items() if path.exists()}
    found: dict[str, Any] = {"rows": {}}
    for name, path in known.items():
        if name not in METHODS:
            values = read_sealed(path)
            found |= {key: values[key] for key in ("machine", "threads")}
            found["rows"][name] = on_texts(values["speed"])
            continue
        result = read_bench(path)
        if noise_sentence(result) is not None:
            continue
        row = result.rows[-1]
        least, most = result.spread(row, result.throughput_shape)
        found |= {"machine": result.machine, "threads": result.threads, "versions": result.versions}
        found["rows"][name] = {
            "throughput": round(result.speedup(row), 2),
            "least_most": [round(least, 2), round(most, 2)],
            "latency": round(result.latency_gain(row), 2),
            "ms": round(row.at(*result.latency_shape).p50, 2),
        }
        found["rows"][name] |= next(
            (one for seed in (out / name).glob("seed-*") if (one := picked(seed))), {}
        )
    return found


def with_speeds(known: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return speeds with those that were known before of other methods, if the same machine timed them."""
    for name in ("machine", "threads"):
        if known.get(name, found.get(name)) != found.get(name):
            raise SystemExit(f"{name} was {known[name]}, now {found.get(name)}. Write to another file.")
    return known | found | {"rows": known.get("rows", {}) | found["rows"]}


def on_texts(speed: Mapping[str, Any]) -> dict[str, Any]:
    """Return how fast a baseline or a student without a Transformer answers texts."""
    return {
        "throughput": round(speed["speedup"], 2),
        "least_most": [round(gain, 2) for gain in speed["speedup_spread"]],
        "latency": round(speed["latency_gain"], 2),
        "ms": round(speed["milliseconds"], 3),
        "on": "texts",
    }


def picked(seed: Path) -> dict[str, str]:
    """Return the name of the model that bermo compress chose for a seed, of another method nothing."""
    path = seed / "1-compress" / "result.json"
    return {"picked": json.loads(path.read_text(encoding="utf-8"))["picked"]} if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("json", type=Path)
    parser.add_argument("--gradual", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--leave", nargs="*", default=[], choices=list(METHODS), metavar="METHOD")
    options = parser.parse_args()
    known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    if options.gradual:
        known["arms"] = arms(options.out)
    elif options.speed:
        known = with_speeds(known, speeds(options.out))
    else:
        known["rows"] = rows(options.out, known.get("rows", []), options.leave)
    options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
