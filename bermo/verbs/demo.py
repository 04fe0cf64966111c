"""bermo demo: an encoder is trained, pruned and shipped, offline, in two minutes."""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bermo.atlas.spec import AtlasSpec
from bermo.errors import BermoError
from bermo.fields import option
from bermo.files import check_place
from bermo.printing import say, wrapped
from bermo.spec import DataSpec, ModelSpec, TrainSpec
from bermo.verbs import atlas
from bermo.verbs.verb import Verb

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
METHODS = ("dense", "int8", "structured")
WISH = "95 % of the score, highest throughput"
ATLAS = AtlasSpec(methods=METHODS, pick=WISH, batches=(1, 32), lengths=(32,), rounds=3)
DATA = DataSpec(task="box/subject-number", limit=960, max_length=64)
TRAIN = TrainSpec(epochs=1.0, batch_size=16, lr=5e-4, evaluations=1, contrast=0.0)
WHAT = (
    "The question: is the subject of a sentence singular or plural? 960 generated sentences teach it;"
    " guessing gives 50. dense: the small encoder of the package, fine-tuned. int8: the same in 8 bits."
    " structured: half of its heads and neurons are pruned while dense teaches it, and deleted; the rest is"
    " in 8 bits."
)
TEXT = "The boats in the harbour were old ."
NEXT_STEPS = """
Your own texts and labels, a column each:
  bermo train --train my.csv --out runs/mine    train, as above
  bermo atlas --train my.csv --valid dev.csv    this table for thirty methods
  bermo list                                    recipes and tasks"""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Where the results go."""

    out: Path = option(Path("runs/demo"), "folder of the run")


def run(options: DemoOptions) -> int:
    if any(find_spec(name) is None for name in PACKAGES):
        raise BermoError('The demo ships a model as ONNX. Install the extra: pip install "bermo[onnx]".')
    asked = atlas.AtlasOptions(
        atlas=ATLAS, out=options.out, model=ModelSpec(head="random"), data=DATA, train=TRAIN
    )
    check_place(options.out / METHODS[0])
    say(wrapped(WHAT) + "\n")
    code = atlas.run(asked)
    if code == 0:
        _show(json.loads((options.out / "atlas.json").read_text(encoding="utf-8")), options.out)
    return code


def _show(known: dict[str, Any], out: Path) -> None:
    """Draw sizes and speeds, and say what is there now."""
    from bermo.report.terminal import bars

    rows = known["rows"]
    names = [row["name"] for row in rows]
    for title, key, form in (
        ("Megabytes:", "megabytes", "{:.1f}"),
        ("Texts a second, on this machine:", "rows_per_second", "{:,.0f}"),
    ):
        values = [row[key] for row in rows]
        print(f"\n{title}\n{bars(names, values, [form.format(value) for value in values])}")
    print(f'{NEXT_STEPS}\n\n{wrapped(_ending(rows, out))}\n  bermo predict {out}/picked --text "{TEXT}"')


def _ending(rows: list[dict[str, Any]], out: Path) -> str:
    small = max(rows, key=lambda row: row["speedup"] if row["kept"] >= 95 else 0)
    return (
        f"What you have now and did not have before: {out}/picked, a model that is"
        f" {small['size_gain']:.1f} times smaller and {small['speedup']:.1f} times as fast as the one that"
        f" was trained, with {small['kept']:.1f} % of its score. Ask it:"
    )


VERB = Verb(help="an encoder is trained, pruned and shipped, offline", options=DemoOptions, run=run)
