"""What an export writes, and what it is compared on. No torch is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bermo.fields import REQUIRED, option
from bermo.ship.runtimes.forms import FormName, Values, Words

Target = Literal[FormName, "best"]
"""A form, or all of them measured and the best kept (bermo/ship/compress/best.py)."""

Layout = Literal["bermo", "hub"]


@dataclass(frozen=True, kw_only=True)
class ExportSpec:
    """What to write, and what it is compared on."""

    to: Target = option(
        REQUIRED, "the form of the export; best: all are measured on this machine", metavar="FORM"
    )
    data: Path | None = option(None, "rows with answers: compare scores on them", metavar="FILE")
    max_loss: float = option(
        1.0, "points of score that may be lost; more where it may be chance, unless this is 0", least=0
    )
    calibrate: Path | None = option(None, "texts that fix the ranges of activations (int8)", metavar="FILE")
    keep_fp32: int = option(0, "onnx-int8: so many matrices that int8 hurts most stay in fp32", least=0)
    words: Words = option("int8", "int8 forms: how the table of words is stored; int4 takes half of the room")
    values: Values = option(
        "fp16", "sparse: how kept weights are stored; gobo, groups3, groups2: in three or two bits"
    )
    layout: Layout = option(
        "bermo", "where ONNX files stand; hub: as transformers.js, fastembed and the hub expect them"
    )
