"""What few bits cost trained models: each in the forms that `bermo export` writes, scored on the same rows.

    python benchmarks/int8_cost.py ROWS OUT NAME=FOLDER... [--forms int8,gobo] [--json results/int8-x86.json]

ROWS is a file of rows with answers. FOLDER is that of a run, of a method in an atlas, or of models: it has
seed-1, seed-2 and so on, each a model or the trainings that end in one. NAME says which ("the box, SST-2").
Exports are written to OUT and made once.

A row of the JSON is a model: by seed the score of the model in torch fp32, and of each form its score, the
share of answers that stay, and its bytes. Rows and forms that the file has stay, and so do its other fields.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bermo.files import write_json
from bermo.machine import processor
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec

FORMS: Mapping[str, Mapping[str, Any]] = {
    "int8": {"to": "onnx-int8"},
    "openvino": {"to": "openvino-int8"},
    "kept": {"to": "onnx-int8", "keep_fp32": 4},
    "gobo": {"to": "sparse", "values": "gobo"},
    "groups3": {"to": "sparse", "values": "groups3"},
    "groups2": {"to": "sparse", "values": "groups2"},
}
"""Options of bermo export by the name of a form; `kept` leaves four matrices in fp32."""
USUAL = ("int8", "openvino")


def cost(model: Path, out: Path, rows: Path, form: str) -> dict[str, Any]:
    """Export a model, unless that is done, and return how it answers the rows."""
    if not out.exists():
        export(model, out, ExportSpec(**FORMS[form], data=rows, max_loss=100.0))
    known = json.loads((out / "export.json").read_text(encoding="utf-8"))
    compared = known["compared"]
    return {
        "before": round(compared["score_before"], 2),
        "score": round(compared["score_after"], 2),
        "same_answers": round(100 * compared["same_answers"], 2),
        "bytes": known["num_bytes"],
    }


def models(folder: Path) -> dict[str, Path]:
    """Return the model of each seed of a folder that has one: of the last training, of the run, or itself."""
    found = {}
    for path in sorted(folder.glob("seed-*")):
        places = [*sorted(path.glob("*-train/model"), reverse=True), path / "model", path]
        whole = [place for place in places if (place / "config.json").exists()]
        found |= {path.name.removeprefix("seed-"): place for place in whole[:1]}
    return found


def measured(
    name: str, folder: Path, out: Path, rows: Path, forms: Sequence[str], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the row of a model beside what was known of it."""
    seeds = {seed: dict(values) for seed, values in known.get("seeds", {}).items()}
    for seed, model in models(folder).items():
        own = seeds.setdefault(seed, {})
        for form in forms:
            found = cost(model, out / folder.name / f"seed-{seed}" / form, rows, form)
            own[form] = {key: value for key, value in found.items() if key != "before"}
            own.setdefault("fp32", found["before"])
            print(name, seed, form, found, flush=True)
    return {"model": name, "seeds": seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--forms", default=",".join(USUAL))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    whole: dict[str, Any] = {}
    if given.json is not None and given.json.exists():
        whole = json.loads(given.json.read_text(encoding="utf-8"))
    known = {row["model"]: row for row in whole.get("rows", [])}
    for text in given.models:
        name, _, folder = text.rpartition("=")
        forms = given.forms.split(",")
        known[name] = measured(name, Path(folder), given.out, given.rows, forms, known.get(name, {}))
    if given.json is not None:
        write_json(given.json, whole | {"processor": processor().name, "rows": list(known.values())})


if __name__ == "__main__":
    main()
