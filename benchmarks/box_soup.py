"""Weigh two encoders of the box's shape into one, weight by weight.

    python benchmarks/box_soup.py OTHER SHARE OUT [BASE]

OUT gets BASE's files (the box's, unless said) with (1 − SHARE) · BASE + SHARE · OTHER. OTHER may be an
encoder or the model of a run; what it lacks (a masked-LM head) stays as in BASE. Fine-tune it with
BOX_START=OUT benchmarks/box_gpu.sh MODELS DATA WORK 9 now.
"""

import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from bermo.encoders.where import BOX

PREFIXES = ("bert.", "bermo.backbone.")


def weigh(base: dict[str, Tensor], other: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return the mean, in the base's names and precision."""
    named = {_short(name): weight for name, weight in other.items()}
    mixed = {}
    for name, weight in base.items():
        beside = named.get(_short(name))
        mean = weight if beside is None else (1 - share) * weight.float() + share * beside.float()
        mixed[name] = mean.to(weight.dtype)
    return mixed


def _short(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


def main() -> None:
    other, share, out = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    base = Path(sys.argv[4]) if len(sys.argv) > 4 else BOX
    shutil.copytree(base, out)
    (out / "checksums.json").unlink(missing_ok=True)
    mixed = weigh(load_file(base / "model.safetensors"), load_file(other / "model.safetensors"), share)
    save_file(mixed, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
