"""Weigh the box and another encoder of its shape into one, weight by weight.

    python benchmarks/box_soup.py OTHER SHARE OUT

OUT gets the box's files with (1 − SHARE) · box + SHARE · OTHER. What OTHER lacks (a masked-LM head) stays as
in the box. Fine-tune it with BOX_START=OUT benchmarks/box_gpu.sh MODELS DATA WORK 9 now.
"""

import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from bermo.encoders.where import BOX


def weigh(box: dict[str, Tensor], other: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return the mean, in the box's names and precision."""
    named = {name.removeprefix("bert."): weight for name, weight in other.items()}
    mixed = {}
    for name, weight in box.items():
        beside = named.get(name.removeprefix("bert."))
        mean = weight if beside is None else (1 - share) * weight.float() + share * beside.float()
        mixed[name] = mean.to(weight.dtype)
    return mixed


def main() -> None:
    other, share, out = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    shutil.copytree(BOX, out)
    mixed = weigh(load_file(BOX / "model.safetensors"), load_file(other / "model.safetensors"), share)
    save_file(mixed, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
