#!/usr/bin/env bash
# The first hour of a new user: clone, set up, own CSV, train, evaluate, predict, prune, shrink, export, serve, report.
#
#   make first-hour                                  the whole hour in a new folder: a new clone, a new environment
#   FIRST_HOUR=tiny bash tests/first_hour.sh FOLDER  the same commands on few rows, with the bermo that is in PATH
#
# It uses no data but sentences of the package's own grammar, ends at the first command that fails, and prints the
# seconds of every part. The whole hour must end within 15 minutes on a new machine.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$(mktemp -d)}
size=${FIRST_HOUR:-whole}
case $size in
    whole) rows=4000 most=900 small=() ;;
    tiny) rows=96 most=900 small=(--epochs 1 --max-length 24 --batch-size 32 --device cpu --keep-layers 2) ;;
    *) echo "FIRST_HOUR is \"$size\". Known: whole, tiny." >&2; exit 2 ;;
esac
mkdir -p "$folder"
cd "$folder"
parts=()

# part NAME COMMAND…: show the command, run it, and note its seconds.
part() {
    local name=$1 started=$SECONDS
    shift
    printf '\n$ %s\n' "$*"
    "$@"
    parts+=("$(printf '%-10s %5d s' "$name" $((SECONDS - started)))")
}

set_up() {
    make --silent -C bermo setup
}

# A user's files: sentences and whether they are about the past, in the form that a spreadsheet writes.
write_files() {
    python - "$rows" <<'PYTHON'
import csv
import sys
from pathlib import Path

from bermo.data.sentences import split

rows = int(sys.argv[1])
parts = split("tense", (rows, rows // 4, rows // 4), seed=7)
for name, made in zip(("my.csv", "dev.csv", "test.csv"), parts, strict=True):
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([one.text, one.label] for one in made)
texts = [one.text for one in parts[2][:5]]
Path("texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
PYTHON
}

# The exported file answers without bermo, torch and transformers: this is all that a server needs.
serve() {
    python -I - small-onnx-int8 <<'PYTHON'
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path(sys.argv[1])
labels = json.loads((folder / "task.json").read_text(encoding="utf-8"))["labels"]
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
session = onnxruntime.InferenceSession(folder / "model.onnx")
text = Path("texts.txt").read_text(encoding="utf-8").splitlines()[0]
encoded = tokenizer.encode(text)
known = {
    "input_ids": encoded.ids,
    "attention_mask": encoded.attention_mask,
    "token_type_ids": encoded.type_ids,
}
inputs = {item.name: np.array([known[item.name]], dtype=np.int64) for item in session.get_inputs()}
print(text, "->", labels[session.run(None, inputs)[0][0].argmax()])
assert not {"bermo", "torch", "transformers"} & set(sys.modules)
PYTHON
}

if [ "$size" = whole ]; then
    part clone git clone --quiet "$root" bermo
    part set-up set_up
    export PATH=$folder/bermo/.venv/bin:$PATH
fi
part files write_files
part train bermo train --train my.csv --valid dev.csv --out runs/mine "${small[@]}"
part evaluate bermo evaluate runs/mine test.csv
part predict bermo predict runs/mine texts.txt
part prune bermo train --train my.csv --valid dev.csv --out runs/units \
    --prune heads-and-neurons --density 0.5 --teacher runs/mine "${small[@]}"
part shrink bermo shrink runs/units --out small
part export bermo export small --to onnx-int8 --data dev.csv
part serve serve
part report bermo report runs/* --out report.html

printf '\nSeconds of each part:\n'
printf '%s\n' "${parts[@]}"
echo "all        $(printf '%5d' $SECONDS) s in $folder"
if [ "$SECONDS" -gt "$most" ]; then
    echo "The first hour took over $most seconds." >&2
    exit 1
fi
