#!/usr/bin/env bash
# Each habit of pretraining against the plain run: the same text, seed and minutes on one GPU.
# Held-out likelihood and tokens/s stand in runs/habits/*/result.json, the curve over seconds in metrics.jsonl.
# bash benchmarks/habits_gpu.sh TEXT MINUTES [OUT]
set -euo pipefail
text=$1 minutes=$2 out=${3:-runs/habits}
common=(--text "$text" --config box --precision bf16 --seed 1 --looks 20)

run() {
  local name=$1
  shift
  bermo pretrain "${common[@]}" --minutes "$minutes" --out "$out/$name" "$@"
}

run plain
run lamb --optimizer lamb --batch-size 1024 --lr 2e-3 --lr-batch 256
run large-adamw --batch-size 1024 --lr-batch 256
run short-first --short-length 32 --short-steps 2000
run layer-drop --layer-drop 0.1
run average --average 0.999
run recompute --recompute
# Half of the time for three layers, half for the six that they are stacked to.
half=$(python3 -c "print($minutes / 2)")
bermo pretrain "${common[@]}" --layers 3 --minutes "$half" --out "$out/stacked-below"
bermo pretrain --text "$text" --precision bf16 --seed 1 --looks 20 --model "$out/stacked-below/model" --layers 6 \
  --minutes "$half" --out "$out/stacked"
python3 - "$out" <<'END'
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*/result.json")):
    result = json.loads(path.read_text())
    print(f"{path.parent.name:14} {result['values']['likelihood']:8.4f} {result['seconds']:8.0f} s {result['steps']:8,} steps")
END
