#!/usr/bin/env bash
# A biLM and a Transformer of like size on the same text and for the same minutes: what does each layer know?
# bash benchmarks/elmo_gpu.sh TEXT SENSES MINUTES [OUT]
set -euo pipefail
text=$1 senses=$2 minutes=$3 out=${4:-runs/elmo-layers}
common=(--text "$text" --precision bf16 --seed 1 --length 64 --minutes "$minutes")
bermo pretrain "${common[@]}" --objective elmo --out "$out/elmo"
bermo pretrain "${common[@]}" --config box --layers 3 --out "$out/transformer"
for name in elmo transformer; do
  bermo probe --model "$out/$name/model" --out "$out/probe-$name"
done
bermo analyse "$out/elmo/model" "$out/transformer/model" --measures senses,geometry,layers --senses "$senses" \
  --text "$text" --out "$out/look"
