"""What int8 costs the trainings of an atlas: scores in fp32 and with the int8 graph's numbers, by torch.

    python benchmarks/int8_look.py OUT VALID [NAME...] [--json results/qat.json] [--device cuda]

OUT is the folder of an atlas, VALID the file of rows that score, NAME its methods (dense, qat, …; all that
train). Each last training gets a diag.json: its score in fp32, in bf16, with int8 weights and inputs, with
either alone, and how far each moves the logits, ‖a − b‖ / ‖b‖ beside fp32. A row of the JSON is a method: the
options by which it differs from the dense training, and these numbers by seed.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bermo.data.batches import in_order
from bermo.data.features import Features
from bermo.data.scoring import score
from bermo.files import write_json
from bermo.models.quantized import attach_quantizers_
from bermo.nn.quantizers import InputQuantizer, WeightQuantizer
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.runtimes.candidate import inputs_of
from bermo.ship.runtimes.texts import labelled

FILE = "diag.json"
BATCH = 32
FREE = {"seeds", "out", "teacher", "student-layers"}
"""Options that every taught training has, and differ by seed."""


def look(folder: Path, valid: Path, device: str = "cpu") -> dict[str, Any]:
    """Return the scores of a model, and how far its logits move, with what int8 rounds and what not."""
    opened = open_trained(folder)
    features = labelled(opened, valid)
    plain, whole = _model(opened, device), _int8(opened, device)
    answers = {
        "fp32": _logits(plain, features),
        "bf16": _logits(plain, features, is_half=True),
        "fake_int8": _logits(whole, features),
        "fake_int8_bf16": _logits(whole, features, is_half=True),
        "inputs_int8": _logits(_without_weights_(_int8(opened, device)), features),
        "weights_int8": _logits(_without_inputs_(whole), features),
    }
    base = answers["fp32"]
    moved = {name: float(np.linalg.norm(one - base) / np.linalg.norm(base)) for name, one in answers.items()}
    scores = {name: round(score(features, list(one)).score, 2) for name, one in answers.items()}
    return {**scores, "moved": {name: round(value, 4) for name, value in moved.items()}}


def _model(opened: TrainedFolder, device: str) -> Any:
    return opened.load_model().requires_grad_(False).to(device).eval()


def _int8(opened: TrainedFolder, device: str) -> Any:
    model = _model(opened, device)
    attach_quantizers_(model).set_(True)
    return model


def _without_inputs_(model: nn.Module) -> nn.Module:
    """Round weights alone."""
    for module in model.modules():
        hooks = module._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, InputQuantizer)]:
            del hooks[key]
    return model


def _without_weights_(model: nn.Module) -> nn.Module:
    """Round inputs alone."""
    for module in model.modules():
        if isinstance(module, WeightQuantizer):
            module.forward = nn.Identity().forward  # type: ignore[method-assign]
    return model


def _logits(model: Any, features: Features, is_half: bool = False) -> np.ndarray:
    found: list[Any] = [None] * len(features)
    device = model.device.type
    for rows in in_order(features, BATCH):
        inputs = {name: torch.as_tensor(x).to(device) for name, x in inputs_of(features, rows).items()}
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=is_half):
            logits = model(**inputs).logits.float().cpu().numpy()
        for row, one in zip(rows, logits, strict=True):
            found[row] = one
    return np.stack(found)


def trainings(out: Path, names: Sequence[str]) -> Iterator[tuple[str, int, Path]]:
    """Yield the method, the seed and the folder of each last training that has ended."""
    for seed in sorted(out.glob("*/seed-*")):
        ended = sorted(path.parent for path in seed.glob("*-train/result.json"))
        if ended and (not names or seed.parent.name in names):
            yield seed.parent.name, int(seed.name.removeprefix("seed-")), ended[-1]


def options(folder: Path) -> dict[str, Any]:
    """Return the values of a training's spec by their names: train.lr."""
    groups = json.loads((folder / "spec.json").read_text(encoding="utf-8"))["spec"]
    return {
        f"{group}.{name}": value
        for group, values in groups.items()
        if isinstance(values, dict)
        for name, value in values.items()
        if name.replace("_", "-") not in FREE
    }


def rows(out: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each method of which a training was looked at, the dense one first."""
    found: dict[str, dict[str, Any]] = {}
    dense = next((options(folder) for name, _, folder in trainings(out, ["dense"])), {})
    for name, seed, folder in trainings(out, names):
        if not (folder / FILE).exists():
            continue
        own = options(folder)
        changed = {key: own[key] for key in own if key in dense and own[key] != dense[key]}
        row = found.setdefault(name, {"method": name, "changes": changed, "seeds": {}})
        row["seeds"][str(seed)] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return sorted(found.values(), key=lambda row: row["method"] != "dense")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    for name, seed, folder in trainings(given.out, given.names):
        if not (folder / FILE).exists():
            write_json(folder / FILE, look(folder, given.valid, given.device))
        print(name, seed, (folder / FILE).read_text(encoding="utf-8").strip())
    if given.json is not None:
        known = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
        write_json(given.json, known | {"rows": rows(given.out, given.names)})


if __name__ == "__main__":
    main()
